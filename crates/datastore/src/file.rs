//! A data file: an export, an etcd snapshot, or Kubernetes objects. It is read as a whole and never written.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::recording::Positions;
use calipam_files::{DataFile, Extent, FileKind, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use crate::backend::Backend;
use crate::error::Result;
use crate::tasks::blocking;

#[async_trait]
impl Backend for DataFile {
    /// Returns etcd, since the actual kind is known only after the file has been read.
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::Etcd
    }

    fn location(&self) -> String {
        self.name()
    }

    fn is_live(&self) -> bool {
        false
    }

    /// True for exports. For other files, the newest time in the data is used, or else the file's modification time.
    fn has_known_time(&self) -> bool {
        DataFile::kind(self) == FileKind::Export
    }

    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        let file = self.clone();
        let extent = extent.clone();
        let progress = Arc::clone(progress);
        blocking(move || Ok(file.observe_extent(&extent, &progress)?)).await
    }

    async fn reread(&self, _keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        Ok(None)
    }

    async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<(u64, Positions)> {
        let file = self.clone();
        let path = path.to_owned();
        let progress = Arc::clone(progress);
        blocking(move || Ok((file.export(&path, &progress)?, Positions::new()))).await
    }
}
