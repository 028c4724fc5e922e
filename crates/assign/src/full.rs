//! The results of searches that find nothing, kept for the next one on the same node.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calipam_model::IpNet;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;
use jiff::{SignedDuration, Timestamp};

use crate::family::Family;

/// The time in which searches rely on an earlier one that found nothing. Addresses that others release in this time are
/// found after it.
const RECENT: SignedDuration = SignedDuration::from_secs(5);

/// Blocks of a family that had no address to assign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FullBlocks {
    /// A hash of the node, the pools, the reservations and the configuration. The blocks count for the same hash only.
    pub question: u64,
    /// The start of a search that read every block and found nothing.
    pub nothing_at: Option<Timestamp>,
    /// The blocks, each with the revision that was read. A block with another revision must be read again.
    pub blocks: HashMap<IpNet, String, FixedState>,
}

impl FullBlocks {
    /// True if nothing was found a moment ago. False if the clock went back.
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

/// A place to keep full blocks for later calls on the same node. If it fails, the datastore is only read again.
pub trait Notes: fmt::Debug + Send + Sync {
    /// The full blocks of a family that were kept last.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks>;

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks);

    /// Forgets that nothing was found, since addresses were released.
    fn forget_nothing(&self);
}

/// Notes in memory, for tests and simulations.
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
