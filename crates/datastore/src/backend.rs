//! A kind of datastore, as everything above sees it: one folder or file for each kind implements these traits.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use crate::allocation::Records;
use crate::error::{Error, Result};
use crate::etcd::client::EtcdClient;
use crate::feed::{Changes, Feed, OrWholeRead, WholeReadReason};
use crate::kubernetes::client::KubeClient;
use crate::read::{Lookup, NameKind, names};
use crate::write::Objects;

/// Reads of one kind of datastore, and its abilities. The defaults are those of a datastore that cannot be written or
/// followed.
#[async_trait]
pub(crate) trait Backend: Debug + Send + Sync {
    fn kind(&self) -> DatastoreKind;

    /// The place without secrets.
    fn location(&self) -> String;

    fn request_count(&self) -> u64 {
        0
    }

    /// True if the data can change, so a second read may differ.
    fn is_live(&self) -> bool {
        true
    }

    /// True if the time of the data is known.
    fn has_known_time(&self) -> bool {
        true
    }

    /// True if the datastore keeps the time of an address's release, so that it can cool down.
    async fn keeps_cooldown(&self) -> bool {
        false
    }

    /// Returns an error for Calico 2.x data, for which `what` is not supported.
    fn require_calico_3(&self, _what: &'static str) -> Result<()> {
        Ok(())
    }

    /// The client, if the datastore keeps old revisions.
    fn revisions(&self) -> Option<&Arc<EtcdClient>> {
        None
    }

    /// The API server, if it is the datastore.
    fn kubernetes(&self) -> Option<&Arc<KubeClient>> {
        None
    }

    /// Reads the given extent, or more.
    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot>;

    /// Reads the data of one address or handle, or more.
    async fn lookup(&self, lookup: &Lookup) -> Result<Snapshot>;

    /// Reads some keys again. `None` if the data cannot change.
    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>>;

    /// Names of a kind that begin with `begin`: some of them, if there are many.
    async fn names(&self, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
        let snapshot = self.observe(&Extent::Whole, &calipam_files::quiet()).await?;
        Ok(names::in_snapshot(&snapshot, kind, begin))
    }

    /// Writes the data of a check to a file. Returns the number of entries, and the start of later changes if they can
    /// be followed.
    async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<(u64, Positions)>;

    /// Follows all changes after these positions.
    async fn changes_after(&self, _from: Positions) -> Result<Box<dyn Changes>> {
        Err(Error::NoRevisions { location: self.location() })
    }

    /// Waits until a Calico object is written after a revision; forever if that cannot be known.
    async fn next_change(&self, _after: i64) -> Result<()> {
        std::future::pending().await
    }

    /// Reads everything and starts to follow it, or returns the reason that it cannot be followed.
    async fn follow(&self, _progress: &ProgressFn) -> Result<OrWholeRead<(Snapshot, Box<dyn Feed>)>> {
        Ok(Err(WholeReadReason::NotForThisDatastore))
    }

    /// Opens the datastore for reads and writes of single objects. `alone` is true if no two batches may share a
    /// request, because other evidence is read just before each.
    fn objects(&self, _alone: bool) -> Result<Arc<dyn Objects>> {
        Err(Error::NotWritable { location: self.location() })
    }

    /// Opens the datastore for an allocator.
    fn records(&self) -> Result<Box<dyn Records>> {
        Err(Error::NotWritable { location: self.location() })
    }
}
