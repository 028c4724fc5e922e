//! What a check has read of Kubernetes: of each kind of which there may be many objects, in a file of its own, these objects as
//! they were at one version of the kind. What is few is listed each time.
//!
//! How the next check knows all changes: it asks for the newest version of the kind, and watches from the last write that the
//! cache knows. The changes up to that version are reported when a later one is, or a bookmark of it. The API server holds the
//! changes of the last minute or two and at least the last hundred of each kind; if it no longer knows some, or does not say
//! that it has reported all, the kind is listed.

mod collect;
mod entries;
mod kind;
mod load;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot};
use serde::{Deserialize, Serialize};

use self::collect::{Taken, is_kept};
use super::file::{self, Identity};
use super::newest::{Newest, sum};
use super::{CacheUse, CachedRead, KindUse, WhyWhole, has_much_changed, part_of_name};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::error::Result;
use crate::read::again::kubernetes::{locate, read_one};
use crate::read::whole::kubernetes::list::{Begun, Counter, Listed, list_from};
use crate::read::whole::kubernetes::order::{ReadKind, lists, lists_in_order};
use crate::read::whole::kubernetes::{Plan, assemble, plan};
use crate::read::with_kubernetes;
use crate::store::blocking;

type Kept = file::Kept<State>;

/// From how many bytes of objects on it is quicker to learn what has changed, which takes one to two seconds, than to read
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Of all kinds together.
    pub all: u64,
    /// Of one kind among them.
    pub kind: u64,
}

impl Default for Worth {
    fn default() -> Self {
        Self { all: 128 << 20, kind: 2 << 20 }
    }
}

/// What the cache of a kind comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    /// The version up to which all changes are known.
    version: u64,
    #[serde(flatten)]
    newest: Newest,
    /// How many objects the whole read found, and how many bytes the server sent.
    objects: u64,
    bytes: u64,
    /// How many changes were appended since.
    changes: u64,
}

/// The sum of a write. An object that was created again has another UID.
fn sum_of(name: &str, uid: &str, is_deleted: bool) -> u32 {
    sum(format!("{name} {uid}").as_bytes(), (!is_deleted).then_some(b""))
}

/// The cluster that is read, and where its caches lie.
struct Cluster {
    folder: PathBuf,
    api_group: &'static str,
    /// The UID of its ClusterInformation.
    uid: String,
    guid: String,
}

impl Cluster {
    /// `None` if the cluster has no ClusterInformation, by which its caches could be known.
    async fn of(client: &KubeClient, folder: &Path) -> Result<Option<Self>> {
        let key = Key::ClusterInformation("default".to_owned());
        let Some((kind, path)) = locate(client, &key) else { return Ok(None) };
        let read = read_one(client, &kind, &path).await?.map(|read| read.snapshot);
        let Some((cluster, revision)) = read.and_then(|read| read.cluster.zip(read.cluster_revision)) else {
            return Ok(None);
        };
        let Revision::Kubernetes(version) = revision else { return Ok(None) };
        let (folder, uid) = (folder.to_owned(), version.uid);
        Ok(Some(Self { folder, api_group: kind.group, uid, guid: cluster.guid }))
    }

    /// The cluster whose datastore is etcd. What its API server reports again shows that it is the same one.
    fn with_etcd(folder: &Path, etcd: &Snapshot) -> Self {
        let guid = etcd.guid().to_owned();
        Self { folder: folder.to_owned(), api_group: "etcd", uid: guid.clone(), guid }
    }

    fn identity(&self, kind: &Kind) -> Identity {
        let kind = format!("{}/{}", self.api_group, kind.known.plural);
        Identity { cluster_id: self.uid.clone(), guid: self.guid.clone(), kind }
    }

    /// The cache of a kind is called by the cluster and the kind, not by how the cluster is reached.
    fn path(&self, kind: &Kind) -> PathBuf {
        let group = self.api_group.split('.').next().unwrap_or_default();
        let plural = kind.known.plural;
        self.folder.join(format!("check-kubernetes-{group}-{}-{plural}.cache", part_of_name(&self.uid)))
    }
}

