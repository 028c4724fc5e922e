//! The full blocks that a search found, kept for the next search on the same node.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use calipam_model::IpNet;
use calipam_model::parallel::lock;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::family::Family;

/// The time for which a search relies on inputs that were read ahead, and on an earlier search that found nothing.
/// Addresses that other nodes release meanwhile are found only later. Calico also misses changes to pools or
/// reservations that are made just after an assignment begins.
const RECENT: SignedDuration = SignedDuration::from_secs(5);

/// True if `then` is at most [`RECENT`] before `now`. False if the clock has been set back.
pub(crate) fn is_recent(then: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(then);
    !age.is_negative() && age <= RECENT
}

/// One family's blocks that had no address to assign. This is also the format of the plugin's notes (`notes.rs` of
/// calipam-cni): a change here needs a new `FORMAT` there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullBlocks {
    /// A hash of the node, the pools, the reservations and the configuration. The blocks may be skipped only by
    /// searches with the same hash.
    pub inputs_hash: u64,
    /// The start of a search that found no further address in any block.
    pub exhausted_at: Option<Timestamp>,
    /// The blocks, each with the revision at which it was read. If a block has another revision now, it must be read
    /// again.
    pub blocks: HashMap<IpNet, String, FixedState>,
}

impl FullBlocks {
    /// True if a recent search found nothing.
    pub(crate) fn was_exhausted(&self, now: Timestamp) -> bool {
        self.exhausted_at.is_some_and(|then| is_recent(then, now))
    }

    /// True if a block was full at this revision.
    pub(crate) fn has(&self, cidr: IpNet, revision: &Revision) -> bool {
        self.blocks
            .get(&cidr)
            .is_some_and(|known| !known.is_empty() && *known == revision.to_string())
    }
}

/// Storage that keeps full blocks for later calls on the same node. If the storage fails, the blocks are merely read
/// again.
pub trait Notes: fmt::Debug + Send + Sync {
    /// Returns the full blocks that were last kept for a family.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks>;

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks);

    /// Forgets that a search found nothing. Called after addresses were released.
    fn forget_exhaustion(&self);
}

/// Notes in memory, for tests and simulations.
#[derive(Debug, Default)]
pub struct MemoryNotes(Mutex<HashMap<Family, FullBlocks>>);

impl Notes for MemoryNotes {
    fn full_blocks(&self, family: Family) -> Option<FullBlocks> {
        lock(&self.0).get(&family).cloned()
    }

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks) {
        lock(&self.0).insert(family, full.clone());
    }

    fn forget_exhaustion(&self) {
        for full in lock(&self.0).values_mut() {
            full.exhausted_at = None;
        }
    }
}
