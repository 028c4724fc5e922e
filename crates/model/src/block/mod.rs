//! Allocation blocks (facts 1.3 and section 3).
//!
//! A [`Block`] is always structurally sound: reading an unsound one gives a [`CorruptBlock`] with its problems, and
//! only the block arithmetic in [`BlockUpdate`] changes a block's allocations, free list and owner records.

mod cooldown;
mod read;
mod records;
mod update;
mod usable;
mod write;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;

pub use self::cooldown::Cooling;
pub use self::read::{BlockContent, RecordDetail};
pub use self::update::{AssignError, BlockUpdate};
use crate::attributes::{AttributeRef, AttributeTable};
use crate::cidr;
use crate::json::{RawJson, Unknown};
use crate::text::TextRef;
use crate::time::parse_time;

/// The number of ordinals that Windows nodes reserve at the start of a block.
pub const WINDOWS_RESERVED_FIRST: u32 = 3;
/// The number of ordinals that Windows nodes reserve at the end of a block.
pub const WINDOWS_RESERVED_LAST: u32 = 1;
/// The number of ordinals that Windows nodes reserve in a block.
pub const WINDOWS_RESERVED: u32 = WINDOWS_RESERVED_FIRST + WINDOWS_RESERVED_LAST;

/// The owner of a block, from its field `affinity`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockOwner {
    /// `host:<node>`.
    Host(String),
    /// `virtual:<name>`, such as `virtual:load-balancer`.
    Virtual(String),
    /// Any other string.
    Other(String),
}

impl BlockOwner {
    /// Reads the text of the field.
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("host", node)) => Self::Host(node.to_owned()),
            Some(("virtual", name)) => Self::Virtual(name.to_owned()),
            _ => Self::Other(text.to_owned()),
        }
    }

    /// The node, if the owner is one.
    pub fn host(&self) -> Option<&str> {
        if let Self::Host(node) = self {
            Some(node)
        } else {
            None
        }
    }
}

crate::serialize_displayed!(BlockOwner);

impl fmt::Display for BlockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(node) => write!(f, "host:{node}"),
            Self::Virtual(name) => write!(f, "virtual:{name}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// An allocation block whose structure is sound.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    cidr: IpNet,
    owner: Option<BlockOwner>,
    claim_time: Option<String>,
    /// Index into `attributes`, by ordinal; `None` if free.
    allocations: Box<[Option<u32>]>,
    /// Free ordinals; the head is assigned next.
    unallocated: Vec<u32>,
    attributes: AttributeTable,
    sequence: u64,
    /// Per-ordinal sequence numbers, ascending by ordinal.
    sequences: Vec<(u32, u64)>,
    deleted: bool,
    /// True if `attributes` is `null`: Calico creates such blocks, and keeps the `null` until the first address is
    /// assigned.
    null_attributes: bool,
    /// True if `sequenceNumberForAllocation` is `null` or missing, as in blocks from Calico before 3.22.2.
    null_sequences: bool,
    extras: Option<Box<Extras>>,
}

const STRICT_AFFINITY: &str = "strictAffinity";

/// Data that few blocks have.
#[derive(Clone, Debug, Default, PartialEq)]
struct Extras {
    /// Entries in `sequenceNumberForAllocation` whose key is not an ordinal of the block.
    stray_sequences: Vec<(String, u64)>,
    /// Unknown fields.
    unknown: Unknown,
}

/// One allocated ordinal in a block.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// The position in the block.
    pub ordinal: u32,
    pub address: IpAddr,
    /// The owner record.
    pub attribute: AttributeRef<'a>,
    /// Index of the record: equal for ordinals that share a record.
    pub attribute_index: u32,
    /// Per-ordinal sequence number; 0 if there is none.
    pub sequence: u64,
}