/// Reads everything, or of the kinds that are kept what has changed since the last check of this cluster that used the same
/// folder.
///
/// # Errors
/// If the cluster cannot be read. That a cache cannot be used or written is not an error.
pub(crate) async fn observe(
    client: &Arc<KubeClient>,
    folder: &Path,
    worth: Worth,
    progress: &ProgressFn,
) -> Result<CachedRead> {
    let Plan { first, second, coverage } = plan(client, &Extent::Whole).await?;
    let cluster = Cluster::of(client, folder).await?.map(Arc::new);
    let kinds: Vec<Kind> = first.iter().chain(&second).cloned().collect();
    let reader =
        Reader { client: Arc::clone(client), counter: Counter::new(progress), cluster: cluster.clone() };
    let (mut lists, later) = lists_in_order(&reader, first, second).await?;
    lists.extend(later);

    let (lists, kinds, unsaved) = keep(client, cluster, worth, kinds, lists).await?;
    let snapshot = assemble(client, coverage, lists.into_iter());
    Ok(CachedRead { snapshot, used: CacheUse::Kinds(kinds), unsaved })
}

/// As [`add`](with_kubernetes::add) of a cluster whose datastore is etcd, `read` being what was read of that.
pub(crate) async fn add(
    client: &Arc<KubeClient>,
    folder: &Path,
    worth: Worth,
    mut read: CachedRead,
    progress: &ProgressFn,
) -> Result<CachedRead> {
    let kinds = with_kubernetes::kinds(client).await?;
    let cluster = Some(Arc::new(Cluster::with_etcd(folder, &read.snapshot)));
    let counter = with_kubernetes::counter(&read.snapshot, progress);
    let reader = Reader { client: Arc::clone(client), counter, cluster: cluster.clone() };
    let lists = lists(&reader, kinds.clone()).await?;
    let (lists, kinds, unsaved) = keep(client, cluster, worth, kinds, lists).await?;
    with_kubernetes::add_lists(client, &mut read.snapshot, lists)?;
    let unsaved: Vec<String> = read.unsaved.into_iter().chain(unsaved).collect();
    Ok(CachedRead {
        used: CacheUse::WithKinds(Box::new(read.used), kinds),
        unsaved: (!unsaved.is_empty()).then(|| unsaved.join("; ")),
        ..read
    })
}

/// Writes the caches of what was listed whole. Gives the lists back, what was read of the kinds that are kept, and why some
/// cache cannot be written.
async fn keep(
    client: &KubeClient,
    cluster: Option<Arc<Cluster>>,
    worth: Worth,
    kinds: Vec<Kind>,
    mut lists: Vec<Listed<Taken>>,
) -> Result<(Vec<Listed<Taken>>, Vec<KindUse>, Option<String>)> {
    // No other server reports when it has reported all changes.
    let cluster = cluster.filter(|_| client.api().whole_lists);
    let saved = blocking(client.server().to_owned(), move || {
        let unsaved = cluster.map(|cluster| save(&kinds, &mut lists, &cluster, worth)).unwrap_or_default();
        Ok((kinds, lists, unsaved))
    });
    let (kinds, lists, unsaved) = saved.await?;
    let used = kinds.iter().zip(&lists).filter_map(|(kind, listed)| {
        let (kind, version) = (kind.known.plural, listed.resource_version.clone());
        Some(KindUse { kind, version, read: listed.taken.read.clone()? })
    });
    let used = used.collect();
    Ok((lists, used, (!unsaved.is_empty()).then(|| unsaved.join("; "))))
}

