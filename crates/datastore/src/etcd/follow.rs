//! Reads etcd once and then follows its changes. Each time, etcd must report its last known write again, and then all
//! later changes. If it reports a different write instead, its data was restored from a backup, or it is another etcd.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use calipam_files::raw::RawEntry;
use calipam_files::recording::{Change, Position, checksum};
use calipam_files::{Extent, ProgressFn};
use calipam_model::block::RecordDetail;
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use jiff::Timestamp;
use tokio::time::timeout;

use super::changes::{range, require_exact, since};
use super::client::EtcdClient;
use super::whole::pull::Collector;
use super::whole::{self, Start};
use crate::error::Result;
use crate::feed::{Broken, Changed, Feed, WholeReadReason};

/// Time limit for etcd to report changes. If etcd takes longer, everything is read again instead.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Time without changes after which a request checks that this is still the same etcd.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// An etcd whose data has been read, and whose changes are now followed.
pub(super) struct EtcdFeed {
    client: Arc<EtcdClient>,
    followed: Point,
    /// Changes that have not been applied.
    news: Option<News>,
}

#[async_trait]
impl Feed for EtcdFeed {
    fn revision(&self) -> i64 {
        self.followed.revision()
    }

    fn now(&self) -> Timestamp {
        crate::clock::now()
    }

    fn confirmed_until(&self) -> Option<Timestamp> {
        None
    }

    fn resume(&mut self, etcd: &Arc<EtcdClient>) {
        self.client = Arc::clone(etcd);
    }

    /// Waits for a change, or until etcd turns out to have another history, which a watch does not reveal.
    async fn wait(&mut self) -> Result<()> {
        loop {
            let watched = range();
            let next_change = self.client.next_change(&watched, self.revision());
            if let Ok(result) = timeout(IDLE_INTERVAL, next_change).await {
                return result;
            }
            match read_news(&self.client, &self.followed).await {
                Ok(news) if !news.keys.is_empty() => return Ok(()),
                Err(Broken::Lost(WholeReadReason::AnotherHistory(_))) => return Ok(()),
                Err(Broken::Failed(error)) => return Err(error),
                Ok(_) | Err(Broken::Lost(_)) => {}
            }
        }
    }

    /// Does nothing, since etcd's changes are complete up to the revision of each answer.
    async fn confirm_current(&mut self, _now: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn news(&mut self) -> Result<usize, Broken> {
        let news = read_news(&self.client, &self.followed).await?;
        let changed = news.keys.len();
        self.news = Some(news);
        Ok(changed)
    }

    fn apply(&mut self, snapshot: &mut Snapshot) -> Changed {
        match self.news.take() {
            Some(news) => news.apply(snapshot, &mut self.followed),
            None => Changed::default(),
        }
    }
}

/// The point up to which an etcd was followed.
#[derive(Clone, Debug)]
struct Point {
    /// etcd's cluster ID, and the GUID from Calico.
    identity: (u64, String),
    raft_term: u64,
    position: Position,
}

impl Point {
    /// The revision up to which all changes are known.
    fn revision(&self) -> i64 {
        self.position.revision
    }

    /// Checks that `now` is a state of the same etcd, which has not gone back to an earlier term.
    fn require_same_history(&self, now: &Self) -> Result<(), WholeReadReason> {
        let reason = if now.identity != self.identity {
            "it is another cluster".to_owned()
        } else if now.raft_term < self.raft_term {
            format!(
                "its raft term was {}, but is now {}",
                self.raft_term, now.raft_term
            )
        } else {
            return Ok(());
        };
        Err(WholeReadReason::AnotherHistory(reason))
    }
}

/// Changes after the point up to which etcd was followed.
struct News {
    /// The changed keys, in ascending order.
    keys: Vec<Vec<u8>>,
    /// The current objects with these keys.
    objects: Snapshot,
    /// The point after these changes.
    now: Point,
    taken_at: Timestamp,
}

impl News {
    /// Gathers the changes between the points `before` and `now`, in ascending order, which were read at `taken_at`. Of
    /// each changed object, keeps only the current state.
    fn new(before: &Point, changes: Vec<Change>, now: Point, taken_at: Timestamp) -> Self {
        let last_change = match changes.last() {
            Some(change) => Some((change.revision, checksum(change))),
            None => before.position.last,
        };

        let mut last_by_key: BTreeMap<Vec<u8>, Change> = BTreeMap::new();
        for change in changes {
            last_by_key.insert(change.key.clone(), change);
        }
        let mut objects = Snapshot::default();
        for change in last_by_key.values() {
            // A deletion has no value.
            if let Some(value) = &change.value {
                objects.add_entry(&change.key, value, change.revision);
            }
        }

        Self {
            keys: last_by_key.into_keys().collect(),
            objects,
            now: Point {
                position: Position {
                    last: last_change,
                    ..now.position
                },
                ..now
            },
            taken_at,
        }
    }

