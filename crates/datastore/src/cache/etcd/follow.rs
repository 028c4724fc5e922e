//! An etcd that is read once and then followed: what has changed since is asked for as by a cache, and held in memory.

use std::sync::Arc;

use calipam_files::raw::RawEntry;
use calipam_files::{Extent, ProgressFn};
use calipam_model::snapshot::Snapshot;

use super::changes::{New, split};
use super::{Begun, Identity, State, begin, describe, identity, stale, watched};
use crate::cache::WhyWhole;
use crate::cache::newest::{Newest, sum};
use crate::client::etcd::EtcdClient;
use crate::error::Result;
use crate::read::whole;
use crate::read::whole::etcd::pull::Collector;
use crate::secret::redact_url;

/// How far an etcd was followed.
#[derive(Clone, Debug)]
pub struct Followed {
    identity: Identity,
    state: State,
}

impl Followed {
    /// The revision up to which everything is known.
    pub fn revision(&self) -> i64 {
        self.state.revision
    }
}

/// What has changed since.
pub struct News {
    new: New,
    begun: Begun,
    location: String,
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("News").field("changes", &self.len()).finish_non_exhaustive()
    }
}

/// The objects of keys that have changed: as they were, and as they are.
#[derive(Debug)]
pub struct Changed {
    pub before: Snapshot,
    pub now: Snapshot,
}

impl News {
    /// Number of keys that have changed.
    pub fn len(&self) -> usize {
        self.new.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.new.changes.is_empty()
    }

    /// Makes the snapshot that was followed what is stored now.
    pub fn apply(self, snapshot: &mut Snapshot, followed: &mut Followed) -> Changed {
        let Self { new, begun, location } = self;
        let (keys, now) = split(new.changes);
        let before = snapshot.change_entries(&keys, now.clone());
        describe(snapshot, location, begun.revision, begun.taken_at);
        followed.state = State { raft_term: begun.raft_term, revision: begun.revision, ..new.state };
        Changed { before, now }
    }
}

/// Reads everything.
///
/// # Errors
/// As those of a whole read.
pub(crate) async fn start(client: &Arc<EtcdClient>, progress: &ProgressFn) -> Result<(Snapshot, Followed)> {
    let collect = |_: &whole::etcd::Start| Ok(Noting::default());
    let observed = whole::etcd::observe(client, None, &Extent::Whole, collect, progress).await?;
    let (start, Noting { mut snapshot, newest }) = (observed.start, observed.collector);
    let state = State {
        revision: start.revision,
        raft_term: start.raft_term(),
        newest,
        newest_creation: snapshot.newest_creation,
        ..State::default()
    };
    let identity = identity(start.cluster_id(), snapshot.guid().to_owned());
    describe(&mut snapshot, start.endpoint, start.revision, start.taken_at);
    Ok((snapshot, Followed { identity, state }))
}

/// Reads what has changed; or says why everything has to be read.
///
/// # Errors
/// Where etcd cannot be asked.
pub(crate) async fn news(
    client: &Arc<EtcdClient>,
    followed: &Followed,
    until: Option<i64>,
) -> Result<std::result::Result<News, WhyWhole>> {
    let mut begun = begin(client).await?;
    // A member that lags behind does not know it yet.
    begun.revision = until.map_or(begun.revision, |until| until.min(begun.revision));
    Ok(since(client, followed, begun).await)
}

async fn since(
    client: &Arc<EtcdClient>,
    followed: &Followed,
    begun: Begun,
) -> std::result::Result<News, WhyWhole> {
    if begun.identity != followed.identity {
        return Err(WhyWhole::AnotherHistory("it is another cluster".to_owned()));
    }
    stale::check(client, &followed.state, &begun).await?;
    let new = watched(client, &followed.state, &begun).await?;
    Ok(News { new, begun, location: redact_url(client.endpoint()) })
}

/// Gathers a snapshot, and notes what was written last.
#[derive(Default)]
struct Noting {
    snapshot: Snapshot,
    newest: Newest,
}

impl Collector for Noting {
    type Chunk = Self;

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        chunk.newest.note(entry.mod_revision, || sum(entry.key, Some(entry.value)));
        chunk.snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.snapshot.absorb(chunk.snapshot);
        self.newest.join(chunk.newest);
        Ok(())
    }
}
