//! Exports etcd to a file, to which the entries of a whole read are written as they arrive.

use std::path::Path;
use std::sync::Arc;

use calipam_files::export::{Header, Lines, Writer};
use calipam_files::raw::RawEntry;
use calipam_files::recording::{Position, Positions};
use calipam_files::{Extent, ProgressFn};
use calipam_model::block::RecordDetail;
use calipam_model::snapshot::{Coverage, DatastoreKind, ETCD_SOURCES};

use crate::error::Result;
use crate::etcd::client::EtcdClient;
use crate::etcd::whole::pull::Collector;
use crate::etcd::whole::{Start, observe as observe_etcd};

impl Collector for Writer {
    type Chunk = Lines;

    fn chunk(_: RecordDetail) -> Lines {
        Lines::default()
    }

    fn add(chunk: &mut Lines, entry: RawEntry<'_>) {
        chunk.push(&entry);
    }

    fn commit(&mut self, chunk: Lines) -> Result<()> {
        Ok(self.lines(&chunk)?)
    }
}

/// Exports etcd at one revision. Returns the number of entries, and the position after which changes can be followed.
pub(crate) async fn export(
    client: &Arc<EtcdClient>,
    path: &Path,
    progress: &ProgressFn,
) -> Result<(u64, Positions)> {
    let collect = |start: &Start| {
        let revision = start.revision.to_string();
        let mut header = Header::new(DatastoreKind::Etcd, &start.endpoint, &revision, start.taken_at);
        header.guid = start.first.guid();
        header.coverage = ETCD_SOURCES
            .into_iter()
            .map(|source| (source, Coverage::Read))
            .collect();
        Ok(Writer::create(path, &header)?)
    };
    let read = observe_etcd(client, None, &Extent::Whole, collect, progress).await?;
    let positions = Positions::from([("etcd".to_owned(), Position::at(read.start.revision))]);
    Ok((read.collector.finish()?, positions))
}