impl Block {
    /// The block's own `strictAffinity`, which Calico 3.14 and later ignores, and sets to false on Kubernetes. `None`
    /// if it is missing or not a boolean.
    pub fn own_strict_affinity(&self) -> Option<bool> {
        self.extras.as_ref()?.unknown.get(STRICT_AFFINITY)?.as_bool()
    }

    /// Sets the block's own `strictAffinity`, or removes it.
    pub fn set_own_strict_affinity(&mut self, strict: Option<bool>) {
        let extras = self.extras.get_or_insert_default();
        if let Some(strict) = strict {
            extras
                .unknown
                .insert(STRICT_AFFINITY.to_owned(), RawJson::from(strict));
        } else {
            extras.unknown.remove(STRICT_AFFINITY);
        }
        if **extras == Extras::default() {
            self.extras = None;
        }
    }

    /// The CIDR. Its prefix length can differ from the pool's block size.
    pub fn cidr(&self) -> IpNet {
        self.cidr
    }

    /// The owner, from the field `affinity`. Calico 3 ignores `hostAffinity`, the name of the field in the first
    /// versions.
    pub fn owner(&self) -> Option<&BlockOwner> {
        self.owner.as_ref()
    }

    /// The node, if the owner is one.
    pub fn host(&self) -> Option<&str> {
        self.owner()?.host()
    }

    /// The time at which the owner claimed the block (Calico 3.32 and later).
    pub fn claimed_at(&self) -> Option<Timestamp> {
        self.claim_time.as_deref().and_then(parse_time)
    }

    /// The claim time as recorded.
    pub fn claim_time(&self) -> Option<&str> {
        self.claim_time.as_deref()
    }

    /// Number of addresses, including free ones.
    pub fn size(&self) -> u32 {
        self.allocations.len() as u32
    }

    /// The sequence number, which rises by one with every update.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Per-ordinal sequence number; 0 if there is none.
    pub fn sequence_of(&self, ordinal: u32) -> u64 {
        self.sequences
            .binary_search_by_key(&ordinal, |(numbered, _)| *numbered)
            .map_or(0, |position| self.sequences[position].1)
    }

    /// Sets per-ordinal sequence numbers in a block that has none, such as one from Calico 2.x. For a handle,
    /// `number_of` returns a number that changes when the address is reassigned. The numbers are not stored.
    pub fn number_by_handle(&mut self, number_of: impl Fn(&str) -> Option<u64>) {
        let numbered = self
            .handles()
            .filter_map(|(ordinal, id)| Some((ordinal, number_of(&id.to_string())?)));
        self.sequences = numbered.collect();
    }

    /// True if the block is marked as deleted. On Kubernetes, this is the first of the two writes with which Calico
    /// deletes an object.
    pub fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Unknown fields.
    pub fn unknown(&self) -> &Unknown {
        static NONE: Unknown = Unknown::new();
        self.extras.as_ref().map_or(&NONE, |extras| &extras.unknown)
    }

    /// Free ordinals in the order of assignment.
    pub fn free(&self) -> &[u32] {
        &self.unallocated
    }

    /// The free ordinals that are not reserved, in the order of automatic assignment.
    pub fn assignable(&self, reserved: impl Fn(IpAddr) -> bool) -> impl Iterator<Item = u32> {
        let is_assignable = move |ordinal: &u32| !reserved(cidr::address_at(self.cidr, *ordinal));
        self.unallocated.iter().copied().filter(is_assignable)
    }

    /// Number of ordinals that are not free: allocated or cooling, or reserved by Windows.
    pub fn allocated(&self) -> u32 {
        self.size() - self.unallocated.len() as u32
    }

