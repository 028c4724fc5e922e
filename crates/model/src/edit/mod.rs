//! Edits: what a repair changes, and under which guards. Plans are made of them; the executor carries them
//! out on the objects as they are then.
//!
//! [`apply`] makes edits in memory, for the executor as for the simulation of a plan.

mod apply;
mod block;
mod handle;

use ipnet::IpNet;

pub use self::apply::{Current, apply};
use crate::affinity::{Affinity, AffinityKey, AffinityState};
use crate::attributes::Attribute;
use crate::block::{Block, BlockOwner};
use crate::handle::Handle;
use crate::key::Key;
use crate::snapshot::Revision;

/// What has to be true of a key for a write to take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is stored there.
    Absent,
    /// What is stored there is this version.
    At(Revision),
}

/// Edits that belong together: all of them are made or, where a guard fails before the first, none.
#[derive(Clone, Debug)]
pub struct Step {
    /// Which finding justifies it, for people: `leaked-address 10.244.1.7`.
    pub reason: String,
    /// The edits, in the order in which a datastore without transactions makes them: the block before the
    /// handle when freeing, the handle before the block when claiming (facts 3.14).
    pub edits: Vec<Edit>,
    /// What else has to be true of the whole step when it is written: that the node which gives up its block
    /// is absent. What only some addresses rest on is in [`Held::evidence`].
    pub evidence: Vec<(Key, Expect)>,
}

/// A change of one object.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Of a block.
    Block(IpNet, BlockEdit),
    /// Of a handle, by its ID.
    Handle(String, HandleEdit),
    /// Of an affinity.
    Affinity(AffinityKey, AffinityEdit),
}

/// An allocated address as it was when the plan was made: the guard of its release or rewriting.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its place in the block.
    pub ordinal: u32,
    /// The whole owner record.
    pub record: Attribute,
    /// The per-ordinal sequence number.
    pub sequence: u64,
    /// What else has to be true for it to be released: that the endpoint which its record names is absent, that
    /// the node is the version that was read.
    pub evidence: Vec<(Key, Expect)>,
}

/// A change of a block.
#[derive(Clone, Debug)]
pub enum BlockEdit {
    /// Frees addresses. Each must be held as it was. Where one is not, or its evidence fails, the executor
    /// leaves out what its handle holds and frees the others. With a cooldown above 0 seconds they cool first. A
    /// block without owner that is empty then is deleted, as Calico does (facts 3.12).
    Release {
        /// The addresses.
        held: Vec<Held>,
        /// Seconds of cooldown that the cluster configures and its schema can hold, else 0.
        cooldown: i64,
    },
    /// Records addresses that are free. Each must still be free.
    Assign {
        /// Ordinals and their records.
        records: Vec<(u32, Attribute)>,
    },
    /// Gives an address another record. It must be held as it was.
    Record {
        /// As it was.
        held: Box<Held>,
        /// The new record.
        record: Box<Attribute>,
    },
    /// Gives the block another owner. The owner must be the one that it was.
    Owner {
        /// As it was.
        from: Option<BlockOwner>,
        /// The new one.
        to: Option<BlockOwner>,
    },
    /// Rewrites the block unchanged but for its sequence number, so that racing writers fail (facts 3.9).
    /// It must be the version that was read.
    Touch(Revision),
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
    /// Counts fewer addresses of a block, whatever else the handle counts; the last one deletes it (facts
    /// 3.8). A handle that counts fewer than that, or is not there, is left as it is.
    Decrement(IpNet, i64),
    /// Counts more addresses of a block; creates the handle where there is none.
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
    Create(Affinity),
    /// Deletes the affinity. It must be the version that was read.
    Delete(Revision),
}

impl Edit {
    /// The object that it changes.
    pub fn key(&self) -> Key {
        match self {
            Self::Block(cidr, _) => Key::Block(*cidr),
            Self::Handle(id, _) => Key::Handle(id.clone()),
            Self::Affinity(key, _) => Key::Affinity(key.clone()),
        }
    }
}
