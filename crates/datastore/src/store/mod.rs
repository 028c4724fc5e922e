//! An open datastore, of any kind.

mod read;
mod write;

use std::sync::Arc;

use calipam_files::DataFile;
use calipam_model::snapshot::DatastoreKind;

use crate::backend::Backend;
use crate::budget::Phase;
use crate::error::{Error, Result};
use crate::etcd::client::EtcdClient;
use crate::etcdv2::client::EtcdV2Client;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::workloads::Workloads;
use crate::settings::{Settings, Target};
use crate::tasks::blocking;
use crate::write::not_for_calico_2;

/// A datastore, and the API server of the cluster that uses it.
#[derive(Clone, Debug)]
pub struct Datastore {
    backend: Arc<dyn Backend>,
    /// The API server that is read in addition to etcd, if there is one.
    api_server: Option<Arc<KubeClient>>,
}

impl Datastore {
    /// Opens the datastore that the settings name.
    pub async fn open(settings: &Settings) -> Result<Self> {
        let backend: Arc<dyn Backend> = match &settings.target {
            Target::Etcd(etcd) => Arc::new(Arc::new(EtcdClient::connect(etcd).await?)),
            Target::EtcdV2(etcd) => Arc::new(Arc::new(EtcdV2Client::connect(etcd).await?)),
            Target::Kubernetes => {
                Arc::new(KubeClient::connect(settings.kubernetes.require_calico_ipam()?).await?)
            }
            Target::File(path) => {
                let file = DataFile::open(path)?;
                Arc::new(match &settings.shown_as {
                    Some(name) => file.shown_as(name),
                    None => file,
                })
            }
            Target::StandardInput => {
                Arc::new(blocking(|| Ok(DataFile::of_input(std::io::stdin().lock())?)).await?)
            }
        };

        // The pods and services of an etcd's cluster are read from its API server.
        let is_etcd = matches!(settings.target, Target::Etcd(_) | Target::EtcdV2(_));
        let api_server = if is_etcd && settings.kubernetes.is_named() {
            Some(KubeClient::connect(&settings.kubernetes).await?)
        } else {
            None
        };
        Ok(Self { backend, api_server })
    }

    /// The datastore behind an etcd client, without an API server.
    pub fn of_etcd(client: EtcdClient) -> Self {
        Self {
            backend: Arc::new(Arc::new(client)),
            api_server: None,
        }
    }

    /// The Kubernetes datastore behind a client.
    pub fn of_kubernetes(client: Arc<KubeClient>) -> Self {
        Self {
            backend: Arc::new(client),
            api_server: None,
        }
    }

    /// False if an API server is read in addition to etcd, and the operator named only its kubeconfig, not the cluster.
    pub fn names_kubernetes(&self) -> bool {
        self.api_server
            .as_ref()
            .is_none_or(|kubernetes| kubernetes.names_cluster())
    }

    /// The cluster's API server, which is either the datastore or read in addition to etcd.
    fn kubernetes(&self) -> Option<&Arc<KubeClient>> {
        self.backend.kubernetes().or(self.api_server.as_ref())
    }

    /// The Kubernetes API of the cluster; `None` if none is known, or the data is a file.
    pub fn workloads(&self) -> Option<Workloads> {
        self.kubernetes().map(|client| Workloads {
            client: Arc::clone(client),
        })
    }

    /// Returns etcd, or an error for a datastore without revisions.
    pub fn require_revisions(&self) -> Result<&Arc<EtcdClient>> {
        self.backend.revisions().ok_or_else(|| Error::NoRevisions {
            location: self.location(),
        })
    }

    /// The location of the data, without secrets: an endpoint, or the path of a file.
    pub fn location(&self) -> String {
        self.backend.location()
    }

    /// The kind of datastore. It is always etcd for a file, whose content is known only after a read.
    pub fn kind(&self) -> DatastoreKind {
        self.backend.kind()
    }

    /// Returns an error for Calico 2.x data, for which `what` is not supported.
    pub fn require_calico_3(&self, what: &'static str) -> Result<()> {
        match self.kind() {
            DatastoreKind::EtcdV2 => Err(not_for_calico_2(&self.location(), what)),
            _ => Ok(()),
        }
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        self.backend.request_count()
            + self
                .api_server
                .as_ref()
                .map_or(0, |client| client.request_count())
    }

    /// Passes the progress of this run to the connections, since it determines the time for which they wait for a server.
    pub fn enter(&self, phase: Phase) {
        if let Some(budget) = self.backend.budget() {
            budget.enter(phase);
        }
        if let Some(kubernetes) = &self.api_server {
            KubeClient::budget(kubernetes).enter(phase);
        }
    }

    /// True if the data can change, so a second read may differ.
    pub fn is_live(&self) -> bool {
        self.backend.is_live()
    }

    /// True if an address or handle can be looked up without reading everything.
    pub fn reads_parts(&self) -> bool {
        self.is_live() && self.kind() != DatastoreKind::EtcdV2
    }

    /// True if the time of the data is known. False for files other than exports: their snapshots have the newest time
    /// in the data, or else the file's modification time.
    pub fn has_known_time(&self) -> bool {
        self.backend.has_known_time()
    }

    /// True if a released address can cool down, because the datastore keeps the time of its release. False for etcd
    /// v2, since Calico 2.x would treat a cooling address as assigned, forever.
    pub async fn keeps_cooldown(&self) -> bool {
        self.backend.keeps_cooldown().await
    }
}
