//! Reading everything that a check needs.

pub(crate) mod etcd;
pub(crate) mod etcdv2;
pub(crate) mod kubernetes;

use std::sync::Arc;

use calipam_model::snapshot::Snapshot;

use self::etcd::pull::Collector;
use crate::error::Result;
use crate::raw::RawEntry;

/// How far a read has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects read so far.
    pub read: u64,
    /// Objects that are expected in all, as far as is known; 0 where nothing is.
    pub expected: u64,
}

/// Takes the progress of a read; called from several threads.
pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

/// Gathers a [`Snapshot`].
#[derive(Debug, Default)]
pub(crate) struct SnapshotCollector {
    pub snapshot: Snapshot,
}

impl Collector for SnapshotCollector {
    type Chunk = Snapshot;

    fn add(chunk: &mut Snapshot, entry: RawEntry<'_>) {
        chunk.add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Snapshot) -> Result<()> {
        self.snapshot.absorb(chunk);
        Ok(())
    }
}
