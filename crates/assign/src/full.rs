//! What a search that finds nothing learns, for the next one on the same node.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calipam_model::IpNet;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;
use jiff::{SignedDuration, Timestamp};

use crate::family::Family;

/// How long the next search takes it for true that there was nothing. An address that others release in this time is found
/// after it.
const RECENT: SignedDuration = SignedDuration::from_secs(5);

/// Blocks of a family that had no address to give out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullBlocks {
    /// What was asked: the node, the pools, the reservations, the configuration. Another question may have another answer.
    pub question: u64,
    /// When a search began that read every block and found nothing.
    pub nothing_at: Option<Timestamp>,
    /// The blocks by the revision at which they were read: one that has another by now has to be read again.
    pub blocks: HashMap<IpNet, String, FixedState>,
}

impl FullBlocks {
    /// True if there was nothing a moment ago. False as well where the clock went back.
    pub(crate) fn was_nothing(&self, now: Timestamp) -> bool {
        self.nothing_at.is_some_and(|then| {
            let age = now.duration_since(then);
            !age.is_negative() && age <= RECENT
        })
    }

    /// True if a block was full at this revision.
    pub(crate) fn has(&self, cidr: IpNet, revision: &Revision) -> bool {
        self.blocks.get(&cidr).is_some_and(|known| !known.is_empty() && *known == revision.to_string())
    }
}

/// Where an allocator leaves for later calls on the same node what it has learned. What cannot be kept or read is only read
/// again from the datastore.
pub trait Notes: fmt::Debug + Send + Sync {
    /// What was kept last about a family.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks>;

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks);

    /// Addresses were released: that there was nothing is not true any more.
    fn forget_nothing(&self);
}

/// Notes of a node that only lives in memory, for tests and simulations.
#[derive(Debug, Default)]
pub struct MemoryNotes(Mutex<HashMap<Family, FullBlocks>>);

impl MemoryNotes {
    fn kept(&self) -> MutexGuard<'_, HashMap<Family, FullBlocks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes for MemoryNotes {
    fn full_blocks(&self, family: Family) -> Option<FullBlocks> {
        self.kept().get(&family).cloned()
    }

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks) {
        self.kept().insert(family, full.clone());
    }

    fn forget_nothing(&self) {
        self.kept().values_mut().for_each(|full| full.nothing_at = None);
    }
}