    /// Updates the followed snapshot to the current data.
    fn apply(self, snapshot: &mut Snapshot, followed: &mut Point) -> Changed {
        let before = snapshot.change_entries(&self.keys, self.objects.clone());
        snapshot.revision = self.now.revision().to_string();
        snapshot.taken_at = self.taken_at;
        *followed = self.now;
        Changed {
            before,
            now: self.objects,
        }
    }
}

/// Reads everything, and returns a feed of the changes after that.
///
/// # Errors
/// The same as for a whole read.
pub(super) async fn start(client: &Arc<EtcdClient>, progress: &ProgressFn) -> Result<(Snapshot, EtcdFeed)> {
    let collect = |_: &Start| Ok(CollectorWithLastWrite::default());
    let observed = whole::observe(client, None, &Extent::Whole, collect, progress).await?;
    let start = observed.start;
    let CollectorWithLastWrite {
        mut snapshot,
        last_write,
    } = observed.collector;
    let mut followed = Point {
        identity: (start.first.cluster_id, snapshot.guid().to_owned()),
        raft_term: start.first.raft_term,
        position: Position {
            revision: start.revision,
            ..last_write
        },
    };
    snapshot.set_origin(start.endpoint, start.revision, start.taken_at);
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.mark_read(ETCD_SOURCES);

    // The last write may be a deletion, which does not show in the data.
    match read_news(client, &followed).await {
        Ok(news) => drop(news.apply(&mut snapshot, &mut followed)),
        // The first read of changes finds the reason again, and reports it.
        Err(Broken::Lost(_)) => {}
        Err(Broken::Failed(error)) => return Err(error),
    }

    let feed = EtcdFeed {
        client: Arc::clone(client),
        followed,
        news: None,
    };
    Ok((snapshot, feed))
}

/// Reads the changes after `followed`.
///
/// # Errors
/// If etcd cannot be reached, or everything must be read again.
async fn read_news(client: &Arc<EtcdClient>, followed: &Point) -> Result<News, Broken> {
    let information = client.cluster_information().await?;
    let taken_at = crate::clock::now();
    let now = Point {
        identity: (information.cluster_id, information.guid()),
        raft_term: information.raft_term,
        position: Position::at(information.revision),
    };
    let changes = read_changes(client, followed, &now).await?;
    Ok(News::new(followed, changes, now, taken_at))
}

/// Reads the changes since a point.
///
/// # Errors
/// If everything must be read again, also because etcd fails to report the changes.
async fn read_changes(
    client: &EtcdClient,
    followed: &Point,
    now: &Point,
) -> Result<Vec<Change>, WholeReadReason> {
    followed.require_same_history(now)?;
    require_exact(client).await?;

    let changes = since(client, followed.position, now.revision());
    let Ok(result) = timeout(TIME_LIMIT, changes).await else {
        let reason = "etcd does not confirm that these are all changes".to_owned();
        return Err(WholeReadReason::CannotWatch(reason));
    };
    result.map_err(|broken| match broken {
        Broken::Lost(reason) => reason,
        Broken::Failed(error) => WholeReadReason::CannotWatch(error.to_string()),
    })
}

/// A collector that gathers a snapshot and remembers the last write.
#[derive(Default)]
struct CollectorWithLastWrite {
    snapshot: Snapshot,
    last_write: Position,
}

impl Collector for CollectorWithLastWrite {
    type Chunk = Self;

    fn chunk(_: RecordDetail) -> Self {
        Self::default()
    }

    /// Adds an entry to the snapshot of a chunk, and remembers the entry if it was written last.
    fn add(chunk: &mut Self, entry: RawEntry<'_>) {
        let is_newest = entry.mod_revision > chunk.last_write.revision;
        if is_newest {
            chunk.last_write.note(&Change {
                revision: entry.mod_revision,
                key: entry.key.to_vec(),
                value: Some(entry.value.to_vec()),
            });
        }
        chunk
            .snapshot
            .add_entry(entry.key, entry.value, entry.mod_revision);
    }

    fn commit(&mut self, chunk: Self) -> Result<()> {
        self.snapshot.absorb(chunk.snapshot);
        if chunk.last_write.revision > self.last_write.revision {
            self.last_write = chunk.last_write;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = "/calico/ipam/v2/handle/net.a";

    fn change(revision: i64, key: &str, value: Option<&str>) -> Change {
        Change {
            revision,
            key: key.into(),
            value: value.map(Into::into),
        }
    }

    #[test]
    fn the_last_change_of_a_key_counts() {
        let at = |revision: i64| Point {
            identity: (1, String::new()),
            raft_term: 1,
            position: Position::at(revision),
        };
        let block = r#"{"block":{"10.0.0.0/26":1}}"#;
        let deleted = "/calico/ipam/v2/handle/net.b";
        let odd = "/calico/ipam/v2/@/odd";
        let changes = vec![
            change(8, HANDLE, Some("broken")),
            change(10, HANDLE, None),
            change(11, HANDLE, Some(block)),
            change(12, deleted, Some(block)),
            change(13, deleted, None),
            change(14, odd, Some("kept as it is")),
        ];
        let last = checksum(&changes[5]);
        let news = News::new(&at(7), changes, at(14), Timestamp::UNIX_EPOCH);
        assert_eq!(
            news.keys,
            [odd, HANDLE, deleted].map(|key| key.as_bytes().to_vec())
        );
        assert_eq!(
            news.now.position,
            Position {
                revision: 14,
                last: Some((14, last))
            }
        );
        let mut whole = Snapshot::default();
        whole.add_entry(odd.as_bytes(), b"kept as it is", 14);
        whole.add_entry(HANDLE.as_bytes(), block.as_bytes(), 11);
        assert_eq!(news.objects, whole);
    }
}
