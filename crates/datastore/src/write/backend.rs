//! Reads and writes of objects in each kind of datastore, and connections to etcd that are replaced after they break.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_model::key::Key;
use calipam_model::parallel::lock;
use tokio::sync::OnceCell;

use super::etcd::shared_transactions::SharedTransactions;
use super::{Batch, Stored, Swap, etcdv2, kubernetes};
use crate::client::etcd::EtcdClient;
use crate::client::etcdv2::EtcdV2Client;
use crate::client::kubernetes::KubeClient;
use crate::error::{Error, Result};
use crate::read::with_kubernetes::is_in_kubernetes;
use crate::store::Datastore;

/// The pauses before a read is retried after a temporary failure.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)];

/// A datastore, and the API server that is used in addition to etcd, if any. Its pods and services can be evidence.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub store: Store,
    beside: Option<Arc<KubeClient>>,
}

#[derive(Clone, Debug)]
pub(super) enum Store {
    /// etcd, with shared transactions.
    Etcd(Arc<Connection>, Arc<SharedTransactions>),
    /// etcd v2, with the handles that this writer has written.
    EtcdV2(Arc<EtcdV2Client>, Arc<etcdv2::OwnHandles>),
    /// Kubernetes, and a flag that is true if affinities get labels. It is unset until an affinity is written.
    Kubernetes(Arc<KubeClient>, Arc<OnceCell<bool>>),
}

impl Backend {
    pub(super) fn new(datastore: &Datastore) -> Result<Self> {
        let beside = datastore.beside().cloned();
        let store = match datastore {
            Datastore::Etcd(client, _) => {
                Store::Etcd(Connection::new(client), SharedTransactions::new(beside.is_some()))
            }
            Datastore::EtcdV2(client, _) => Store::EtcdV2(Arc::clone(client), Arc::default()),
            Datastore::Kubernetes(client) => Store::Kubernetes(Arc::clone(client), Arc::default()),
            Datastore::File(_) => return Err(Error::NotWritable { location: datastore.location() }),
        };
        Ok(Self { store, beside })
    }

    /// Reads objects. Retries temporary failures after a pause, at any etcd endpoint.
    pub(super) async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pauses = PAUSES.into_iter();
        loop {
            let etcd = match &self.store {
                Store::Etcd(connection, _) => Some((connection, connection.current())),
                _ => None,
            };
            match self.read_once(keys).await {
                Err(error) if error.may_pass() => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tokio::time::sleep(pause).await;
                    if let Some((connection, broken)) = etcd {
                        connection.replace(&broken).await.ok();
                    }
                }
                other => return other,
            }
        }
    }

    /// Reads pods and services from Kubernetes, and all other objects from the store.
    async fn read_once(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        let Some(kubernetes) = &self.beside else { return self.store.read(keys).await };
        let (beside, own): (Vec<Key>, Vec<Key>) = keys.iter().cloned().partition(is_in_kubernetes);
        let mut own = self.store.read(&own).await?.into_iter();
        let mut beside = kubernetes::read(kubernetes, &beside).await?.into_iter();
        let next = |key: &Key| if is_in_kubernetes(key) { beside.next() } else { own.next() };
        Ok(keys.iter().map(next).map(Option::flatten).collect())
    }

    /// Makes the changes of a batch, without retries: after an error, they may have been made. If Kubernetes is used in
    /// addition to etcd, evidence there is read just before.
    pub(super) async fn commit(&self, batch: &Batch) -> Result<Swap> {
        if batch.changes.is_empty() {
            return Ok(Swap::Done(Vec::new()));
        }
        let Some(kubernetes) = &self.beside else { return self.store.commit(batch).await };
        let (beside, evidence): (Vec<_>, Vec<_>) =
            batch.evidence.iter().cloned().partition(|(key, _)| is_in_kubernetes(key));
        if beside.is_empty() {
            return self.store.commit(batch).await;
        }
        if !kubernetes::holds(kubernetes, &beside).await? {
            return Ok(Swap::Conflict);
        }
        self.store.commit(&Batch { changes: batch.changes.clone(), evidence }).await
    }
}

impl Store {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        match self {
            Self::Etcd(connection, transactions) => transactions.read(&connection.current(), keys).await,
            // This client switches members by itself.
            Self::EtcdV2(client, own) => etcdv2::read(client, own, keys).await,
            Self::Kubernetes(client, _) => kubernetes::read(client, keys).await,
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Swap> {
        match self {
            Self::Etcd(connection, transactions) => {
                connection.ask(|client| async move { transactions.commit(&client, batch).await }).await
            }
            Self::EtcdV2(client, own) => etcdv2::commit(client, own, batch).await,
            Self::Kubernetes(client, labels) => kubernetes::commit(client, labels, batch).await,
        }
    }
}

/// A connection to etcd that can be replaced while other tasks use it.
#[derive(Debug)]
pub(crate) struct Connection {
    current: Mutex<Arc<EtcdClient>>,
    /// Locked while one task connects again. Other tasks whose requests have failed wait for that task.
    connecting: tokio::sync::Mutex<()>,
}

impl Connection {
    pub(crate) fn new(client: &Arc<EtcdClient>) -> Arc<Self> {
        Arc::new(Self { current: Mutex::new(Arc::clone(client)), connecting: tokio::sync::Mutex::default() })
    }

    pub(crate) fn current(&self) -> Arc<EtcdClient> {
        Arc::clone(&lock(&self.current))
    }

    /// Sends a request. If it fails temporarily, connects to any endpoint that answers, for the next request.
    pub(crate) async fn ask<T, F: Future<Output = Result<T>>>(
        &self,
        request: impl FnOnce(Arc<EtcdClient>) -> F,
    ) -> Result<T> {
        let client = self.current();
        let result = request(Arc::clone(&client)).await;
        if result.as_ref().is_err_and(Error::may_pass) {
            self.replace(&client).await.ok();
        }
        result
    }

    /// Connects again, unless `broken` was replaced already.
    pub(crate) async fn replace(&self, broken: &Arc<EtcdClient>) -> Result<()> {
        let _one = self.connecting.lock().await;
        if Arc::ptr_eq(&self.current(), broken) {
            let client = broken.again().await?;
            *lock(&self.current) = client;
        }
        Ok(())
    }
}
