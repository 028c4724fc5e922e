//! A datastore that is open: etcd, a file, or memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use crate::error::{Error, Result};
use crate::etcd::EtcdClient;
use crate::observe::{
    DataFile, ETCD_SOURCES, Lookup, MemoryStore, Narrow, ProgressFn, SnapshotCollector, export_etcd,
    export_file, export_memory, lookup_etcd, observe_etcd, reread_etcd,
};
use crate::secret::redact_url;
use crate::settings::{Settings, Target};

/// A datastore that is open.
#[derive(Clone, Debug)]
pub enum Datastore {
    /// An etcd v3 server.
    Etcd(Arc<EtcdClient>),
    /// An export or an etcd snapshot.
    File(DataFile),
    /// Entries in memory.
    Memory(Arc<MemoryStore>),
}

impl Datastore {
    /// Opens what the settings name.
    ///
    /// # Errors
    /// Where it cannot be reached, or is of a kind that this build does not read.
    pub async fn open(settings: &Settings) -> Result<Self> {
        match &settings.target {
            Target::Etcd(etcd) => Ok(Self::Etcd(Arc::new(EtcdClient::connect(etcd).await?))),
            Target::Kubernetes => Err(Error::KubernetesNotRead),
            Target::File(path) => Ok(Self::File(DataFile::open(path)?)),
        }
    }

    /// Where it is, without secrets: an endpoint, or the path of a file.
    pub fn location(&self) -> String {
        match self {
            Self::Etcd(client) => redact_url(client.endpoint()),
            Self::File(file) => file.path().display().to_string(),
            Self::Memory(_) => "memory".to_owned(),
        }
    }

    /// True where it can change: what was read once can be read again later and differ.
    pub fn is_live(&self) -> bool {
        matches!(self, Self::Etcd(_))
    }

    /// Reads everything that a check needs, etcd at one revision.
    ///
    /// # Errors
    /// Where the datastore cannot be read. Objects that cannot be understood are no errors, but
    /// [`Defect`](calipam_model::snapshot::Defect)s.
    pub async fn observe(&self, progress: &ProgressFn) -> Result<Snapshot> {
        match self {
            Self::Etcd(client) => self.observe_etcd(client, progress).await,
            Self::File(file) => {
                let (file, progress) = (file.clone(), Arc::clone(progress));
                blocking(self.location(), move || file.observe(&progress)).await
            }
            Self::Memory(store) => Ok(store.observe()),
        }
    }

    async fn observe_etcd(&self, client: &Arc<EtcdClient>, progress: &ProgressFn) -> Result<Snapshot> {
        let start = |_, _, _: &[_]| Ok(SnapshotCollector::default());
        let observed = observe_etcd(client, start, progress).await?;
        let mut snapshot = observed.collector.snapshot;
        snapshot.datastore = DatastoreKind::Etcd;
        snapshot.location = self.location();
        snapshot.revision = observed.revision.to_string();
        snapshot.taken_at = observed.taken_at;
        snapshot.mark_read(ETCD_SOURCES);
        Ok(snapshot)
    }

    /// Reads what belongs to one address or handle. On etcd that is a few keys in two or three
    /// requests; a file is read whole.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub async fn lookup(&self, lookup: &Lookup) -> Result<Narrow> {
        if let Self::Etcd(client) = self {
            return lookup_etcd(client, lookup).await;
        }
        let quiet: ProgressFn = Arc::new(|_| {});
        Ok(Narrow { snapshot: self.observe(&quiet).await?, requests: 0 })
    }

    /// Reads some keys again, at one new revision. `None` where the datastore cannot change.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        match self {
            Self::Etcd(client) => reread_etcd(client, keys).await.map(Some),
            Self::File(_) | Self::Memory(_) => Ok(None),
        }
    }

    /// Writes what a check reads to a file, compressed where its name ends with `.zst`. The file appears
    /// when it is whole. Gives the number of entries.
    ///
    /// # Errors
    /// Where the datastore cannot be read or the file not be written.
    pub async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<u64> {
        let path = path.to_owned();
        match self {
            Self::Etcd(client) => export_etcd(client, &path, progress).await,
            Self::File(file) => {
                let (file, progress) = (file.clone(), Arc::clone(progress));
                blocking(self.location(), move || export_file(&file, &path, &progress)).await
            }
            Self::Memory(store) => export_memory(store, &path),
        }
    }
}

/// Runs what takes its time on a thread of its own.
async fn blocking<T: Send + 'static>(
    location: String,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|lost| Err(Error::file(location, std::io::Error::other(lost))))
}
