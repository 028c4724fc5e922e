//! Datastores that are read and written object by object, again if a connection broke.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use calipam_model::key::Key;
use tokio::sync::OnceCell;

use super::etcd::shared_transactions::SharedTransactions;
use super::{Batch, Stored, Swap, etcdv2, kubernetes};
use crate::client::etcd::EtcdClient;
use crate::client::etcdv2::EtcdV2Client;
use crate::client::kubernetes::KubeClient;
use crate::error::{Error, Result};
use crate::store::Datastore;

/// The pauses before a read is sent again that failed for a reason that passes.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)];

#[derive(Clone, Debug)]
pub(super) enum Backend {
    /// etcd, and how requests to it are made.
    Etcd(Arc<Connection>, Arc<SharedTransactions>),
    /// etcd, the API server of its cluster for evidence that is there, and what was made of handles.
    EtcdV2(Arc<EtcdV2Client>, Option<Arc<KubeClient>>, Arc<etcdv2::OwnHandles>),
    /// And whether affinities get labels; empty before the first is written.
    Kubernetes(Arc<KubeClient>, Arc<OnceCell<bool>>),
}

impl Backend {
    pub(super) fn new(datastore: &Datastore) -> Result<Self> {
        match datastore {
            Datastore::Etcd(client) => Ok(Self::Etcd(Connection::new(client), SharedTransactions::new(None))),
            Datastore::EtcdAndKubernetes(client, kube) => {
                Ok(Self::Etcd(Connection::new(client), SharedTransactions::new(Some(Arc::clone(kube)))))
            }
            Datastore::Kubernetes(client) => Ok(Self::Kubernetes(Arc::clone(client), Arc::default())),
            Datastore::EtcdV2(client, kube) => {
                Ok(Self::EtcdV2(Arc::clone(client), kube.clone(), Arc::default()))
            }
            Datastore::File(_) => Err(Error::NotWritable { location: datastore.location() }),
        }
    }

    /// Reads objects; if that fails for a reason that passes, again after a pause, and from any endpoint of etcd.
    pub(super) async fn read(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pauses = PAUSES.into_iter();
        loop {
            let (result, client) = match self {
                Self::Etcd(connection, transactions) => {
                    let client = connection.current();
                    (transactions.read(&client, keys).await, Some(client))
                }
                // It asks another member by itself.
                Self::EtcdV2(client, kube, own) => {
                    (etcdv2::read(client, kube.as_ref(), own, keys).await, None)
                }
                Self::Kubernetes(client, _) => (kubernetes::read(client, keys).await, None),
            };
            match result {
                Err(error) if error.may_pass() => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tokio::time::sleep(pause).await;
                    self.replace(client).await;
                }
                other => return other,
            }
        }
    }

    /// Makes the changes of a batch, and never a second time: an error leaves open whether they were made.
    pub(super) async fn commit(&self, batch: &Batch) -> Result<Swap> {
        match self {
            Self::Etcd(connection, transactions) => {
                let client = connection.current();
                let result = transactions.commit(&client, batch).await;
                if result.as_ref().is_err_and(Error::may_pass) {
                    self.replace(Some(client)).await;
                }
                result
            }
            Self::EtcdV2(client, kube, own) => etcdv2::commit(client, kube.as_ref(), own, batch).await,
            Self::Kubernetes(client, labels) => kubernetes::commit(client, labels, batch).await,
        }
    }

    /// Connects to whichever endpoint of etcd answers, after `broken` failed. If none does, the next request says so.
    async fn replace(&self, broken: Option<Arc<EtcdClient>>) {
        if let (Self::Etcd(connection, _), Some(broken)) = (self, broken) {
            connection.replace(&broken).await.ok();
        }
    }
}

/// A connection to etcd that can be replaced while others use it.
#[derive(Debug)]
pub(crate) struct Connection {
    current: Mutex<Arc<EtcdClient>>,
    /// Held by the one who connects again; all whose requests broke wait for it.
    connecting: tokio::sync::Mutex<()>,
}

impl Connection {
    pub(crate) fn new(client: &Arc<EtcdClient>) -> Arc<Self> {
        Arc::new(Self { current: Mutex::new(Arc::clone(client)), connecting: tokio::sync::Mutex::default() })
    }

    pub(crate) fn current(&self) -> Arc<EtcdClient> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Connects again if `broken` is still the connection.
    pub(crate) async fn replace(&self, broken: &Arc<EtcdClient>) -> Result<()> {
        let _one = self.connecting.lock().await;
        if Arc::ptr_eq(&self.current(), broken) {
            let client = broken.again().await?;
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
        Ok(())
    }
}
