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
use crate::follow::Changed;
use crate::read::whole;
use crate::read::whole::etcd::pull::Collector;
use crate::secret::redact_url;

/// How far an etcd was followed.
#[derive(Debug)]
pub(crate) struct EtcdFollowed {
    identity: Identity,
    state: State,
}

impl EtcdFollowed {
    /// The revision up to which everything is known.
    pub(crate) fn revision(&self) -> i64 {
        self.state.revision
    }
}

/// What has changed since.
pub(crate) struct EtcdNews {
    new: New,
    begun: Begun,
    location: String,
}

impl EtcdNews {
    /// Number of keys that have changed.
    pub(crate) fn len(&self) -> usize {
        self.new.changes.len()
    }

    /// Makes the snapshot that was followed what is stored now.
    pub(crate) fn apply(self, snapshot: &mut Snapshot, followed: &mut EtcdFollowed) -> Changed {
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
pub(crate) async fn start(
    client: &Arc<EtcdClient>,
    progress: &ProgressFn,
) -> Result<(Snapshot, EtcdFollowed)> {
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
    Ok((snapshot, EtcdFollowed { identity, state }))
}

/// Reads what has changed; or says why everything has to be read.
///
/// # Errors
/// If etcd cannot be asked.
pub(crate) async fn news(
    client: &Arc<EtcdClient>,
    followed: &EtcdFollowed,
) -> Result<std::result::Result<EtcdNews, WhyWhole>> {
    let begun = begin(client).await?;
    Ok(since(client, followed, begun).await)
}

async fn since(
    client: &Arc<EtcdClient>,
    followed: &EtcdFollowed,
    begun: Begun,
) -> std::result::Result<EtcdNews, WhyWhole> {
    if begun.identity != followed.identity {
        return Err(WhyWhole::AnotherHistory("it is another cluster".to_owned()));
    }
    stale::check(client, &followed.state, &begun).await?;
    let new = watched(client, &followed.state, &begun).await?;
    Ok(EtcdNews { new, begun, location: redact_url(client.endpoint()) })
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
