//! A sound block as bytes, as it is kept in memory.

use super::{Block, BlockContent, BlockOwner};
use crate::attributes::AttributeTable;
use crate::cidr;
use crate::compact::{Compact, push_network, take_bytes, take_network, take_u32, take_u64, take_utf8};
use crate::packing::{push_number, push_sized};
use crate::snapshot::StoredBlock;

const DELETED: usize = 1;
const NULL_ATTRIBUTES: usize = 2;
const NULL_SEQUENCES: usize = 4;
const HAS_OWNER: usize = 8;
const HAS_CLAIM_TIME: usize = 16;

impl Compact for Block {
    fn push_compact(&self, out: &mut Vec<u8>) -> bool {
        self.push_with(out, AttributeTable::push_compact)
    }

    fn take_compact(bytes: &mut &[u8]) -> Option<Self> {
        Self::take_with(bytes, AttributeTable::take_compact)
    }
}

/// Of a sound block only, under the key that its value names.
impl Compact for StoredBlock {
    fn push_compact(&self, out: &mut Vec<u8>) -> bool {
        self.content.sound().is_some_and(|sound| sound.cidr() == self.key && sound.push_compact(out))
    }

    fn take_compact(bytes: &mut &[u8]) -> Option<Self> {
        let block = Block::take_compact(bytes)?;
        Some(Self { key: block.cidr(), content: BlockContent::Sound(Box::new(block)) })
    }
}

/// A block as it was before an update, without the owner records that the block after it has as well: of a block of which some
/// addresses were released, little more than the records of these.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierBlock(Box<[u8]>);

impl Block {
    /// This block, of which an update has made `later`; `None` if only its JSON holds all of it.
    pub fn before(&self, later: &Self) -> Option<EarlierBlock> {
        let mut bytes = Vec::new();
        let is_whole = self.push_with(&mut bytes, |records, out| records.push_before(&later.attributes, out));
        is_whole.then(|| EarlierBlock(bytes.into()))
    }
}

impl EarlierBlock {
    /// The block, by the later one that it was taken from; `None` if that is another one.
    pub fn of(&self, later: &Block) -> Option<Block> {
        let mut bytes = &*self.0;
        let block =
            Block::take_with(&mut bytes, |bytes| AttributeTable::take_before(&later.attributes, bytes))?;
        bytes.is_empty().then_some(block)
    }
}

impl Block {
    fn push_with(&self, out: &mut Vec<u8>, push: impl FnOnce(&AttributeTable, &mut Vec<u8>)) -> bool {
        // Few blocks have fields that only their JSON can hold.
        if self.extras.is_some() {
            return false;
        }
        let bit = |is: bool, bit: usize| if is { bit } else { 0 };
        push_network(out, self.cidr);
        push_number(
            out,
            bit(self.deleted, DELETED)
                | bit(self.null_attributes, NULL_ATTRIBUTES)
                | bit(self.null_sequences, NULL_SEQUENCES)
                | bit(self.owner.is_some(), HAS_OWNER)
                | bit(self.claim_time.is_some(), HAS_CLAIM_TIME),
        );
        if let Some(owner) = &self.owner {
            push_sized(out, owner.to_string().as_bytes());
        }
        if let Some(time) = &self.claim_time {
            push_sized(out, time.as_bytes());
        }
        push_number(out, self.allocations.len());
        self.allocations.iter().for_each(|index| push_number(out, index.map_or(0, |n| n as usize + 1)));
        push_number(out, self.unallocated.len());
        self.unallocated.iter().for_each(|ordinal| push_number(out, *ordinal as usize));
        push(&self.attributes, out);
        push_number(out, self.sequence as usize);
        push_number(out, self.sequences.len());
        for (ordinal, number) in &self.sequences {
            push_number(out, *ordinal as usize);
            push_number(out, *number as usize);
        }
        true
    }

    fn take_with(bytes: &mut &[u8], take: impl FnOnce(&mut &[u8]) -> Option<AttributeTable>) -> Option<Self> {
        let cidr = take_network(bytes)?;
        let flags = take_u64(bytes)? as usize;
        let owner = match flags & HAS_OWNER {
            0 => None,
            _ => Some(BlockOwner::parse(take_utf8(bytes)?)),
        };
        let claim_time = match flags & HAS_CLAIM_TIME {
            0 => None,
            _ => Some(take_utf8(bytes)?.to_owned()),
        };

        let size = take_u32(bytes)?;
        if u128::from(size) != cidr::size(cidr) {
            return None;
        }
        let allocations = take_many(size, bytes, |bytes| Some(take_u32(bytes)?.checked_sub(1)))?;
        let free = take_u32(bytes).filter(|free| *free <= size)?;
        let unallocated = take_many(free, bytes, |bytes| take_u32(bytes).filter(|o| *o < size))?;
        let attributes = take(bytes)?;
        if allocations.iter().flatten().any(|index| *index as usize >= attributes.len()) {
            return None;
        }

        let sequence = take_u64(bytes)?;
        let numbered = take_u32(bytes).filter(|numbered| *numbered <= size)?;
        let sequences = take_many(numbered, bytes, |bytes| {
            let ordinal = take_u32(bytes).filter(|ordinal| *ordinal < size)?;
            Some((ordinal, take_u64(bytes)?))
        })?;
        Some(Self {
            cidr,
            owner,
            claim_time,
            allocations: allocations.into(),
            unallocated,
            attributes,
            sequence,
            sequences,
            deleted: flags & DELETED != 0,
            null_attributes: flags & NULL_ATTRIBUTES != 0,
            null_sequences: flags & NULL_SEQUENCES != 0,
            extras: None,
        })
    }
}

