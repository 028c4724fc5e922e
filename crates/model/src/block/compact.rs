//! A sound block as bytes, as it is kept in memory.

use super::{Block, BlockContent, BlockOwner};
use crate::attributes::AttributeTable;
use crate::cidr;
use crate::compact::{Compact, push_network, take_network, take_u32, take_u64, take_utf8};
use crate::packing::{push_number, push_sized};
use crate::snapshot::StoredBlock;

const DELETED: usize = 1;
const NULL_ATTRIBUTES: usize = 2;
const NULL_SEQUENCES: usize = 4;
const HAS_OWNER: usize = 8;
const HAS_CLAIM_TIME: usize = 16;

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

impl Compact for Block {
    fn push_compact(&self, out: &mut Vec<u8>) -> bool {
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
        self.attributes.push_compact(out);
        push_number(out, self.sequence as usize);
        push_number(out, self.sequences.len());
        for (ordinal, number) in &self.sequences {
            push_number(out, *ordinal as usize);
            push_number(out, *number as usize);
        }
        true
    }

    fn take_compact(bytes: &mut &[u8]) -> Option<Self> {
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
        let attributes = AttributeTable::take_compact(bytes)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_things_are_taken_as_bytes_are_left() {
        let byte = |bytes: &mut &[u8]| bytes.split_off_first().copied();
        let taken = |number| take_many(number, &mut &[7, 8][..], byte);
        assert_eq!([taken(2), taken(3), taken(u32::MAX)], [Some(vec![7, 8]), None, None]);
    }
}
