//! Edits: what a repair changes, and under which guards. Plans are made of them; the executor carries them
//! out on the objects as they are then.
//!
//! [`apply`] makes edits in memory, for the executor as for the simulation of a plan.

mod apply;
mod block;
mod document;
mod error;
mod evidence;
mod handle;

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

pub use self::apply::{Current, apply};
pub use self::error::EditError;
pub use self::evidence::{Condition, Found, Precondition, User};
use crate::affinity::{Affinity, AffinityKey, AffinityState};
use crate::attributes::{Attribute, PackedAttribute};
use crate::block::{Allocation, Block, BlockOwner};
use crate::cidr::address_at;
use crate::document::Document;
use crate::handle::Handle;
use crate::key::Key;
use crate::snapshot::Revision;

/// What one decision of a plan changes. Its parts are written together where the datastore can.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which finding justifies it, for people: `leaked-address 10.244.1.7`.
    pub reason: String,
    /// At most one of them is [`Unit::Block`], and that is the first; at most one is [`Unit::WholeStep`], and that is the
    /// last.
    pub parts: Vec<Part>,
}

/// Edits that are made completely or not at all. If a guard of a part does not hold, the other parts of its
/// step are made.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is about.
    pub unit: Unit,
    /// In the order in which a datastore without transactions makes them: the block before the handle when
    /// freeing, affinity and handle before the block when claiming (facts 3.14).
    pub edits: Vec<Edit>,
    /// What else has to be true for them: that the endpoint which a record names is absent, that a node is the
    /// version that was read.
    pub evidence: Vec<(Key, Precondition)>,
}

/// What a [`Part`] is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// The addresses of a handle in one block, by its ID up to the first carriage return. If other steps have a
    /// part of the same handle, all of them are made or none.
    Handle(String),
    /// An address without handle.
    Address(IpAddr),
    /// A block that is created or replaced, and what comes with it whichever of its addresses it records. The other parts
    /// edit it: it is written once for all of them, without those whose guards do not hold.
    Block,
    /// What the step does as a whole, such as taking the owner from a block. It is made only if all other parts are,
    /// and its evidence has to hold for all of them: if it does not, the step is abandoned.
    WholeStep,
}

impl Step {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), parts: Vec::new() }
    }

    /// The part that creates or replaces a block.
    pub fn block_part(&self) -> Option<&Part> {
        self.parts.first().filter(|part| part.unit == Unit::Block)
    }

    /// The edits of all parts.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.parts.iter().flat_map(|part| &part.edits)
    }

    /// The evidence of all parts, pieces in common several times.
    pub fn evidence(&self) -> impl Iterator<Item = &(Key, Precondition)> {
        self.parts.iter().flat_map(|part| &part.evidence)
    }

    /// The edits of each object, as indices of part and edit, in the order in which a datastore without transactions
    /// writes the objects: what a part names before its block, which are handles that count up and affinities of new blocks;
    /// then the block, once for all parts; and then all else.
    pub fn by_object(&self) -> Vec<(Key, Vec<(usize, usize)>)> {
        let is_block = |edit: &Edit| matches!(edit, Edit::Block(..));
        let mut edits: Vec<(u8, usize, usize)> = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            let block = part.edits.iter().position(is_block);
            for (number, edit) in part.edits.iter().enumerate() {
                let phase = match block {
                    Some(block) if number < block => 0,
                    _ if is_block(edit) => 1,
                    _ => 2,
                };
                edits.push((phase, index, number));
            }
        }
        // The sort is stable: within a phase parts and edits keep their order.
        edits.sort_by_key(|(phase, ..)| *phase);

        let mut objects: Vec<(Key, Vec<(usize, usize)>)> = Vec::new();
        let mut indices: HashMap<Key, usize> = HashMap::new();
        for (_, part, number) in edits {
            let key = self.parts[part].edits[number].key();
            let index = *indices.entry(key.clone()).or_insert(objects.len());
            if index == objects.len() {
                objects.push((key, Vec::new()));
            }
            objects[index].1.push((part, number));
        }
        objects
    }

    /// What has to be true for any part to be made.
    pub fn evidence_of_whole(&self) -> &[(Key, Precondition)] {
        match self.parts.last() {
            Some(part) if part.unit == Unit::WholeStep => &part.evidence,
            _ => &[],
        }
    }

    /// The part that is made only if all others are; it is added if there is none.
    pub fn whole(&mut self) -> &mut Part {
        if self.parts.last().is_none_or(|part| part.unit != Unit::WholeStep) {
            self.parts.push(Part { unit: Unit::WholeStep, edits: Vec::new(), evidence: Vec::new() });
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }
}

/// The addresses that cool down once these edits have released them, and for how many seconds; `None` if none does.
pub fn cooling<'e>(edits: impl Iterator<Item = &'e Edit>) -> Option<(usize, i64)> {
    let cooling = edits.filter_map(|edit| match edit {
        Edit::Block(_, BlockEdit::Release { held, cooldown }) if *cooldown > 0 => {
            Some((held.len(), *cooldown))
        }
        _ => None,
    });
    cooling.reduce(|sum, of| (sum.0 + of.0, sum.1.max(of.1)))
}

impl Part {
    /// The addresses whose records change.
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

