//! An etcd that is read once and then followed: it is asked for the changes since its last known write, so that it reports that write
//! again. If it reports another one, its data was restored from a backup, or it is another etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use calipam_files::raw::{RawEntry, is_read};
use calipam_files::{Extent, ProgressFn};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ETCD_SOURCES, Snapshot};
use jiff::Timestamp;
use tokio::time::timeout;

use super::{Changed, OrWhole};
use crate::changes::WhyWhole;
use crate::changes::etcd::{range, require_exact};
use crate::client::etcd::{Answers, Change, Due, EtcdClient, Range};
use crate::error::{Error, Failure, Result};
use crate::read::whole;
use crate::read::whole::etcd::pull::Collector;
use crate::secret::redact_url;

/// The time that etcd has to report changes before everything is read instead.
const PATIENCE: Duration = Duration::from_secs(10);
/// After how long without changes etcd is asked whether it is still the same one.
const QUIET: Duration = Duration::from_secs(5);

/// The point up to which an etcd was followed.
#[derive(Debug)]
pub(super) struct EtcdFollowed {
    identity: Identity,
    revision: i64,
    raft_term: u64,
    last: LastWrite,
}

/// Names of a cluster: what etcd calls it, and what Calico does.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    cluster_id: u64,
    guid: String,
}

/// An etcd as it is when it is asked for changes.
struct Begun {
    identity: Identity,
    revision: i64,
    raft_term: u64,
    taken_at: Timestamp,
}

/// The changes of the last revision that is known: the next read asks for them again.
#[derive(Clone, Debug, Default)]
struct LastWrite(Vec<Change>);

impl LastWrite {
    fn revision(&self) -> i64 {
        self.0.first().map_or(0, |change| change.revision)
    }

    fn note(&mut self, revision: i64, change: impl FnOnce() -> Change) {
        if revision < self.revision() {
            return;
        }
        if revision > self.revision() {
            self.0.clear();
        }
        self.0.push(change());
    }

    /// True if all of it is among what etcd reports.
    fn is_among(&self, reported: &[Change]) -> bool {
        !self.0.is_empty() && self.0.iter().all(|change| reported.contains(change))
    }
}

impl EtcdFollowed {
    /// The revision up to which everything is known.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Fails if etcd has gone back, or is another one.
    fn require_same_history(&self, begun: &Begun) -> OrWhole<()> {
        let reason = if begun.identity != self.identity {
            "it is another cluster".to_owned()
        } else if begun.revision < self.revision {
            format!("its revision was {}, and is {}", self.revision, begun.revision)
        } else if begun.raft_term < self.raft_term {
            format!("its raft term was {}, and is {}", self.raft_term, begun.raft_term)
        } else {
            return Ok(());
        };
        Err(WhyWhole::AnotherHistory(reason))
    }
}

/// Changes since that point.
pub(super) struct EtcdNews {
    /// Ascending.
    keys: Vec<Vec<u8>>,
    /// The values that are stored under them now.
    fresh: Snapshot,
    last: LastWrite,
    begun: Begun,
    location: String,
}

impl EtcdNews {
    fn new(followed: &EtcdFollowed, changes: Vec<Change>, begun: Begun, location: String) -> Self {
        let known = followed.last.revision();
        let (mut last, mut values) = (followed.last.clone(), BTreeMap::new());
        for change in changes.into_iter().filter(|change| change.revision > known && is_read(&change.key)) {
            last.note(change.revision, || change.clone());
            values.insert(change.key, (change.revision, change.value));
        }
        let mut fresh = Snapshot::default();
        for (key, (revision, value)) in &values {
            value.iter().for_each(|value| fresh.add_entry(key, value, *revision));
        }
        Self { keys: values.into_keys().collect(), fresh, last, begun, location }
    }

    /// Number of keys that have changed.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Makes the snapshot that was followed what is stored now.
    pub(super) fn apply(self, snapshot: &mut Snapshot, followed: &mut EtcdFollowed) -> Changed {
        let Self { keys, fresh: now, last, begun, location } = self;
        let before = snapshot.change_entries(&keys, now.clone());
        describe(snapshot, location, begun.revision, begun.taken_at);
        let Begun { identity, revision, raft_term, .. } = begun;
        *followed = EtcdFollowed { identity, revision, raft_term, last };
        Changed { before, now }
    }
}

/// Reads everything.
///
/// # Errors
/// As those of a whole read.
pub(super) async fn start(
    client: &Arc<EtcdClient>,
    progress: &ProgressFn,
) -> Result<(Snapshot, EtcdFollowed)> {
    let collect = |_: &whole::etcd::Start| Ok(Noting::default());
    let observed = whole::etcd::observe(client, None, &Extent::Whole, collect, progress).await?;
    let (start, Noting { mut snapshot, last }) = (observed.start, observed.collector);
    let identity = Identity { cluster_id: start.cluster_id(), guid: snapshot.guid().to_owned() };
    let mut followed =
        EtcdFollowed { identity, revision: start.revision, raft_term: start.raft_term(), last };
    describe(&mut snapshot, start.endpoint, start.revision, start.taken_at);
    // The last write may be a deletion, which is in no list.
    if let Ok(news) = news(client, &followed).await? {
        news.apply(&mut snapshot, &mut followed);
    }
    Ok((snapshot, followed))
}

