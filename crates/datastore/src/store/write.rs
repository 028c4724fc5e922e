//! Writes to a datastore, and opens it for an allocator.

use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::snapshot::Source;

use super::Datastore;
use crate::allocation::{AllocatorStore, Records, Selecting};
use crate::both::Both;
use crate::error::Result;
use crate::etcd::EtcdStore;
use crate::etcd::client::{EtcdClient, Proof};
use crate::kubernetes::KubeStore;
use crate::kubernetes::client::KubeClient;
use crate::secret::redact_url;
use crate::settings::{Settings, Target};
use crate::write::{Consent, Objects, Stored, Writer, not_for_calico_2, not_writable};

/// The action that is not supported on Calico 2.x data, for errors.
const ASSIGN: &str = "assign or release single addresses";

impl Datastore {
    /// The writer of the datastore's objects. With etcd, it also reads objects of Kubernetes.
    fn objects(&self) -> Result<Arc<dyn Objects>> {
        let has_api_server = self.api_server.is_some();
        let objects = self.backend.objects(has_api_server)?;
        Ok(match &self.api_server {
            Some(kubernetes) => Arc::new(Both {
                etcd: objects,
                kubernetes: Arc::clone(kubernetes),
            }),
            None => objects,
        })
    }

    /// Creates a writer with the operator's consent.
    pub fn writer(&self, consent: Consent) -> Result<Writer> {
        Ok(Writer::new(self.objects()?, consent))
    }

    /// Checks that the user may create, update and delete objects of these kinds, and may take the lock if `lock` is
    /// true. This keeps a run from failing halfway. etcd has no such check.
    pub async fn may_write(&self, sources: &[Source], lock: bool) -> Result<()> {
        self.objects()?.may_write(sources, lock).await
    }

    /// Reads the current state of objects, in the order of the keys; `None` for a missing one.
    pub async fn stored(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        self.objects()?.read(keys).await
    }

    /// Reads the current state of one object; `None` if it is missing.
    pub async fn stored_object(&self, key: Key) -> Result<Option<Stored>> {
        Ok(self.stored(&[key]).await?.pop().flatten())
    }

    /// Opens this datastore for an allocator, with the operator's consent. On Kubernetes, affinities are found by
    /// listing all of them.
    pub fn allocator(&self, consent: Consent) -> Result<AllocatorStore> {
        self.require_calico_3(ASSIGN)?;
        Ok(AllocatorStore::new(self.backend.records()?, consent))
    }
}

impl AllocatorStore {
    /// Connects without discovery. Only the first read shows if a single etcd endpoint or the API server answers, and
    /// which API group the cluster has. `selecting` is the way to find affinities on Kubernetes.
    pub async fn connect(settings: &Settings, selecting: Selecting, consent: Consent) -> Result<Self> {
        let records: Box<dyn Records> = match &settings.target {
            Target::Etcd(etcd) => {
                // Only of several endpoints must one be chosen before the first request.
                let proof = if etcd.endpoints.len() > 1 {
                    Proof::Probe
                } else {
                    Proof::FirstRequest
                };
                let client = EtcdClient::connect_first(etcd, proof).await?;
                Box::new(EtcdStore::new(client.into()))
            }
            Target::EtcdV2(etcd) => {
                let location = match etcd.endpoints.first() {
                    Some(url) => redact_url(url),
                    None => String::new(),
                };
                return Err(not_for_calico_2(&location, ASSIGN));
            }
            Target::Kubernetes => {
                let kubernetes = settings.kubernetes.require_calico_ipam()?;
                let client = KubeClient::connect_without_discovery(kubernetes).await?;
                let store = KubeStore::new(client, selecting);
                if kubernetes.api_group.is_empty() {
                    Box::new(store.with_assumed_group())
                } else {
                    Box::new(store)
                }
            }
            Target::File(path) => {
                return Err(not_writable(&path.display().to_string()));
            }
            Target::StandardInput => {
                return Err(not_writable("standard input"));
            }
        };
        Ok(Self::new(records, consent))
    }
}
