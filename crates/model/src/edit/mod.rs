//! Edits: the changes in a repair, each with its guards. Plans consist of edits, and the executor applies them to the
//! objects as it finds them.
//!
//! [`apply`] applies edits in memory, both for the executor and to simulate a plan.

mod apply;
mod block;
mod current;
mod error;
mod evidence;

use std::net::IpAddr;

use ipnet::IpNet;

pub use self::apply::apply;
pub use self::current::Current;
pub use self::error::EditError;
pub use self::evidence::{Condition, Evidence, Found, Precondition, User};
use crate::affinity::{AffinityKey, AffinityState};
use crate::attributes::{Attribute, PackedAttribute};
use crate::block::{Allocation, BlockOwner};
use crate::cidr::address_at;
use crate::document::Document;
use crate::key::Key;
use crate::stored::Revision;
use crate::writable::Object;

/// The changes of one decision in a plan. The parts of a step are written together if the datastore supports that.
#[derive(Clone, Debug)]
pub struct Step {
    /// The reason for the step, in readable form: `leaked-address 10.244.1.7`.
    pub reason: String,
    /// At most one part is [`Unit::Block`], which comes first, and at most one is [`Unit::WholeStep`], which comes
    /// last.
    pub parts: Vec<Part>,
}

/// Edits that are made together or not at all. [`Unit`] determines how a failed guard affects the other parts of the
/// step.
#[derive(Clone, Debug)]
pub struct Part {
    pub unit: Unit,
    /// The edits, in write order for a datastore without transactions. When freeing, the block comes before the handle.
    /// When claiming, the affinity and the handle come before the block (facts 3.14).
    pub edits: Vec<Edit>,
    /// Other preconditions: for example, the endpoint named by a record is absent, or a node still has the version that
    /// was read.
    pub evidence: Evidence,
}

/// The subject of a [`Part`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// A handle's addresses in one block, by the handle ID up to the first carriage return. If several steps free
    /// addresses of one handle, their parts for the handle are made together or not at all.
    Handle(String),
    /// An address without a handle.
    Address(IpAddr),
    /// A block that is created or replaced, together with changes that apply to any of its addresses. The other parts
    /// edit the same block. It is written once for all parts, without those whose guards fail.
    Block,
    /// A change for the entire step, such as removing a block's owner. It is made only if all other parts are made. If
    /// its evidence does not hold, the entire step is abandoned.
    WholeStep,
}

impl Step {
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            parts: Vec::new(),
        }
    }

    /// The part that creates or replaces a block.
    pub fn block_part(&self) -> Option<&Part> {
        self.parts.first().filter(|part| part.unit == Unit::Block)
    }

    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.parts.iter().flat_map(|part| &part.edits)
    }

    /// The evidence of all parts, with duplicates.
    pub fn evidence(&self) -> impl Iterator<Item = &(Key, Precondition)> {
        self.parts.iter().flat_map(|part| &part.evidence)
    }

    /// The edits for each object, as indices of part and edit. Objects are in write order for a datastore without
    /// transactions: first those that a part names before its block (handles whose count rises, affinities for new
    /// blocks), next the block, once for all parts, and last all other objects.
    pub fn by_object(&self) -> Vec<(Key, Vec<(usize, usize)>)> {
        let mut before_blocks: Vec<(usize, usize)> = Vec::new();
        let mut of_blocks: Vec<(usize, usize)> = Vec::new();
        let mut others: Vec<(usize, usize)> = Vec::new();
        for (part_index, part) in self.parts.iter().enumerate() {
            let first_of_block = part.edits.iter().position(|edit| edit.block().is_some());
            for (edit_index, edit) in part.edits.iter().enumerate() {
                let indices = (part_index, edit_index);
                if edit.block().is_some() {
                    of_blocks.push(indices);
                } else if first_of_block.is_some_and(|first| edit_index < first) {
                    before_blocks.push(indices);
                } else {
                    others.push(indices);
                }
            }
        }

        let in_write_order = before_blocks.into_iter().chain(of_blocks).chain(others);
        apply::by_object(in_write_order.map(|(part_index, edit_index)| {
            let key = self.parts[part_index].edits[edit_index].key();
            (key, (part_index, edit_index))
        }))
    }

    /// The evidence that must hold for every part.
    pub fn evidence_of_whole(&self) -> &[(Key, Precondition)] {
        match self.parts.last() {
            Some(part) if part.unit == Unit::WholeStep => &part.evidence,
            _ => &[],
        }
    }

    /// The part [`Unit::WholeStep`], which is added if it is missing.
    pub fn whole(&mut self) -> &mut Part {
        if self.parts.last().is_none_or(|part| part.unit != Unit::WholeStep) {
            self.parts.push(Part {
                unit: Unit::WholeStep,
                edits: Vec::new(),
                evidence: Evidence::default(),
            });
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }
}

/// The number of addresses whose cooldown these edits start, and the longest cooldown in seconds; `None` if there are
/// none.
pub fn cooling<'e>(edits: impl Iterator<Item = &'e Edit>) -> Option<(usize, i64)> {
    let mut addresses = 0;
    let mut longest_cooldown = 0;
    for edit in edits {
        if let Edit::Block(_, BlockEdit::Release { held, cooldown }) = edit
            && *cooldown > 0
        {
            addresses += held.len();
            longest_cooldown = longest_cooldown.max(*cooldown);
        }
    }
    if longest_cooldown == 0 {
        return None;
    }
    Some((addresses, longest_cooldown))
}

