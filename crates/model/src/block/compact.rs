//! A sound block as bytes, as it is kept in memory.

use super::{Block, BlockOwner};
use crate::attributes::AttributeTable;
use crate::cidr;
use crate::compact::{Compact, push_network, take_bytes, take_network, take_u32, take_u64, take_utf8};
use crate::packing::{push_number, push_sized};

const DELETED: usize = 1;
const NULL_ATTRIBUTES: usize = 2;
const NULL_SEQUENCES: usize = 4;
const HAS_OWNER: usize = 8;
const HAS_CLAIM_TIME: usize = 16;

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
        let index = |number: u32| number.checked_sub(1);
        let allocations: Vec<_> =
            (0..size).map(|_| take_u32(bytes).map(index)).collect::<Option<Vec<_>>>()?;
        let free = take_u32(bytes).filter(|free| *free <= size)?;
        let unallocated: Vec<u32> =
            (0..free).map(|_| take_u32(bytes).filter(|o| *o < size)).collect::<Option<_>>()?;
        let attributes = AttributeTable::take_compact(bytes)?;
        if allocations.iter().flatten().any(|index| *index as usize >= attributes.len()) {
            return None;
        }

        let sequence = take_u64(bytes)?;
        let numbered = take_u32(bytes).filter(|numbered| *numbered <= size)?;
        let sequences = (0..numbered).map(|_| {
            let ordinal = take_u32(bytes).filter(|ordinal| *ordinal < size)?;
            Some((ordinal, take_u64(bytes)?))
        });
        let sequences = sequences.collect::<Option<Vec<_>>>()?;
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

impl AttributeTable {
    fn push_compact(&self, out: &mut Vec<u8>) {
        let records = self.records();
        push_number(out, records.len());
        records.for_each(|record| push_sized(out, record));
    }

    fn take_compact(bytes: &mut &[u8]) -> Option<Self> {
        let mut table = Self::default();
        for _ in 0..take_u32(bytes)? {
            table.push_packed(take_bytes(bytes)?);
        }
        table.shrink();
        Some(table)
    }
}