    /// The allocation of an ordinal; `None` if it is free or out of range.
    pub fn allocation(&self, ordinal: u32) -> Option<Allocation<'_>> {
        let index = self.allocations.get(ordinal as usize).copied().flatten()?;
        Some(Allocation {
            ordinal,
            address: cidr::address_at(self.cidr, ordinal),
            attribute: self.attributes.get(index as usize)?,
            attribute_index: index,
            sequence: self.sequence_of(ordinal),
        })
    }

    /// The allocation of an address; `None` if it is free or not in the block.
    pub fn allocation_of(&self, address: IpAddr) -> Option<Allocation<'_>> {
        self.allocation(cidr::ordinal_of(self.cidr, address)?)
    }

    /// All ordinals that are allocated or cooling, or reserved by Windows, ascending.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation<'_>> {
        (0..self.size()).filter_map(|ordinal| self.allocation(ordinal))
    }

    /// Ordinals with a handle, ascending, and the handle as recorded. Faster than [`Self::allocations`], which reads
    /// entire records.
    pub fn handles(&self) -> impl Iterator<Item = (u32, TextRef<'_>)> {
        (0..).zip(&self.allocations).filter_map(|(ordinal, index)| {
            let index = (*index)? as usize;
            Some((ordinal, self.attributes.handle(index)?))
        })
    }

    /// The owner records, each in use by at least one ordinal.
    pub fn attributes(&self) -> impl ExactSizeIterator<Item = AttributeRef<'_>> {
        self.attributes.iter()
    }

    /// True if no ordinals are in use, except those that Windows reserves. A cooling address is in use (facts 3.9).
    pub fn is_empty(&self) -> bool {
        self.attributes.iter().all(|a| a.is_windows_reserved())
    }
}

/// A block that can be read as JSON, but whose structure is broken.
#[derive(Clone, Debug, PartialEq)]
pub struct CorruptBlock {
    /// The CIDR in the value.
    pub cidr: IpNet,
    /// The owner in the block's `affinity` field.
    pub owner: Option<BlockOwner>,
    /// True if marked as deleted.
    pub deleted: bool,
    pub problems: Vec<BlockProblem>,
    /// The block without the records that no ordinal refers to, if it has no other problem.
    pub usable: Option<Box<Block>>,
    /// The stored value.
    pub raw: Box<str>,
}

/// A problem that makes a block corrupt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "kebab-case")]
pub enum BlockProblem {
    /// `allocations` does not have one entry for each address.
    #[error("`allocations` has {found} entries instead of {expected}")]
    ArrayLength {
        /// Number of addresses in the CIDR, as a string because it can exceed 64 bits.
        expected: String,
        /// Number of entries.
        found: usize,
    },
    /// The record index of an allocation is out of range.
    #[error("ordinal {ordinal} points at attribute {index}, which does not exist")]
    AttributeIndex {
        ordinal: u32,
        /// The invalid index.
        index: i64,
    },
    /// No ordinal uses this owner record.
    #[error("attribute {index} is used by no ordinal")]
    UnreferencedAttribute { index: u32 },
    /// An ordinal is in the free list more than once.
    #[error("ordinal {ordinal} is in the free list more than once")]
    FreeListDuplicate { ordinal: u32 },
    /// The free list contains a number that is not an ordinal of the block.
    #[error("the free list holds {ordinal}, which is not an ordinal of the block")]
    FreeListOutOfRange {
        /// The invalid number.
        ordinal: i64,
    },
    /// An ordinal is both free and allocated.
    #[error("ordinal {ordinal} is allocated and in the free list")]
    FreeListAllocated { ordinal: u32 },
    /// An ordinal is neither allocated nor in the free list.
    #[error("ordinal {ordinal} is neither allocated nor in the free list")]
    FreeListIncomplete { ordinal: u32 },
    /// An address's release time is in the future.
    #[error("ordinal {ordinal} was released in the future, at {released_at}")]
    ReleasedInFuture {
        ordinal: u32,
        /// The recorded time.
        released_at: String,
    },
    /// The key and the field `cidr` name different blocks.
    #[error("the key names {key}, the value {cidr}")]
    KeyMismatch {
        /// The CIDR in the key.
        key: String,
        /// The CIDR in the value.
        cidr: String,
    },
}
