//! etcd v3: read at one revision, written by transactions, followed revision by revision.

mod again;
mod allocate;
mod around;
mod changes;
pub(crate) mod client;
mod connection;
mod export;
mod follow;
mod names;
pub(crate) mod past;
mod whole;
mod write;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

pub(crate) use self::allocate::EtcdStore;
use self::client::EtcdClient;
pub(crate) use self::whole::observe_at;
use self::write::EtcdObjects;
use crate::allocation::Records;
use crate::backend::Backend;
use crate::budget::Budget;
use crate::error::Result;
use crate::feed::{Broken, Changes, Feed};
use crate::read::{Lookup, NameKind};
use crate::secret::redact_url;
use crate::write::Objects;

#[async_trait]
impl Backend for Arc<EtcdClient> {
    fn kind(&self) -> DatastoreKind {
        DatastoreKind::Etcd
    }

    fn location(&self) -> String {
        redact_url(self.endpoint())
    }

    fn request_count(&self) -> u64 {
        EtcdClient::request_count(self)
    }

    fn budget(&self) -> Option<&Budget> {
        Some(EtcdClient::budget(self))
    }

    async fn keeps_cooldown(&self) -> bool {
        true
    }

    fn revisions(&self) -> Option<&Arc<EtcdClient>> {
        Some(self)
    }

    async fn observe(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        observe_at(self, None, extent, progress).await
    }

    async fn lookup(&self, lookup: &Lookup) -> Result<Snapshot> {
        around::lookup(self, lookup).await
    }

    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Option<Snapshot>> {
        again::reread(self, keys).await.map(Some)
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

    async fn next_change(&self, after: i64) -> Result<()> {
        EtcdClient::next_change(self, &changes::range(), after).await
    }

    async fn follow(&self, progress: &ProgressFn) -> Result<(Snapshot, Box<dyn Feed>), Broken> {
        let (snapshot, feed) = follow::start(self, progress).await?;
        Ok((snapshot, Box::new(feed)))
    }

    fn objects(&self, alone: bool) -> Result<Arc<dyn Objects>> {
        Ok(Arc::new(EtcdObjects::new(self, alone)))
    }

    fn records(&self) -> Result<Box<dyn Records>> {
        Ok(Box::new(EtcdStore::new(Arc::clone(self))))
    }
}
