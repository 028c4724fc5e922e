//! An open datastore: etcd, etcd v2, Kubernetes or a file.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use calipam_files::{DataFile, Extent, FileKind, ProgressFn, newest_time, quiet};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot, Source};

use crate::client::etcd::EtcdClient;
use crate::client::etcdv2::EtcdV2Client;
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::schema::keeps_cooldown;
use crate::error::{Error, Result};
use crate::read::whole;
use crate::read::whole::etcd::{Observed, Start, observe};
use crate::read::{Lookup, again, around, with_kubernetes};
use crate::secret::redact_url;
use crate::settings::{Settings, Target};

/// The future of a call into this crate. It is boxed, because an `async fn` is compiled again in each crate that awaits
/// it, together with all clients below it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone, Debug)]
pub enum Datastore {
    /// An etcd v3 server, and the API server of the cluster that uses it, if there is one.
    Etcd(Arc<EtcdClient>, Option<Arc<KubeClient>>),
    /// An etcd with the v2 API for Calico 2.x, and the API server of its cluster, if there is one.
    EtcdV2(Arc<EtcdV2Client>, Option<Arc<KubeClient>>),
    /// The API server of a Kubernetes cluster.
    Kubernetes(Arc<KubeClient>),
    /// An export, an etcd snapshot, or Kubernetes objects.
    File(DataFile),
}

impl Datastore {
    /// False if an API server is used in addition to etcd, and the operator named only its kubeconfig, not the cluster.
    pub fn names_kubernetes(&self) -> bool {
        self.beside().is_none_or(|kubernetes| kubernetes.names_cluster())
    }

    /// The API server of the cluster, if one is used in addition to etcd.
    pub(crate) fn beside(&self) -> Option<&Arc<KubeClient>> {
        match self {
            Self::Etcd(_, kubernetes) | Self::EtcdV2(_, kubernetes) => kubernetes.as_ref(),
            Self::Kubernetes(_) | Self::File(_) => None,
        }
    }

    /// The API server of the cluster, as the datastore or in addition to etcd.
    pub(crate) fn kubernetes(&self) -> Option<&Arc<KubeClient>> {
        match self {
            Self::Kubernetes(kubernetes) => Some(kubernetes),
            _ => self.beside(),
        }
    }

    /// The client of etcd v3; `None` for any other datastore.
    pub(crate) fn etcd(&self) -> Option<&Arc<EtcdClient>> {
        match self {
            Self::Etcd(etcd, _) => Some(etcd),
            _ => None,
        }
    }

    /// Returns an error for a datastore without revisions.
    pub fn has_revisions(&self) -> Result<()> {
        self.require_revisions().map(drop)
    }

    /// Returns etcd, or an error for a datastore without revisions.
    pub(crate) fn require_revisions(&self) -> Result<&Arc<EtcdClient>> {
        self.etcd().ok_or_else(|| Error::NoRevisions { location: self.location() })
    }

