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

    fn chunk(records: RecordDetail) -> Self {
        Self { records, ..Self::default() }
    }

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        chunk.add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.absorb(chunk);
        Ok(())
    }
}
