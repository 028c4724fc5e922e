//! Reads everything for a check.

pub(crate) mod etcd;
pub(crate) mod etcdv2;
pub(crate) mod kubernetes;

use calipam_files::raw::RawEntry;
use calipam_model::block::RecordDetail;
use calipam_model::snapshot::Snapshot;

use self::etcd::pull::Collector;
use crate::error::Result;

impl Collector for Snapshot {
    type Chunk = Self;

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        chunk.add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.absorb(chunk);
        Ok(())
    }
}

/// A snapshot whose blocks have [the records of borrowers](RecordDetail::Borrowers).
#[derive(Debug)]
pub(crate) struct Reduced(pub Snapshot);

impl Default for Reduced {
    fn default() -> Self {
        Self(Snapshot { records: RecordDetail::Borrowers, ..Snapshot::default() })
    }
}

impl From<Reduced> for Snapshot {
    fn from(Reduced(snapshot): Reduced) -> Self {
        snapshot
    }
}

impl Collector for Reduced {
    type Chunk = Self;

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        Snapshot::add(&mut chunk.0, entry);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.0.commit(chunk.0)
    }
}
