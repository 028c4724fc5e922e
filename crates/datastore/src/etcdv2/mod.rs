//! Calico 2.x data on etcd v2 (docs/etcdv2.md): the paths of its objects, and their conversion.
//!
//! Data is converted to etcd v3 entries, as in Calico's own upgrade to 3.0, so one decoder serves both versions of
//! Calico. Keys below `/calico/ipam/v2` are the same in both.

pub(crate) mod client;
mod convert;
mod path;
mod whole;
mod write;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::export::{Header, Writer};
use calipam_files::recording::Positions;
use calipam_files::{Extent, Progress, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use self::client::EtcdV2Client;
use self::convert::convert;
use self::path::{CONFIG, POOLS, READY, path, sources};
use self::write::EtcdV2Objects;
use crate::backend::Backend;
use crate::budget::Budget;
use crate::error::Result;
use crate::write::Objects;

/// The parts of the tree that a whole read needs.
const PARTS: [&str; 5] = [path::IPAM, path::HOSTS, POOLS, CONFIG, READY];

#[async_trait]
impl Backend for Arc<EtcdV2Client> {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::EtcdV2
    }

    fn location(&self) -> String {
        self.endpoint()
    }

    fn request_count(&self) -> u64 {
        EtcdV2Client::request_count(self)
    }

    fn budget(&self) -> Option<&Budget> {
        Some(EtcdV2Client::budget(self))
    }

    /// Reads the whole tree.
    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        let mut snapshot = whole::observe(self, progress).await?;
        extent.mark_unwanted(&mut snapshot);
        Ok(snapshot)
    }

    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        whole::reread(self, keys).await.map(Some)
    }

    /// Writes everything into a file, and returns the number of its entries.
    async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<(u64, Positions)> {
        let tree = whole::read(self).await?;
        let expected = tree.entries.len() as u64;
        progress(Progress {
            read: expected,
            expected,
        });
        let header = Header::of_snapshot(&tree.snapshot(|_| true));
        let mut writer = Writer::create(path, &header)?;
        for entry in &tree.entries {
            writer.entry(&entry.as_entry())?;
        }
        Ok((writer.finish()?, Positions::new()))
    }

    fn objects(&self, _alone: bool) -> Result<Arc<dyn Objects>> {
        Ok(Arc::new(EtcdV2Objects::new(self)))
    }
}
