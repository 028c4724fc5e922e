//! Exporting a datastore: the entries of a whole read go to the file as they come.

use std::path::Path;
use std::sync::Arc;

use calipam_model::config::ClusterInformation;
use calipam_model::snapshot::{Coverage, ETCD_SOURCES, Snapshot};

use super::{Header, Writer, write_line};
use crate::client::etcd::EtcdClient;
use crate::error::Result;
use crate::files::DataFile;
use crate::files::objects::is_exported;
use crate::raw::{RawEntry, is_read};
use crate::read::Extent;
use crate::read::whole::ProgressFn;
use crate::read::whole::etcd::pull::Collector;
use crate::read::whole::etcd::{Start, observe as observe_etcd};

/// Lines that are ready to be written, and their number.
#[derive(Default)]
pub(crate) struct Lines {
    text: Vec<u8>,
    entries: u64,
}

impl Collector for Writer {
    type Chunk = Lines;

    fn add(chunk: &mut Lines, entry: RawEntry<'_>) {
        write_line(&mut chunk.text, &entry);
        chunk.entries += 1;
    }

    fn commit(&mut self, chunk: Lines) -> Result<()> {
        self.lines(&chunk.text, chunk.entries)
    }
}

/// Exports etcd at one revision. Gives the number of entries.
pub(crate) async fn export(client: &Arc<EtcdClient>, path: &Path, progress: &ProgressFn) -> Result<u64> {
    let collect = |start: &Start| {
        let (revision, taken_at) = (start.revision.to_string(), start.taken_at.to_string());
        let mut header = Header::new("etcd", &start.endpoint, &revision, &taken_at);
        header.guid = guid(start);
        let coverage = ETCD_SOURCES.into_iter().map(|source| (source, Coverage::Read)).collect();
        Writer::create(path, &header.with_coverage(&coverage))
    };
    observe_etcd(client, None, &Extent::Whole, collect, progress).await?.collector.finish()
}

/// The GUID of the cluster, which the first answers hold.
fn guid(start: &Start) -> String {
    let mut guid = String::new();
    for entry in start.entries() {
        if entry.key.ends_with(b"/clusterinformations/default")
            && let Ok(information) = ClusterInformation::parse(entry.value)
        {
            guid = information.guid;
        }
    }
    guid
}

/// Exports what lies in a file: a snapshot of etcd becomes an export, an export is packed or unpacked.
pub(crate) fn export_file(file: &DataFile, path: &Path, progress: &ProgressFn) -> Result<u64> {
    let mut writer = Writer::create(path, &header(&file.observe(progress)?))?;
    let mut result = Ok(());
    file.entries(|entry| {
        if result.is_ok() && (is_read(entry.key) || is_exported(entry.key)) {
            result = writer.entry(entry);
        }
    })?;
    result?;
    writer.finish()
}

pub(crate) fn header(snapshot: &Snapshot) -> Header {
    let (kind, taken_at) = (snapshot.datastore.to_string(), snapshot.taken_at.to_string());
    let mut header = Header::new(&kind, &snapshot.location, &snapshot.revision, &taken_at);
    header.guid = snapshot.cluster.as_ref().map(|c| c.guid.clone()).unwrap_or_default();
    header.with_coverage(&snapshot.coverage)
}
