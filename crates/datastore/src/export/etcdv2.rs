//! Exports the datastore of Calico 2.x: its objects in the form of Calico 3.

use std::path::Path;
use std::sync::Arc;

use calipam_files::export::{Header, Writer};
use calipam_files::{Progress, ProgressFn};

use crate::client::etcdv2::EtcdV2Client;
use crate::error::Result;
use crate::read::whole::etcdv2::read;

/// Exports everything at one index. Returns the number of entries.
pub(crate) async fn export(client: &Arc<EtcdV2Client>, path: &Path, progress: &ProgressFn) -> Result<u64> {
    let tree = read(client).await?;
    let expected = tree.entries.len() as u64;
    progress(Progress { read: expected, expected });
    let mut writer = Writer::create(path, &Header::of_snapshot(&tree.snapshot(|_| true)))?;
    for kv in &tree.entries {
        writer.entry(&kv.as_entry())?;
    }
    Ok(writer.finish()?)
}
