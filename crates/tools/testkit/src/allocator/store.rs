//! A worker's datastore: calipam's own datastore client, with a pause after each write.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::Result;
use calipam_assign::{Entry, Query, Record, Store, StoreError, Swap};
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::settings::Settings;
use calipam_datastore::write::Consent;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

use crate::cluster::rng::Rng;
use crate::datastore::{self, settings};
use crate::kube::Flavour;
use crate::servers::{Etcd, KubeApiserver};

/// The datastore of an allocator. An etcd has no authentication.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Etcd(&'a Etcd),
    /// An API server with Calico's kinds in one API group.
    Kubernetes(&'a KubeApiserver, Flavour),
    /// An etcd, and the API server with the pods of its cluster.
    EtcdAndKubernetes(&'a Etcd, &'a KubeApiserver),
}

impl Target<'_> {
    /// Connects to the datastore. Every worker has its own connection.
    pub(super) async fn connect(self) -> Result<AllocatorStore> {
        let consent = Consent::from_runtime("a test");
        Ok(AllocatorStore::connect(&self.settings(), Selecting::ByLabels, consent).await?)
    }

    fn settings(self) -> Settings {
        match self {
            Self::Etcd(etcd) | Self::EtcdAndKubernetes(etcd, _) => {
                settings(&datastore::etcd(etcd.endpoint()))
            }
            Self::Kubernetes(server, flavour) => {
                let mut settings = settings(&datastore::kubernetes(&server.kubeconfig()));
                settings.kubernetes.api_group = flavour.api_version();
                settings
            }
        }
    }
}

/// A datastore that pauses after each write, so that readers see the state between two writes.
pub(super) struct PausingStore {
    store: AllocatorStore,
    /// Random numbers for the lengths of the pauses.
    rng: RefCell<Rng>,
    /// Longest pause.
    pause: Duration,
    /// Number of writes that took effect.
    pub writes: Cell<u64>,
}

impl PausingStore {
    pub(super) fn new(store: AllocatorStore, rng: Rng, pause: Duration) -> Self {
        Self {
            store,
            rng: RefCell::new(rng),
            pause,
            writes: Cell::default(),
        }
    }
}

impl Store for PausingStore {
    fn now(&self) -> Timestamp {
        self.store.now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.store.read(queries).await
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let written = self.store.swap(swap).await;
        self.writes.update(|writes| writes + u64::from(written.is_ok()));
        let longest = self.pause.as_micros() as u64;
        if longest > 0 {
            let pause = self.rng.borrow_mut().below(longest);
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
        written
    }
}

/// Reads one record, if it exists.
pub(super) async fn find<T>(store: &impl Store, key: Key) -> Result<Option<T>, StoreError>
where
    Option<T>: From<Record>,
{
    let found = store.read(&[Query::Get(key)]).await?;
    Ok(found.into_iter().flatten().find_map(|entry| entry.record.into()))
}
