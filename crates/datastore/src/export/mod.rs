//! Exports the data that a check needs from a datastore to a file.

pub(crate) mod etcd;
pub(crate) mod kubernetes;

use std::path::Path;
use std::sync::Arc;

use calipam_files::archive::{Added, Adding};
use calipam_files::export::{Header, Writer, export_file};
use calipam_files::recording::Positions;
use calipam_files::{Progress, ProgressFn};

use crate::error::Result;
use crate::read::whole::etcdv2;
use crate::store::{Datastore, Pending, blocking};

impl Datastore {
    /// Writes the data that a check needs to a file, compressed if its name ends with `.zst`. The file appears when it
    /// is complete. Returns the number of entries.
    pub async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<u64> {
        Ok(self.export_and_locate(path, progress).await?.0)
    }

    /// Like [`Self::export`]; also returns the positions from which later changes can be
    /// [followed](Self::changes_after). They are empty if changes cannot be followed.
    pub fn export_and_locate<'a>(
        &'a self,
        path: &'a Path,
        progress: &'a ProgressFn,
    ) -> Pending<'a, Result<(u64, Positions)>> {
        Box::pin(async move {
            let path = path.to_owned();
            match self {
                Self::Etcd(client, _) => etcd::export(client, &path, progress).await,
                Self::EtcdV2(client, _) => {
                    let tree = etcdv2::read(client).await?;
                    let expected = tree.entries.len() as u64;
                    progress(Progress { read: expected, expected });
                    let header = Header::of_snapshot(&tree.snapshot(|_| true));
                    let mut writer = Writer::create(&path, &header)?;
                    tree.entries.iter().try_for_each(|kv| writer.entry(&kv.as_entry()))?;
                    Ok((writer.finish()?, Positions::new()))
                }
                Self::Kubernetes(client) => kubernetes::export(client, &path, progress).await,
                Self::File(file) => {
                    let (file, progress) = (file.clone(), Arc::clone(progress));
                    blocking(move || Ok((export_file(&file, &path, &progress)?, Positions::new()))).await
                }
            }
        })
    }

    /// Adds an export to an archive, and creates its folder if it is missing.
    pub async fn add_to_archive(&self, folder: &Path, progress: &ProgressFn) -> Result<Added> {
        let adding = Adding::begin(folder)?;
        let entries = self.export(&adding.path(), progress).await?;
        Ok(adding.finish(entries)?)
    }
}
