//! The state of a block, field by field, as its revisions are compared.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr;

use super::event::Holder;

/// A block, field by field. Left out is what says nothing to people: the index of an owner record, the order of free addresses, and the sequence
/// number.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockFields {
    pub cidr: IpNet,
    pub owner: Option<BlockOwner>,
    /// As it is recorded.
    pub claim_time: Option<String>,
    /// Marked deleted.
    pub deleted: bool,
    /// Records by ordinal.
    pub held: BTreeMap<u32, Record>,
    /// Fields that are none of these, as JSON.
    pub others: BTreeMap<String, serde_json::Value>,
}

/// The record of an ordinal.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub attribute: Attribute,
    /// The block's sequence number when it was allocated; 0 if the block has none for it.
    pub sequence: u64,
}

impl Record {
    /// True if an owner holds the address: it does not cool down, and Windows does not reserve it.
    pub(crate) fn is_owned(&self) -> bool {
        Holder::of(&self.attribute).is_owner()
    }
}

/// Fields of the stored value that [`BlockFields`] has under names of its own, or leaves out.
const KNOWN: [&str; 9] = [
    "cidr",
    "affinity",
    "affinity_claim_time",
    "allocations",
    "unallocated",
    "attributes",
    "sequenceNumber",
    "sequenceNumberForAllocation",
    "deleted",
];

impl BlockFields {
    pub fn of(block: &Block) -> Self {
        let record = |ordinal: u32| {
            let allocation = block.allocation(ordinal)?;
            let attribute = allocation.attribute.to_attribute();
            Some((ordinal, Record { attribute, sequence: allocation.sequence }))
        };
        let stored = serde_json::to_value(block).ok();
        let fields = stored.and_then(|value| match value {
            serde_json::Value::Object(fields) => Some(fields),
            _ => None,
        });
        let others = fields.into_iter().flatten().filter(|(name, _)| !KNOWN.contains(&name.as_str()));
        Self {
            cidr: block.cidr(),
            owner: block.owner().cloned(),
            claim_time: block.claim_time().map(str::to_owned),
            deleted: block.is_deleted(),
            held: (0..block.size()).filter_map(record).collect(),
            others: others.collect(),
        }
    }

    pub fn address(&self, ordinal: u32) -> IpAddr {
        cidr::address_at(self.cidr, ordinal)
    }
}
