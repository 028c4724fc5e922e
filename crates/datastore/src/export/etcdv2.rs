//! Exporting a Calico 2.x datastore: its objects in the form of Calico 3.

use std::path::Path;
use std::sync::Arc;

use super::Writer;
use super::etcd::header;
use crate::client::etcdv2::EtcdV2Client;
use crate::error::Result;
use crate::read::whole::etcdv2::read;
use crate::read::whole::{Progress, ProgressFn};

/// Exports everything at one index. Gives the number of entries.
pub(crate) async fn export(client: &Arc<EtcdV2Client>, path: &Path, progress: &ProgressFn) -> Result<u64> {
    let tree = read(client).await?;
    let expected = tree.entries.len() as u64;
    progress(Progress { read: expected, expected });
    let mut writer = Writer::create(path, &header(&tree.snapshot(|_| true)))?;
    for kv in &tree.entries {
        writer.entry(&kv.as_entry())?;
    }
    writer.finish()
}
