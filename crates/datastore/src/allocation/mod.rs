//! An allocator's datastore ([`calipam_assign::Store`]): etcd, or Kubernetes in either API group.
//!
//! Designed for a process that runs for one allocation: it connects without discovery, sends independent reads in one
//! round trip, and replaces objects on Kubernetes without reading them again.

pub(crate) mod spans;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use calipam_assign::{Entry, KnownState, ListsSince, Query, Record, Store, StoreError, Swap};
use calipam_model::IpNet;
use calipam_model::config::{ClusterInformation, IpamConfig};
use calipam_model::key::Key;
use calipam_model::parallel::lock;
use calipam_model::snapshot::{Revision, Snapshot};
use jiff::Timestamp;

use crate::error::Error;
use crate::kubernetes::client::KubeClient;
use crate::write::Consent;

/// The way to find a node's affinities on Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selecting {
    /// By the affinities' labels, like Calico 3.31 and later. Affinities without labels are not found.
    ByLabels,
    /// By listing all affinities in the cluster.
    All,
}

/// An allocator's access to the records in one kind of datastore.
#[async_trait]
pub(crate) trait Records: Debug + Send + Sync {
    fn request_count(&self) -> u64;

    /// The client, if the datastore is Kubernetes.
    fn kubernetes(&self) -> Option<Arc<KubeClient>> {
        None
    }

    /// See [`Store::read`]. Retries temporary failures after short pauses.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError>;

    /// See [`Store::read_since`].
    async fn read_since(
        &self,
        queries: &[Query],
        _known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        Ok(ListsSince {
            answers: self.read(queries).await?,
            state: None,
        })
    }

    /// Reads objects, which need not be an allocator's. The result omits missing objects.
    async fn reread(&self, keys: &BTreeSet<Key>) -> Result<Snapshot, Error>;

    /// See [`Store::swap`].
    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError>;

    /// Adds to a node's affinities the labels by which Calico 3.31 and later finds them (facts 2.5). Returns the number
    /// of affinities that it has labeled.
    async fn label_affinities(&self, _node: &str) -> Result<usize, StoreError> {
        Ok(0)
    }
}

/// A datastore that an allocator reads, and writes by compare-and-swap.
#[derive(Debug)]
pub struct AllocatorStore {
    records: Box<dyn Records>,
    changed: Mutex<BTreeSet<IpNet>>,
    _consent: Consent,
}

impl AllocatorStore {
    pub(crate) fn new(records: Box<dyn Records>, consent: Consent) -> Self {
        Self {
            records,
            changed: Mutex::default(),
            _consent: consent,
        }
    }

    /// The client, if the datastore is Kubernetes.
    pub fn kubernetes(&self) -> Option<Arc<KubeClient>> {
        self.records.kubernetes()
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        self.records.request_count()
    }

    /// The blocks that were created, changed or deleted.
    pub fn changed_blocks(&self) -> Vec<IpNet> {
        lock(&self.changed).iter().copied().collect()
    }

    /// True if the resource IPAMConfiguration lets virtual machines keep their addresses after their pods end, or if
    /// there is no such resource. On etcd, the allocator's own configuration is a different object.
    pub async fn keeps_machine_addresses(&self) -> Result<bool, StoreError> {
        let key = match self.kubernetes() {
            Some(_) => Key::IpamConfig,
            None => Key::ipam_configuration(),
        };
        let answers = self.read(&[Query::Get(key)]).await?;
        for entry in answers.into_iter().flatten() {
            if let Some(config) = Option::<IpamConfig>::from(entry.record) {
                return Ok(config.keeps_addresses_of_machines());
            }
        }
        Ok(true)
    }

    /// The cluster's resource ClusterInformation, with the version of Calico; `None` if there is none.
    pub async fn cluster_information(&self) -> Result<Option<ClusterInformation>, Error> {
        let key = Key::cluster_information();
        Ok(self.records.reread(&[key].into()).await?.cluster)
    }

    /// Adds to a node's affinities the labels by which Calico 3.31 and later finds them (facts 2.5). Does nothing on
    /// etcd. Returns the number of affinities that it has labeled.
    pub async fn label_affinities(&self, node: &str) -> Result<usize, StoreError> {
        self.records.label_affinities(node).await
    }
}

impl Store for AllocatorStore {
    fn now(&self) -> Timestamp {
        crate::clock::now()
    }

    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        self.records.read(queries).await
    }

    async fn read_since(
        &self,
        queries: &[Query],
        known: Option<&KnownState>,
    ) -> Result<ListsSince, StoreError> {
        self.records.read_since(queries, known).await
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let revision = self.records.swap(swap).await?;
        if let Record::Block(block) = &swap.record {
            lock(&self.changed).insert(block.cidr());
        }
        Ok(revision)
    }
}

pub(crate) fn unavailable(error: Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