/// Writes them, and gives the reasons of those that cannot be written.
fn save(kinds: &[Kind], lists: &mut [Listed<Taken>], cluster: &Cluster, worth: Worth) -> Vec<String> {
    let total = lists.iter().map(|listed| listed.taken.bytes).sum();
    let mut unsaved = Vec::new();
    for (kind, listed) in kinds.iter().zip(lists) {
        let is_worth = listed.taken.is_worth(&worth, total);
        let reason = match listed.taken.read {
            Some(Err(_)) => listed.taken.save(kind, cluster, &listed.resource_version, is_worth),
            _ => listed.taken.unsaved.take(),
        };
        unsaved.extend(reason.filter(|reason| !unsaved.contains(reason)));
    }
    unsaved
}

/// Reads what has changed of the kinds that are kept, and lists the others.
#[derive(Clone)]
struct Reader {
    client: Arc<KubeClient>,
    counter: Arc<Counter>,
    cluster: Option<Arc<Cluster>>,
}

impl ReadKind<Taken> for Reader {
    fn client(&self) -> &Arc<KubeClient> {
        &self.client
    }

    fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    async fn read(&self, kind: &Kind, mut begun: Option<Begun>) -> Result<Listed<Taken>> {
        if !is_kept(kind) {
            return list_from(&self.client, kind, &self.counter, begun).await;
        }
        let is_waited_for = begun.is_some();
        let why = match self.changed(kind, &mut begun).await {
            Ok(listed) => {
                self.counter.add(listed.items);
                return Ok(listed);
            }
            Err(why) => why,
        };
        tracing::info!("{}: reading everything: {why}", kind.known.plural);
        let was_fixed = is_waited_for && begun.is_none();
        let mut listed: Listed<Taken> = list_from(&self.client, kind, &self.counter, begun).await?;
        listed.begun_again |= was_fixed;
        listed.taken.read = Some(Err(why));
        Ok(listed)
    }
}

impl Reader {
    /// Reads what has changed of a kind.
    async fn changed(
        &self,
        kind: &Kind,
        begun: &mut Option<Begun>,
    ) -> std::result::Result<Listed<Taken>, WhyWhole> {
        let unusable = |text: &str| WhyWhole::Unusable(text.to_owned());
        let lost = |lost: tokio::task::JoinError| WhyWhole::Unusable(lost.to_string());
        if !self.client.api().whole_lists {
            return Err(WhyWhole::old_server());
        }
        let cluster = self.cluster.as_ref();
        let cluster =
            cluster.ok_or_else(|| unusable("the cluster has no ClusterInformation to know it by"))?;
        let (path, identity) = (cluster.path(kind), cluster.identity(kind));
        let opened = tokio::task::spawn_blocking(move || file::open(&path, &identity)).await;
        let kept: Kept = opened.map_err(lost)??;
        let state = kept.state.clone();
        if has_much_changed(state.changes, state.objects) {
            return Err(WhyWhole::ManyChanges);
        }

        // Unpacking takes less time than the server needs to report the changes.
        let unpacked = async {
            let unpacked = tokio::task::spawn_blocking(move || load::unpack(kept)).await;
            unpacked.map_err(lost)?
        };
        let reported = kind::changes(&self.client, kind, &state, begun);
        let (since, (kept, mut unpacked)) = tokio::try_join!(reported, unpacked)?;

        let kind = kind.clone();
        let merged = tokio::task::spawn_blocking(move || {
            let new = since.values(&kind)?;
            let number = new.len();
            let changes: Vec<_> = new.iter().map(|(name, value)| entries::change(name, value)).collect();
            unpacked.changes.extend(new);
            let snapshot = unpacked.snapshot(kind.known).ok_or_else(WhyWhole::damaged)?;
            let unsaved = file::append(&kept, changes.into_iter(), &since.state).err();
            let unsaved = unsaved.map(|error| error.to_string());
            Ok(Listed {
                taken: Taken::changed(snapshot, number, unsaved, since.state.bytes),
                resource_version: since.state.version.to_string(),
                date: since.date,
                items: since.state.objects,
                begun_again: false,
            })
        });
        merged.await.map_err(lost)?
    }
}
