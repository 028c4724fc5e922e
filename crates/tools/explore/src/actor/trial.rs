//! Tests whether an ADD would find an address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_assign::plugin::Plugin;
use calipam_assign::{
    Allocator, Entry, Family, FullBlocks, MemoryNotes, Notes, Query, Store, StoreError, Swap,
};
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};

use super::Call;
use super::plugin::Alone;
use crate::world::{World, at_once};

/// A duration longer than the time for which a node remembers a search without a result.
const LATER: SignedDuration = SignedDuration::from_secs(6);

/// The datastore as it would be a few seconds later. It records whether a write is attempted, and refuses every write.
struct Trial<'w> {
    world: &'w World,
    is_written: AtomicBool,
}

impl Store for Trial<'_> {
    fn now(&self) -> Timestamp {
        let now = self.world.now();
        now.saturating_add(LATER).unwrap_or(now)
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.world.data().read(queries).await
    }

    async fn swap(&self, _: &Swap) -> Result<Revision, StoreError> {
        self.is_written.store(true, Ordering::Relaxed);
        Err(StoreError::Unavailable("this is a trial".into()))
    }
}

/// Returns true if an ADD a few seconds from now would write, given these notes of its node. An ADD writes once it has
/// found a free address, or room for a block.
pub(crate) fn would_assign(world: &World, call: &Call, notes: Option<&FullBlocks>) -> bool {
    let kept = MemoryNotes::default();
    notes.into_iter().for_each(|full| kept.keep_full_blocks(Family::V4, full));
    let trial = Trial { world, is_written: AtomicBool::new(false) };
    let allocator = Allocator::new(trial).with_notes(Arc::new(kept));
    drop(at_once(Plugin { allocator: &allocator, host: &Alone }.add(&call.to_add(world.now()))));
    allocator.store().is_written.load(Ordering::Relaxed)
}