/// Takes so many things, each of which has a byte at least, with room for just these.
fn take_many<T>(number: u32, bytes: &mut &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    if bytes.len() < number as usize {
        return None;
    }
    let mut all = Vec::with_capacity(number as usize);
    for _ in 0..number {
        all.push(take(bytes)?);
    }
    Some(all)
}

impl AttributeTable {
    /// Appends how long the records are, and then all of them in one piece.
    fn push_compact(&self, out: &mut Vec<u8>) {
        let records = self.records();
        push_number(out, records.len());
        records.clone().for_each(|record| push_number(out, record.len()));
        records.for_each(|record| out.extend_from_slice(record));
    }

    fn take_compact(bytes: &mut &[u8]) -> Option<Self> {
        let number = take_u32(bytes)?;
        let lengths = take_many(number, bytes, take_u32)?;
        Self::of_packed(&lengths, bytes)
    }

    /// Appends the records: of one that `later` has as well, after those that were found there, how many are between.
    fn push_before(&self, later: &Self, out: &mut Vec<u8>) {
        let mut rest = later.records();
        let records = self.records();
        push_number(out, records.len());
        for record in records {
            match rest.clone().position(|other| other == record) {
                Some(between) => {
                    push_number(out, between + 1);
                    rest.nth(between);
                }
                None => {
                    push_number(out, 0);
                    push_sized(out, record);
                }
            }
        }
    }

    fn take_before(later: &Self, bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = later.records();
        let mut table = Self::default();
        for _ in 0..take_u32(bytes)? {
            table.push_packed(match take_u32(bytes)?.checked_sub(1) {
                Some(between) => rest.nth(between as usize)?,
                None => take_bytes(bytes)?,
            });
        }
        table.shrink();
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attribute;

    fn block() -> Block {
        let now = "2026-05-01T10:00:00Z".parse().unwrap();
        let mut block = Block::new("10.0.0.0/28".parse().unwrap(), None, now).unwrap();
        let record = |ordinal: u32| {
            Attribute::new(Some(&format!("net.{ordinal:064x}")), [("pod", "a"), ("node", "n")])
        };
        block.update(|update| (0..9).for_each(|ordinal| update.assign(ordinal, &record(ordinal)).unwrap()));
        block
    }

    #[test]
    fn a_block_comes_back_by_what_an_update_has_made_of_it() {
        let before = block();
        let mut whole = Vec::new();
        assert!(before.push_compact(&mut whole));
        let changed = |change: &dyn Fn(&mut Block)| {
            let mut later = before.clone();
            change(&mut later);
            assert_ne!(later, before);
            let earlier = before.before(&later).unwrap();
            assert_eq!(earlier.of(&later).as_ref(), Some(&before));
            for length in 0..earlier.0.len() {
                assert_ne!(EarlierBlock(earlier.0[..length].into()).of(&later).as_ref(), Some(&before));
            }
            earlier.0.len()
        };
        let other = Attribute::new(Some("net.other"), []);
        let now = "2026-05-02T10:00:00Z".parse().unwrap();
        // Nine records of 41 bytes and more.
        let released = changed(&|block| drop(block.update(|update| update.release(&[2, 7]))));
        assert!(released < whole.len() - 7 * 40, "{released} of {}", whole.len());
        let cooling = changed(&|block| drop(block.update(|update| update.cool(&[0, 8], now))));
        assert!(cooling < whole.len() - 7 * 40, "{cooling} of {}", whole.len());
        let rewritten = changed(&|block| block.update(|update| update.set_attribute(3, &other).unwrap()));
        assert!(rewritten < whole.len() - 8 * 40, "{rewritten} of {}", whole.len());
        changed(&|block| block.update(|update| update.assign(15, &other).unwrap()));
        changed(&|block| drop(block.update(|update| update.release(&(0..9).collect::<Vec<_>>()))));
    }

    #[test]
    fn as_many_things_are_taken_as_bytes_are_left() {
        let byte = |bytes: &mut &[u8]| bytes.split_off_first().copied();
        let taken = |number| take_many(number, &mut &[7, 8][..], byte);
        assert_eq!([taken(2), taken(3), taken(u32::MAX)], [Some(vec![7, 8]), None, None]);
    }

    #[test]
    fn what_only_json_holds_is_not_taken_apart() {
        let before = block();
        let mut strange = before.clone();
        strange.set_own_strict_affinity(Some(true));
        assert!(strange.before(&before).is_none() && before.before(&strange).is_some());
    }
}