/// Waits for a change, or until etcd has another history: of one that has come to the known revision by other writes, a watch says nothing.
///
/// # Errors
/// If etcd cannot be asked.
pub(super) async fn wait(client: &Arc<EtcdClient>, followed: &EtcdFollowed) -> Result<()> {
    loop {
        if let Ok(changed) = timeout(QUIET, client.next_change(&range(), followed.revision)).await {
            return changed;
        }
        match news(client, followed).await? {
            Ok(news) if news.len() > 0 => return Ok(()),
            Err(WhyWhole::AnotherHistory(_)) => return Ok(()),
            _ => {}
        }
    }
}

/// Reads what has changed; or says why everything has to be read.
///
/// # Errors
/// If etcd cannot be asked.
pub(super) async fn news(client: &Arc<EtcdClient>, followed: &EtcdFollowed) -> Result<OrWhole<EtcdNews>> {
    let begun = begin(client).await?;
    Ok(since(client, followed, begun).await)
}

async fn since(client: &Arc<EtcdClient>, followed: &EtcdFollowed, begun: Begun) -> OrWhole<EtcdNews> {
    followed.require_same_history(&begun)?;
    require_exact(client).await?;
    let (ranges, due, last) = ([range()], Due::new(), &followed.last);
    let reported = client.changes(&ranges, (last.revision(), begun.revision), &due, "what has changed");
    let changes = match timeout(PATIENCE, reported).await {
        Ok(Ok(changes)) => changes,
        Ok(Err(Error::Request { failure: Failure::Compacted, .. })) => return Err(WhyWhole::Compacted),
        Ok(Err(error)) => return Err(WhyWhole::CannotWatch(error.to_string())),
        Err(_) => {
            let reason = "etcd does not confirm that these are all changes".to_owned();
            return Err(WhyWhole::CannotWatch(reason));
        }
    };
    if !last.is_among(&changes) {
        let reason = format!("at revision {} something else was written", last.revision());
        return Err(WhyWhole::AnotherHistory(reason));
    }
    Ok(EtcdNews::new(followed, changes, begun, redact_url(client.endpoint())))
}

async fn begin(client: &EtcdClient) -> Result<Begun> {
    let information = Key::ClusterInformation("default".to_owned());
    let now: Answers = client.get(&[Range::key(information.to_string())], "cluster information").await?;
    let mut cluster = Snapshot::default();
    now.entries().for_each(|entry| cluster.add_entry(entry.key, entry.value, entry.mod_revision));
    Ok(Begun {
        identity: Identity { cluster_id: now.cluster_id, guid: cluster.guid().to_owned() },
        revision: now.revision,
        raft_term: now.raft_term,
        taken_at: crate::clock::now(),
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

/// Gathers a snapshot, and notes what was written last.
#[derive(Default)]
struct Noting {
    snapshot: Snapshot,
    last: LastWrite,
}

impl Collector for Noting {
    type Chunk = Self;

    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        let RawEntry { key, value, mod_revision: revision, .. } = entry;
        chunk.last.note(revision, || Change { revision, key: key.to_vec(), value: Some(value.to_vec()) });
        chunk.snapshot.add_entry(key, value, revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.snapshot.absorb(chunk.snapshot);
        chunk.last.0.into_iter().for_each(|change| self.last.note(change.revision, || change));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = "/calico/ipam/v2/handle/net.a";

    fn change(revision: i64, key: &str, value: Option<&str>) -> Change {
        Change { revision, key: key.into(), value: value.map(Into::into) }
    }

    #[test]
    fn the_last_change_of_a_key_counts() {
        let mut last = LastWrite::default();
        last.note(7, || change(7, HANDLE, Some("{}")));
        let identity = Identity { cluster_id: 1, guid: String::new() };
        let followed = EtcdFollowed { identity: identity.clone(), revision: 7, raft_term: 1, last };
        let begun = Begun { identity, revision: 14, raft_term: 1, taken_at: Timestamp::UNIX_EPOCH };
        let block = r#"{"block":{"10.0.0.0/26":1}}"#;
        let (deleted, odd) = ("/calico/ipam/v2/handle/net.b", "/calico/ipam/v2/@/odd");
        let changes = vec![
            change(7, HANDLE, Some("{}")),
            change(8, HANDLE, Some("broken")),
            change(9, "/calico/else/where", Some("")),
            change(10, HANDLE, None),
            change(11, HANDLE, Some(block)),
            change(12, deleted, Some(block)),
            change(13, deleted, None),
            change(14, odd, Some("kept as it is")),
        ];
        let news = EtcdNews::new(&followed, changes, begun, String::new());
        assert_eq!(news.keys, [odd, HANDLE, deleted].map(|key| key.as_bytes().to_vec()));
        assert_eq!(news.last.revision(), 14);
        let mut whole = Snapshot::default();
        whole.add_entry(odd.as_bytes(), b"kept as it is", 14);
        whole.add_entry(HANDLE.as_bytes(), block.as_bytes(), 11);
        assert_eq!(news.fresh, whole);
    }

    #[test]
    fn the_last_write_that_is_known_is_reported_again() {
        let mut last = LastWrite::default();
        last.note(6, || change(6, HANDLE, Some("{}")));
        last.note(7, || change(7, HANDLE, Some("{}")));
        assert!(last.is_among(&[change(7, HANDLE, Some("{}")), change(8, HANDLE, None)]));
        assert!(!last.is_among(&[change(7, HANDLE, Some("other")), change(8, HANDLE, Some("{}"))]));
        assert!(!last.is_among(&[]) && !LastWrite::default().is_among(&[]));
    }
}