impl Part {
    /// Returns the addresses whose records the part frees, adds or changes, in the order of its edits.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for edit in &self.edits {
            let Edit::Block(cidr, edit) = edit else { continue };
            match edit {
                BlockEdit::Release { held, .. } => {
                    addresses.extend(held.iter().map(|held| address_at(*cidr, held.ordinal)));
                }
                BlockEdit::Assign { records } => {
                    addresses.extend(records.iter().map(|(ordinal, _)| address_at(*cidr, *ordinal)));
                }
                BlockEdit::Record { held, .. } => addresses.push(address_at(*cidr, held.ordinal)),
                _ => {}
            }
        }
        addresses
    }

    /// True if the part frees addresses and does not change their block in other ways.
    pub fn releases(&self) -> bool {
        let mut frees_addresses = false;
        for edit in &self.edits {
            if edit.block().is_none() {
                continue;
            }
            if !matches!(edit, Edit::Block(_, BlockEdit::Release { .. })) {
                return false;
            }
            frees_addresses = true;
        }
        frees_addresses
    }
}

/// A change to one object.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Creates the object, which must not exist.
    Create(Key, Box<Object>),
    /// Replaces the object, such as a corrupt block. It must be the version that was read.
    Replace(Key, Revision, Box<Object>),
    /// Deletes the object. It must be the version that was read.
    Delete(Key, Revision),
    Block(IpNet, BlockEdit),
    /// A change to a handle, by its ID.
    Handle(String, HandleEdit),
    /// Sets an affinity's state, and on Kubernetes its labels. It must be the version that was read.
    Affinity(Box<AffinityKey>, Revision, AffinityState),
    /// A change to a pool, by its name. Its blocks and affinities do not change.
    Pool(String, PoolEdit),
}

/// An allocated address as it was at the time of the plan. The address must be unchanged when it is released or gets a
/// new record.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationGuard {
    pub ordinal: u32,
    /// The full owner record.
    pub record: PackedAttribute,
    /// The per-ordinal sequence number.
    pub sequence: u64,
}

impl AllocationGuard {
    /// Makes the guard that finds the allocation unchanged.
    pub fn new(allocation: &Allocation<'_>) -> Self {
        Self {
            ordinal: allocation.ordinal,
            record: allocation.attribute.to_packed(),
            sequence: allocation.sequence,
        }
    }
}

/// A change to a block.
#[derive(Clone, Debug)]
pub enum BlockEdit {
    /// Frees addresses, after a cooldown if that is above 0 seconds. Each must still have its record. As in Calico, a
    /// block without an owner that becomes empty is deleted (facts 3.12).
    Release {
        held: Vec<AllocationGuard>,
        /// The cluster's cooldown in seconds, or 0 if its schema cannot store release times.
        cooldown: i64,
    },
    /// Frees addresses that have cooled for longer than `cooldown`, as Calico does before it assigns.
    CollectCooled {
        /// The cluster's cooldown in seconds.
        cooldown: i64,
    },
    /// Assigns addresses. Each must still be free.
    Assign {
        /// Ordinals and their records.
        records: Vec<(u32, Attribute)>,
    },
    /// Replaces the record of an address, which must still have the old one.
    Record {
        held: Box<AllocationGuard>,
        /// The new record.
        record: Box<Attribute>,
    },
    /// Changes the owner of the block, which must still be `from`.
    Owner {
        from: Option<BlockOwner>,
        /// The new owner.
        to: Option<BlockOwner>,
    },
    /// Removes this owner from the block, which must be empty after the other edits, and deletes the block.
    GiveUp(BlockOwner),
    /// Changes only the sequence number of the block, so that racing writers fail (facts 3.9).
    Touch,
}

/// A change to a handle.
#[derive(Clone, Debug)]
pub enum HandleEdit {
    /// Lowers a block's count; a handle without counts is deleted (facts 3.8). Does nothing if the handle is missing
    /// or its count is too low.
    Decrement(IpNet, i64),
    /// Raises a block's count; creates the handle if it is missing.
    Increment(IpNet, i64),
    /// Sets counts by block; 0 removes the entry, and a handle without entries is deleted. The handle must be the
    /// version that was read.
    Counts(Revision, Vec<(IpNet, i64)>),
}

/// A change to a pool. Its blocks and affinities do not change.
#[derive(Clone, Debug)]
pub enum PoolEdit {
    /// Disables or enables the pool. Its `spec` must be the one that was read.
    SetDisabled(Document, bool),
    /// Deletes the pool. Its `spec` must be the one that was read; its status may differ. A pool with finalizers is not
    /// deleted: Calico would first release the affinities for all its blocks and wait until they are gone.
    Delete(Document),
}

impl Edit {
    /// The block, if the edit changes one.
    pub fn block(&self) -> Option<IpNet> {
        match self {
            Self::Create(Key::Block(cidr), _)
            | Self::Replace(Key::Block(cidr), ..)
            | Self::Delete(Key::Block(cidr), _)
            | Self::Block(cidr, _) => Some(*cidr),
            _ => None,
        }
    }

    /// The changed object.
    pub fn key(&self) -> Key {
        match self {
            Self::Create(key, _) | Self::Replace(key, ..) | Self::Delete(key, _) => key.clone(),
            Self::Block(cidr, _) => Key::Block(*cidr),
            Self::Handle(id, _) => Key::Handle(id.clone()),
            Self::Affinity(key, ..) => Key::Affinity(key.as_ref().clone()),
            Self::Pool(name, _) => Key::Pool(name.clone()),
        }
    }
}