    /// Opens the datastore that the settings describe.
    pub fn open<'a>(settings: &'a Settings) -> Pending<'a, Result<Self>> {
        Box::pin(async move {
            let beside = async || match settings.kubernetes.is_named() {
                true => KubeClient::connect(&settings.kubernetes).await.map(Some),
                false => Ok(None),
            };
            match &settings.target {
                Target::Etcd(etcd) => {
                    Ok(Self::Etcd(EtcdClient::connect(etcd).await?.into(), beside().await?))
                }
                Target::EtcdV2(etcd) => {
                    Ok(Self::EtcdV2(EtcdV2Client::connect(etcd).await?.into(), beside().await?))
                }
                Target::Kubernetes => {
                    Ok(Self::Kubernetes(KubeClient::connect(settings.kubernetes.of_calico()?).await?))
                }
                Target::File(path) => Ok(Self::File(DataFile::open(path)?)),
                Target::StandardInput => {
                    blocking(|| Ok(Self::File(DataFile::of_input(std::io::stdin().lock())?))).await
                }
            }
        })
    }

    /// The location, without secrets: an endpoint, or the path of a file.
    pub fn location(&self) -> String {
        match self {
            Self::Etcd(client, _) => redact_url(client.endpoint()),
            Self::EtcdV2(client, _) => client.endpoint(),
            Self::Kubernetes(client) => client.server().to_owned(),
            Self::File(file) => file.name(),
        }
    }

    /// The kind of datastore. It is always etcd for a file, whose content is known only after a read.
    pub fn kind(&self) -> DatastoreKind {
        match self {
            Self::Etcd(..) | Self::File(_) => DatastoreKind::Etcd,
            Self::EtcdV2(..) => DatastoreKind::EtcdV2,
            Self::Kubernetes(_) => DatastoreKind::Kubernetes,
        }
    }

    /// Returns an error for Calico 2.x data, for which `what` is not supported.
    pub fn require_calico_3(&self, what: &'static str) -> Result<()> {
        match self {
            Self::EtcdV2(client, _) => Err(Error::NotForCalico2 { location: client.endpoint(), what }),
            _ => Ok(()),
        }
    }

    /// The number of requests that were sent.
    pub fn request_count(&self) -> u64 {
        let to_etcd = match self {
            Self::Etcd(client, _) => client.request_count(),
            Self::EtcdV2(client, _) => client.request_count(),
            Self::Kubernetes(_) | Self::File(_) => 0,
        };
        to_etcd + self.kubernetes().map_or(0, |client| client.request_count())
    }

    /// True if the data can change, so a second read may differ.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// True if the time of the data is known: false for files other than exports. Their clock is the newest time in the
    /// data, or else the file's modification time.
    pub fn knows_its_time(&self) -> bool {
        match self {
            Self::File(file) => file.kind() == FileKind::Export,
            _ => true,
        }
    }

    /// True if released addresses can have a cooldown: the datastore keeps the time of a release. On Kubernetes the
    /// installed schema of blocks must have a field for that time; otherwise the API server would drop it and leave an
    /// anonymous allocation that never ends (facts 2.10). False if the schema cannot be read, for etcd v2, and for
    /// files, which are never written.
    pub fn keeps_cooldown<'a>(&'a self) -> Pending<'a, bool> {
        Box::pin(async move {
            match self {
                Self::Etcd(..) => true,
                Self::Kubernetes(client) => keeps_cooldown(client).await,
                // Calico 2.x would treat an address in cooldown as assigned, forever.
                Self::EtcdV2(..) | Self::File(_) => false,
            }
        })
    }

    /// Reads everything that a check needs. The data in etcd is read at one revision.
    pub async fn observe(&self, progress: &ProgressFn) -> Result<Snapshot> {
        self.observe_extent(&Extent::Whole, progress).await
    }

    /// Reads the given extent. The tree of etcd v2 and files of Kubernetes objects are read as a whole.
    pub fn observe_extent<'a>(
        &'a self,
        extent: &'a Extent,
        progress: &'a ProgressFn,
    ) -> Pending<'a, Result<Snapshot>> {
        Box::pin(async move {
            let in_kubernetes = extent.has_any(&[Source::Pods, Source::Services, Source::Machines]);
            let mut snapshot = match self {
                Self::Etcd(client, _) => Self::observe_etcd(client, None, extent, progress).await?,
                Self::EtcdV2(client, _) => {
                    let mut snapshot = whole::etcdv2::observe(client, progress).await?;
                    extent.say(&mut snapshot);
                    snapshot
                }
                Self::Kubernetes(client) => whole::kubernetes::observe(client, extent, progress).await?,
                Self::File(file) => {
                    let (file, extent, progress) = (file.clone(), extent.clone(), Arc::clone(progress));
                    blocking(move || Ok(file.observe_extent(&extent, &progress)?)).await?
                }
            };
            if let Some(kubernetes) = self.beside().filter(|_| in_kubernetes) {
                with_kubernetes::add(kubernetes, &mut snapshot, progress).await?;
            }
            if *extent == Extent::Whole {
                self.add_namespaces(&mut snapshot, false).await;
            }
            Ok(snapshot)
        })
    }

    /// Reads everything at a past revision of etcd. etcd does not record the times of its revisions, so the snapshot's
    /// time is the newest time in the data, as for a file that states no time. Kubernetes is left out, since it has no
    /// past states.
    ///
    /// # Errors
    /// The same as for [`Self::observe`], and if the revision is compacted or in the future, or this is not etcd v3.
    pub fn observe_at<'a>(
        &'a self,
        revision: i64,
        progress: &'a ProgressFn,
    ) -> Pending<'a, Result<Snapshot>> {
        Box::pin(async move {
            let client = self.require_revisions()?;
            Self::observe_etcd(client, Some(revision), &Extent::Whole, progress).await
        })
    }

    async fn observe_etcd(
        client: &Arc<EtcdClient>,
        at: Option<i64>,
        extent: &Extent,
        progress: &ProgressFn,
    ) -> Result<Snapshot> {
        let collect = |_: &Start| Ok(Snapshot { records: extent.records(), ..Snapshot::default() });
        let Observed { collector: mut snapshot, start } =
            observe(client, at, extent, collect, progress).await?;
        let now = start.taken_at;
        let newest = at.and_then(|_| newest_time(&snapshot, now));
        snapshot.set_origin(start.endpoint, start.revision, newest.unwrap_or(now));
        snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
        snapshot.mark_read(ETCD_SOURCES.into_iter().filter(|source| extent.has(*source)));
        extent.say(&mut snapshot);
        Ok(snapshot)
    }

    /// Reads the data around one address or handle. On etcd, this takes two or three requests for a few keys; on etcd
    /// v2 and Kubernetes, about one request for each key. A file is read as a whole.
    pub fn lookup<'a>(&'a self, lookup: &'a Lookup) -> Pending<'a, Result<Snapshot>> {
        Box::pin(async move {
            let mut snapshot = match self {
                Self::Etcd(client, _) => around::etcd::lookup(client, lookup).await?,
                Self::EtcdV2(client, _) => around::etcdv2::lookup(client, lookup).await?,
                Self::Kubernetes(client) => around::kubernetes::lookup(client, lookup).await?,
                Self::File(_) => self.observe(&quiet()).await?,
            };
            if let Some(kubernetes) = self.beside() {
                with_kubernetes::add_around(kubernetes, &mut snapshot, lookup).await?;
            }
            Ok(snapshot)
        })
    }

    /// Reads some keys again, in etcd at one new revision. `None` if the datastore cannot change.
    pub fn reread<'a>(&'a self, keys: &'a BTreeSet<Key>) -> Pending<'a, Result<Option<Snapshot>>> {
        Box::pin(async move {
            let (in_kubernetes, in_etcd): (BTreeSet<Key>, BTreeSet<Key>) =
                keys.iter().cloned().partition(with_kubernetes::is_in_kubernetes);
            let mut snapshot = match self {
                Self::Etcd(client, _) => again::etcd::reread(client, &in_etcd).await?,
                Self::EtcdV2(client, _) => whole::etcdv2::reread(client, &in_etcd).await?,
                Self::Kubernetes(client) => again::kubernetes::reread(client, keys).await?,
                Self::File(_) => return Ok(None),
            };
            if let Some(kubernetes) = self.beside() {
                with_kubernetes::reread(kubernetes, &mut snapshot, &in_kubernetes).await?;
            }
            Ok(Some(snapshot))
        })
    }
}

/// Runs slow work on a separate thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|lost| resume_unwind(lost.into_panic()))
}
