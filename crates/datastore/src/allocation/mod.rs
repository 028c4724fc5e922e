//! The datastore of an allocator ([`calipam_assign::Store`]): etcd, or Kubernetes in either API group.
//!
//! Designed for a process that runs for one allocation: it connects without discovery, sends independent reads in one
//! round trip, and replaces objects on Kubernetes without reading them again.

mod etcd;
mod kubernetes;
mod spans;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_assign::{Entry, Query, Record, Store, StoreError, Swap};
use calipam_model::IpNet;
use calipam_model::config::IpamConfig;
use calipam_model::key::{DEFAULT, Key};
use calipam_model::parallel::lock;
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

use self::etcd::EtcdStore;
use self::kubernetes::KubeStore;
pub use self::kubernetes::Selecting;
use crate::client::etcd::EtcdClient;
use crate::client::kubernetes::KubeClient;
use crate::error::{Error, Result};
use crate::secret::redact_url;
use crate::settings::{Settings, Target};
use crate::store::{Datastore, Pending};
use crate::write::Consent;

/// A datastore that an allocator reads, and writes by compare-and-swap.
#[derive(Debug)]
pub struct AllocatorStore {
    backend: Backend,
    changed: Mutex<BTreeSet<IpNet>>,
    _consent: Consent,
}

#[derive(Debug)]
enum Backend {
    Etcd(EtcdStore),
    Kubernetes(KubeStore),
}

/// The pauses before a read is retried after a temporary failure. They are short, because the container runtime waits.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The action that is not supported on Calico 2.x data, for errors.
const ASSIGN: &str = "assign or release single addresses";

impl AllocatorStore {
    /// Connects without discovery: only the first read shows if a single etcd endpoint or the API server answers, and
    /// which API group the cluster has. `selecting` is the way to find affinities on Kubernetes.
    pub fn connect<'a>(
        settings: &'a Settings,
        selecting: Selecting,
        consent: Consent,
    ) -> Pending<'a, Result<Self>> {
        Box::pin(async move {
            let backend = match &settings.target {
                Target::Etcd(etcd) => {
                    // The first request shows if a single endpoint answers.
                    let probe = etcd.endpoints.len() > 1;
                    Backend::Etcd(EtcdStore::new(EtcdClient::connect_first(etcd, probe).await?.into()))
                }
                Target::EtcdV2(etcd) => {
                    let location = etcd.endpoints.first().map(|url| redact_url(url)).unwrap_or_default();
                    return Err(Error::NotForCalico2 { location, what: ASSIGN });
                }
                Target::Kubernetes => {
                    let client = KubeClient::connect_unasked(settings.kubernetes.of_calico()?).await?;
                    let is_assumed = settings.kubernetes.api_group.is_empty();
                    Backend::Kubernetes(KubeStore::new(client, is_assumed, selecting))
                }
                Target::File(path) => {
                    return Err(Error::NotWritable { location: path.display().to_string() });
                }
                Target::StandardInput => {
                    return Err(Error::NotWritable { location: "standard input".into() });
                }
            };
            Ok(Self::of(backend, consent))
        })
    }

    fn of(backend: Backend, consent: Consent) -> Self {
        Self { backend, changed: Mutex::default(), _consent: consent }
    }

    /// The client, if the datastore is Kubernetes.
    pub fn kubernetes(&self) -> Option<Arc<KubeClient>> {
        match &self.backend {
            Backend::Etcd(_) => None,
            Backend::Kubernetes(store) => Some(store.client()),
        }
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        match &self.backend {
            Backend::Etcd(store) => store.request_count(),
            Backend::Kubernetes(store) => store.client().request_count(),
        }
    }

    /// The blocks that were created, changed or deleted.
    pub fn changed_blocks(&self) -> Vec<IpNet> {
        lock(&self.changed).iter().copied().collect()
    }

    /// True if the addresses of virtual machines outlive their pods, according to the resource IPAMConfiguration, which
    /// on etcd is not the allocator's configuration. Also true if there is no such resource.
    pub fn keeps_machine_addresses<'a>(&'a self) -> Pending<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let key = match &self.backend {
                Backend::Etcd(_) => Key::IpamConfiguration(DEFAULT.to_owned()),
                Backend::Kubernetes(_) => Key::IpamConfig,
            };
            let found = self.read(&[Query::Get(key)]).await?;
            let mut configs =
                found.into_iter().flatten().filter_map(|entry| Option::<IpamConfig>::from(entry.record));
            Ok(configs.next().is_none_or(|config| config.keeps_addresses_of_machines()))
        })
    }

    /// Adds to a node's affinities the labels by which Calico 3.31 and later finds them (facts 2.5). Does nothing on
    /// etcd. Returns the number of affinities that it has labeled.
    pub fn label_affinities<'a>(&'a self, node: &'a str) -> Pending<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            match &self.backend {
                Backend::Etcd(_) => Ok(0),
                Backend::Kubernetes(store) => store.label_affinities(node).await,
            }
        })
    }
}

impl Datastore {
    /// Opens this datastore for an allocator, with the operator's consent. Affinities are listed without a selector.
    pub fn allocator(&self, consent: Consent) -> Result<AllocatorStore> {
        self.require_calico_3(ASSIGN)?;
        let backend = match self {
            Self::Etcd(client, _) => Backend::Etcd(EtcdStore::new(Arc::clone(client))),
            Self::Kubernetes(client) => {
                Backend::Kubernetes(KubeStore::new(Arc::clone(client), false, Selecting::All))
            }
            Self::EtcdV2(..) | Self::File(_) => return Err(Error::NotWritable { location: self.location() }),
        };
        Ok(AllocatorStore::of(backend, consent))
    }
}

impl Store for AllocatorStore {
    fn now(&self) -> Timestamp {
        crate::clock::now()
    }

    // Boxed to avoid compiling the clients again in each crate that uses an allocator.
    async fn read(&self, queries: &[Query]) -> Result<Vec<Vec<Entry>>, StoreError> {
        let read: Pending<'_, _> = match &self.backend {
            Backend::Etcd(store) => Box::pin(store.read(queries)),
            Backend::Kubernetes(store) => Box::pin(store.read(queries)),
        };
        read.await
    }

    async fn swap(&self, swap: &Swap) -> Result<Revision, StoreError> {
        let swapped: Pending<'_, _> = match &self.backend {
            Backend::Etcd(store) => Box::pin(store.swap(swap)),
            Backend::Kubernetes(store) => Box::pin(store.swap(swap)),
        };
        let revision = swapped.await?;
        if let Record::Block(block) = &swap.record {
            lock(&self.changed).insert(block.cidr());
        }
        Ok(revision)
    }
}

/// The remaining retries of a read.
struct Retries(std::array::IntoIter<Duration, { PAUSES.len() }>);

impl Retries {
    fn new() -> Self {
        Self(PAUSES.into_iter())
    }

    /// Waits before the next retry after a temporary failure; returns the error if no retries remain.
    async fn wait(&mut self, error: Error) -> Result<(), StoreError> {
        let Some(pause) = self.0.next() else { return Err(unavailable(error)) };
        tracing::warn!("{error}; trying again");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

fn unavailable(error: Error) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}
