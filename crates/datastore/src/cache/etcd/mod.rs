//! What a check has read of etcd: its entries as they were at one revision, packed; then, appended by each later check, the
//! changes that it read; after each of them a [`State`]: at which revision that is, and what was written last before it. The
//! next check watches from that last write on, so that etcd reports it again: if etcd reports another one, its data was restored
//! from a backup, or it is another etcd.

mod changes;
mod collect;
mod entries;
pub(crate) mod follow;
mod load;
mod stale;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use calipam_files::raw::prefix_end;
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::changes::{Decoding, New};
use self::collect::CachingCollector;
pub(crate) use self::stale::require_exact;
use super::file::{self, Identity};
use super::newest::Newest;
use super::{CacheUse, CachedRead, WhyWhole, has_much_changed, part_of_name};
use crate::client::etcd::{Answers, Due, EtcdClient, Range};
use crate::error::Result;
use crate::read::whole;
use crate::secret::redact_url;
use crate::store::blocking;

/// How long etcd may take to report what has changed before everything is read instead.
const PATIENCE: Duration = Duration::from_secs(10);

type Kept = file::Kept<State>;

/// What a cache comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    /// The revision at which everything was read.
    revision: i64,
    raft_term: u64,
    #[serde(flatten)]
    newest: Newest,
    /// How many objects the whole read found.
    objects: u64,
    /// How many changes were appended since.
    changes: u64,
    /// When the newest object of all of them was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    newest_creation: Option<Timestamp>,
}

/// Reads everything, or what has changed since the last check of this cluster that used the same folder.
pub(crate) async fn observe(
    client: &Arc<EtcdClient>,
    folder: &Path,
    progress: &ProgressFn,
) -> Result<CachedRead> {
    let begun = begin(client).await?;
    let path = folder.join(file_name(&begun.identity));
    let whole = match changed(client, &path, &begun).await {
        Ok(read) => return Ok(read),
        Err(whole) => whole,
    };
    tracing::info!("reading everything: {whole}");

    let (name, identity) = (path.clone(), begun.identity.clone());
    let collect = move |start: &whole::etcd::Start| Ok(CachingCollector::new(&name, &identity, start));
    let observed = whole::etcd::observe(client, None, &Extent::Whole, collect, progress).await?;
    let (start, collector) = (observed.start, observed.collector);
    let state = State { revision: start.revision, raft_term: start.raft_term(), ..State::default() };
    let location = start.endpoint.clone();
    let (mut snapshot, unsaved) = blocking(location, move || Ok(collector.finish(state))).await?;
    describe(&mut snapshot, start.endpoint, start.revision, start.taken_at);
    Ok(CachedRead { snapshot, used: CacheUse::Whole(whole), unsaved })
}

/// What etcd and Calico are called, and how far etcd is.
struct Begun {
    identity: Identity,
    revision: i64,
    raft_term: u64,
    taken_at: Timestamp,
}

async fn begin(client: &EtcdClient) -> Result<Begun> {
    let information = Key::ClusterInformation("default".to_owned());
    let now: Answers = client.get(&[Range::key(information.to_string())], "cluster information").await?;
    let mut cluster = Snapshot::default();
    now.entries().for_each(|entry| cluster.add_entry(entry.key, entry.value, entry.mod_revision));
    Ok(Begun {
        identity: identity(now.cluster_id, cluster.guid().to_owned()),
        revision: now.revision,
        raft_term: now.raft_term,
        taken_at: Timestamp::now(),
    })
}

fn describe(snapshot: &mut Snapshot, location: String, revision: i64, taken_at: Timestamp) {
    snapshot.datastore = DatastoreKind::Etcd;
    snapshot.location = location;
    snapshot.revision = revision.to_string();
    snapshot.taken_at = taken_at;
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.mark_read(ETCD_SOURCES);
}

/// Reads what has changed since a state.
async fn watched(
    client: &Arc<EtcdClient>,
    state: &State,
    begun: &Begun,
) -> std::result::Result<New, WhyWhole> {
    let span = (state.newest.last, begun.revision);
    let (ranges, due) = (ranges(), Due::new());
    let decoding = || Decoding::begin(state);
    let watched = client.watch_changes(&ranges, span, &due, "what has changed", decoding);
    let reported = tokio::time::timeout(PATIENCE, watched).await;
    stale::require_all(reported)?.finish().await
}

/// Reads what has changed since the last check.
async fn changed(
    client: &Arc<EtcdClient>,
    path: &Path,
    begun: &Begun,
) -> std::result::Result<CachedRead, WhyWhole> {
    let (name, identity) = (path.to_owned(), begun.identity.clone());
    let opened = tokio::task::spawn_blocking(move || file::open(&name, &identity)).await;
    let kept: Kept = opened.map_err(|lost| WhyWhole::Unusable(lost.to_string()))??;
    let state = kept.state.clone();
    stale::check(client, &state, begun).await?;
    require_few_changes(&state)?;
    let watched = watched(client, &state, begun);
    // Unpacking takes as long as etcd needs to report the changes.
    let (reported, loaded) = tokio::join!(watched, tokio::task::spawn_blocking(move || load::load(kept)));
    let New { changes: new, appended, state: later } = reported?;
    let (kept, mut loaded) = loaded.map_err(|lost| WhyWhole::Unusable(lost.to_string()))??;

    let later = State { raft_term: begun.raft_term, revision: begun.revision, ..later };
    let read = tokio::task::spawn_blocking(move || {
        let number = new.len();
        // What is appended is packed while the snapshot gets the changes.
        std::thread::scope(|scope| {
            let saved = scope.spawn(|| file::append(&kept, appended.iter(), &later));
            loaded.changes.extend(new);
            changes::apply(loaded.changes, &mut loaded.snapshot);
            let unsaved = match saved.join() {
                Ok(saved) => saved.err().map(|error| error.to_string()),
                Err(_) => Some("the thread that writes it has ended".to_owned()),
            };
            (loaded.snapshot, unsaved, number)
        })
    });
    let (mut snapshot, unsaved, changes) = read.await.map_err(|lost| WhyWhole::Unusable(lost.to_string()))?;
    describe(&mut snapshot, redact_url(client.endpoint()), begun.revision, begun.taken_at);
    Ok(CachedRead { snapshot, used: CacheUse::Changes { since: state.revision, changes }, unsaved })
}

fn require_few_changes(state: &State) -> std::result::Result<(), WhyWhole> {
    match has_much_changed(state.changes, state.objects) {
        true => Err(WhyWhole::ManyChanges),
        false => Ok(()),
    }
}

/// What a whole read reads is in this range. One watch of it always has something to report: the last write that the cache
/// knows.
fn ranges() -> [Range; 1] {
    use calipam_model::key::{ENDPOINT_PREFIX, IPAM_PREFIX};
    [Range::between(IPAM_PREFIX, prefix_end(ENDPOINT_PREFIX.as_bytes()))]
}

fn identity(cluster_id: u64, guid: String) -> Identity {
    Identity { cluster_id: format!("{cluster_id:016x}"), guid, kind: String::new() }
}

/// What the cache of the cluster is called: by what etcd and Calico call the cluster, not by how it is reached.
fn file_name(identity: &Identity) -> PathBuf {
    format!("check-etcd-{}-{}.cache", identity.cluster_id, part_of_name(&identity.guid)).into()
}
