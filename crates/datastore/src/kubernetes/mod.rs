//! The Kubernetes datastore. Objects are listed, watched, and written one by one through the cluster's API server.

mod again;
mod allocate;
mod around;
mod changes;
pub(crate) mod client;
mod export;
mod follow;
mod names;
pub(crate) mod namespaces;
mod objects;
pub mod plugin;
mod whole;
pub mod workloads;
mod write;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

pub(crate) use self::again::reread;
pub(crate) use self::allocate::KubeStore;
pub(crate) use self::around::add_users;
pub(crate) use self::changes::positions;
use self::client::{KubeClient, schema, watch};
pub(crate) use self::follow::{Clock, KubeFeed, require_proof};
pub(crate) use self::whole::list::{Counter, Listed};
pub(crate) use self::whole::order::{Lists, lists};
pub(crate) use self::whole::{no_kubevirt, require};
use self::write::KubeObjects;
pub(crate) use self::write::{holds, read};
use crate::allocation::{Records, Selecting};
use crate::backend::Backend;
use crate::budget::Budget;
use crate::error::Result;
use crate::feed::{Broken, Changes, Feed};
use crate::read::{Lookup, NameKind};
use crate::write::Objects;

#[async_trait]
impl Backend for Arc<KubeClient> {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::Kubernetes
    }

    fn location(&self) -> String {
        self.server().to_owned()
    }

    fn request_count(&self) -> u64 {
        KubeClient::request_count(self)
    }

    fn budget(&self) -> Option<&Budget> {
        Some(KubeClient::budget(self))
    }

    fn kubernetes(&self) -> Option<&Arc<KubeClient>> {
        Some(self)
    }

    /// True if the installed schema of blocks has a field for the release time. Without it, the API server would drop
    /// the time and leave an anonymous allocation that never ends (facts 2.10). False if the schema cannot be read.
    async fn keeps_cooldown(&self) -> bool {
        schema::keeps_cooldown(self).await
    }

    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        whole::observe(self, extent, progress).await
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Snapshot> {
        around::lookup(self, lookup).await
    }

    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        reread(self, keys).await.map(Some)
    }

    async fn names(&self, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
        names::names(self, kind, begin).await
    }

    async fn export(&self, path: &Path, progress: &ProgressFn) -> Result<(u64, Positions)> {
        export::export(self, path, progress).await
    }

    async fn changes_after(&self, from: Positions) -> Result<Box<dyn Changes>> {
        changes::begin(self, from).await
    }

    /// Waits for a change to a block.
    async fn next_change(&self, after: i64) -> Result<()> {
        let reported = watch::next_change(self, after.cast_unsigned()).await;
        reported.map_err(|failure| self.error("changes of blocks", failure))
    }

    async fn follow(&self, progress: &ProgressFn) -> Result<(Snapshot, Box<dyn Feed>), Broken> {
        let (snapshot, feed) = follow::start(self, progress).await?;
        Ok((snapshot, Box::new(feed)))
    }

    fn objects(&self, _alone: bool) -> Result<Arc<dyn Objects>> {
        Ok(Arc::new(KubeObjects::new(self)))
    }

    fn records(&self) -> Result<Box<dyn Records>> {
        Ok(Box::new(KubeStore::new(Arc::clone(self), Selecting::All)))
    }
}
