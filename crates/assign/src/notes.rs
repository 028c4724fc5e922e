//! Notes that the calls on a node leave for each other, so that the next call reads less or need not wait.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use calipam_model::parallel::lock;

use crate::family::Family;
use crate::full::FullBlocks;
use crate::recent::KnownState;

/// Storage that keeps notes for later calls on the same node. If the storage fails, the calls merely read more.
pub trait Notes: fmt::Debug + Send + Sync {
    /// Returns the full blocks that were last kept for a family.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks>;

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks);

    /// Forgets that a search found nothing. Called after addresses were released.
    fn forget_exhaustion(&self);

    /// Returns the state of the datastore that was last kept.
    fn known_state(&self) -> Option<KnownState>;

    fn keep_known_state(&self, state: &KnownState);
}

/// Notes in memory, for tests and simulations.
#[derive(Debug, Default)]
pub struct MemoryNotes {
    full_blocks: Mutex<HashMap<Family, FullBlocks>>,
    known_state: Mutex<Option<KnownState>>,
}

impl Notes for MemoryNotes {
    fn full_blocks(&self, family: Family) -> Option<FullBlocks> {
        lock(&self.full_blocks).get(&family).cloned()
    }

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks) {
        lock(&self.full_blocks).insert(family, full.clone());
    }

    fn forget_exhaustion(&self) {
        for full in lock(&self.full_blocks).values_mut() {
            full.exhausted_at = None;
        }
    }

    fn known_state(&self) -> Option<KnownState> {
        lock(&self.known_state).clone()
    }

    fn keep_known_state(&self, state: &KnownState) {
        *lock(&self.known_state) = Some(state.clone());
    }
}
