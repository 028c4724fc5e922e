//! The interface that all kinds of datastore have in common. Each kind implements it in a folder or file of its own.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn, quiet};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use crate::allocation::Records;
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::etcd::client::EtcdClient;
use crate::feed::{Broken, Changes, Feed, WholeReadReason};
use crate::kubernetes::client::KubeClient;
use crate::read::{Lookup, NameKind, names};
use crate::write::{Objects, not_writable};

/// The reads and abilities of one kind of datastore. The default methods suit a datastore that cannot be written or
/// followed.
#[async_trait]
pub(crate) trait Backend: Debug + Send + Sync {
    fn kind(&self) -> DatastoreKind;

    /// The location of the data, without secrets.
    fn location(&self) -> String;

    fn request_count(&self) -> u64 {
        0
    }

    /// The time that a run may wait for the server; `None` for a file.
    fn budget(&self) -> Option<&Budget> {
        None
    }

    /// True if the data can change, so a second read may differ.
    fn is_live(&self) -> bool {
        true
    }

    /// True if the time of the data is known.
    fn has_known_time(&self) -> bool {
        true
    }

    /// True if the datastore records when an address was released, so that the address can cool down.
    async fn keeps_cooldown(&self) -> bool {
        false
    }

    /// The etcd client, if the datastore keeps old revisions.
    fn revisions(&self) -> Option<&Arc<EtcdClient>> {
        None
    }

    /// The API server, if it is the datastore.
    fn kubernetes(&self) -> Option<&Arc<KubeClient>> {
        None
    }

    /// Reads the given extent, or more.
    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot>;

    /// Reads the data of one address or handle, or more: by default, everything.
    async fn lookup(&self, _lookup: &Lookup) -> Result<Snapshot> {
        self.observe(&Extent::Whole, &quiet()).await
    }

    /// Reads the given keys again. `None` if the data cannot change.
    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>>;

    /// The names of a kind that begin with `begin`, or only some of them if there are many.
    async fn names(&self, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
        let snapshot = self.observe(&Extent::Whole, &quiet()).await?;
        Ok(names::page::select_few(names::all(&snapshot, kind), begin))
    }

    /// Writes the data that a check needs to a file. Returns the number of entries, and the positions after which
    /// changes can be followed; no positions if the datastore cannot be followed.
    async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<(u64, Positions)>;

    /// Follows all changes after the given positions.
    async fn changes_after(&self, _from: Positions) -> Result<Box<dyn Changes>> {
        Err(Error::NoRevisions {
            location: self.location(),
        })
    }

    /// Waits until a Calico object is written after the given revision. Never returns if the datastore cannot report
    /// that.
    async fn next_change(&self, _after: i64) -> Result<()> {
        std::future::pending().await
    }

    /// Reads everything and starts to follow it.
    ///
    /// # Errors
    /// If the datastore cannot be read or followed.
    async fn follow(&self, _progress: &ProgressFn) -> Result<(Snapshot, Box<dyn Feed>), Broken> {
        Err(WholeReadReason::NotForThisDatastore.into())
    }

    /// Opens the datastore for reads and writes of single objects. `alone` is true if no two batches may share a
    /// request, because evidence in Kubernetes is read just before each batch.
    fn objects(&self, _alone: bool) -> Result<Arc<dyn Objects>> {
        Err(not_writable(&self.location()))
    }

    /// Opens the datastore for an allocator.
    fn records(&self) -> Result<Box<dyn Records>> {
        Err(not_writable(&self.location()))
    }
}