    /// True if it frees addresses, and does nothing else to their block.
    pub fn releases(&self) -> bool {
        let mut of_block = self.edits.iter().filter_map(|edit| match edit {
            Edit::Block(_, edit) => Some(matches!(edit, BlockEdit::Release { .. })),
            _ => None,
        });
        let first = of_block.next();
        first == Some(true) && of_block.all(|frees| frees)
    }

    /// Adds a piece of evidence, unless it is there already.
    pub fn require(&mut self, evidence: (Key, Precondition)) {
        if !self.evidence.contains(&evidence) {
            self.evidence.push(evidence);
        }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub enum Edit {
    Block(IpNet, BlockEdit),
    /// Of a handle, by its ID.
    Handle(String, HandleEdit),
    Affinity(Box<AffinityKey>, AffinityEdit),
    /// Of a pool, by its name.
    Pool(String, PoolEdit),
    /// Of the configuration of the allocator.
    IpamConfig(ConfigEdit),
}

/// An allocated address as it was when the plan was made: the guard of its release or rewriting.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub ordinal: u32,
    /// The whole owner record.
    pub record: PackedAttribute,
    /// The per-ordinal sequence number.
    pub sequence: u64,
}

impl Held {
    /// The allocation as it is now.
    pub fn new(allocation: &Allocation<'_>) -> Self {
        let Allocation { ordinal, attribute, sequence, .. } = *allocation;
        Self { ordinal, record: attribute.to_packed(), sequence }
    }
}

/// A change of a block.
#[derive(Clone, Debug)]
pub enum BlockEdit {
    /// Frees addresses. Each must be held as it was. With a cooldown above 0 seconds they cool first. A block
    /// without owner that is empty then is deleted, as Calico does (facts 3.12).
    Release {
        /// The addresses.
        held: Vec<Held>,
        /// Seconds of cooldown that the cluster configures and its schema can hold, else 0.
        cooldown: i64,
    },
    /// Frees addresses that have cooled for longer than so many seconds, as Calico does before it assigns.
    CollectCooled {
        /// What the cluster configures.
        cooldown: i64,
    },
    /// Records addresses that are free. Each must still be free.
    Assign {
        /// Ordinals and their records.
        records: Vec<(u32, Attribute)>,
    },
    /// Gives an address another record. It must be held as it was.
    Record {
        held: Box<Held>,
        /// The new record.
        record: Box<Attribute>,
    },
    /// Gives the block another owner. The owner must be the one that it was.
    Owner {
        from: Option<BlockOwner>,
        /// The new one.
        to: Option<BlockOwner>,
    },
    /// Takes the block from this owner, whose it must be, and deletes it. It must be empty by then.
    GiveUp(BlockOwner),
    /// Rewrites the block unchanged but for its sequence number, so that racing writers fail (facts 3.9).
    Touch,
    /// Creates the block. There must be none.
    Create(Box<Block>),
    /// Replaces the block, such as one that is corrupt. It must be the version that was read.
    Replace(Revision, Box<Block>),
    /// Deletes the block. It must be the version that was read.
    Delete(Revision),
}

/// A change of a handle.
#[derive(Clone, Debug)]
pub enum HandleEdit {
    /// Counts fewer addresses of a block, the handle's other counts stay; the last one deletes it (facts
    /// 3.8). A handle that counts fewer than that, or is not there, is left as it is.
    Decrement(IpNet, i64),
    /// Counts more addresses of a block; creates the handle if there is none.
    Increment(IpNet, i64),
    /// Sets counts by block; 0 removes the entry, and a handle without entries is deleted. It must be the
    /// version that was read.
    Counts(Revision, Vec<(IpNet, i64)>),
    /// Creates the handle. There must be none.
    Create(Handle),
    /// Deletes the handle. It must be the version that was read.
    Delete(Revision),
}

/// A change of an affinity.
#[derive(Clone, Debug)]
pub enum AffinityEdit {
    /// Sets the state, and on Kubernetes the labels. It must be the version that was read.
    State(Revision, AffinityState),
    /// Creates the affinity. There must be none.
    Create(Box<Affinity>),
    /// Deletes the affinity. It must be the version that was read.
    Delete(Revision),
}

/// A change of a pool. Blocks and affinities in it stay as they are.
#[derive(Clone, Debug)]
pub enum PoolEdit {
    /// Creates the pool. There must be none of that name.
    Create(Document),
    /// Disables the pool. Its `spec` must be what was read.
    Disable(Document),
    /// Enables the pool. Its `spec` must be what was read.
    Enable(Document),
    /// Deletes the pool. Its `spec` must be what was read, whatever controllers have noted in its status since. One with
    /// finalizers is not deleted: Calico would first release the affinities of all its blocks, and wait until these are
    /// gone.
    Delete(Document),
}

/// A change of the configuration of the allocator.
#[derive(Clone, Debug)]
pub enum ConfigEdit {
    /// Stores it. There must be none.
    Create(Document),
    /// Replaces it. It must be the version that was read.
    Replace(Revision, Document),
}

impl Edit {
    /// The object that it changes.
    pub fn key(&self) -> Key {
        match self {
            Self::Block(cidr, _) => Key::Block(*cidr),
            Self::Handle(id, _) => Key::Handle(id.clone()),
            Self::Affinity(key, _) => Key::Affinity(key.as_ref().clone()),
            Self::Pool(name, _) => Key::Pool(name.clone()),
            Self::IpamConfig(_) => Key::IpamConfig,
        }
    }
}
