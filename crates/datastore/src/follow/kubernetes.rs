//! Kubernetes kinds that are listed once and then followed: each is watched from the version of its list on, and the
//! changes of all kinds are collected on request.
//!
//! The watches are independent: a change of one kind may be known before an earlier change of another kind. The state
//! of all kinds at one time is known only after [`KubeFollowed::prove`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use calipam_files::objects::{Encoding, KnownKind};
use calipam_files::recording::Positions;
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout};

use super::objects::{self, change};
use super::{Changed, OrWhole};
use crate::changes::kubernetes::{Message, Watches};
use crate::changes::{Broken, WhyWhole};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch;
use crate::error::{Cause, Result};

/// The kind that every assignment and release writes.
const BLOCKS: &str = "ipamblocks";
/// Time for the server to confirm that everything was reported.
const PATIENCE: Duration = Duration::from_secs(15);

/// The followed kinds, their watches, and the point up to which their changes were applied.
pub(super) struct KubeFollowed {
    kinds: Vec<Kind>,
    /// The version up to which blocks are known.
    pub(super) blocks: i64,
    watches: Watches,
    /// The reason that changes can no longer be followed.
    lost: Option<WhyWhole>,
    /// Reports that have not been applied.
    reported: Vec<Message>,
    pub(super) clock: Clock,
    /// The time up to which all changes are known.
    pub(super) proven: Timestamp,
}

/// The snapshot's clock at one moment, continued by this machine's monotonic clock.
pub(super) struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    pub(super) fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.checked_add(passed).unwrap_or(self.at)
    }
}

pub(super) struct KubeNews {
    pub(super) changed: BTreeSet<objects::Changed>,
    blocks: i64,
    /// The current state of the objects in `changed`.
    fresh: Snapshot,
    now: Timestamp,
}

impl KubeNews {
    /// Updates the snapshot to the current data.
    pub(super) fn apply(self, snapshot: &mut Snapshot, followed: &mut KubeFollowed) -> Changed {
        let Self { changed, blocks, fresh, now: at } = self;
        let now = fresh.clone();
        let before = change(snapshot, &changed, fresh);
        followed.blocks = blocks;
        snapshot.taken_at = at;
        Changed { before, now }
    }
}

impl KubeFollowed {
    /// Starts to follow kinds after they were listed. The lists were read from `begin` on, which is `at` by the
    /// snapshot's clock. Sorts the snapshot into the order that updates need.
    pub(super) fn begin(
        client: &Arc<KubeClient>,
        kinds: Vec<Kind>,
        positions: &Positions,
        (begin, at): (Instant, Timestamp),
        snapshot: &mut Snapshot,
    ) -> Self {
        objects::sort(snapshot);
        let watches = Watches::begin(client, &kinds, positions);
        let blocks = positions.get(BLOCKS).map_or(0, |position| position.revision);
        let clock = Clock { at, since: begin };
        Self { kinds, blocks, watches, lost: None, reported: Vec::new(), clock, proven: at }
    }

    /// Waits for a change, or until changes can no longer be followed.
    pub(super) async fn wait(&mut self) {
        let is_news = |message: &Message| matches!(message, Message::Change(..) | Message::Broken(_));
        while self.lost.is_none() && !self.reported.iter().any(is_news) {
            let message = self.watches.next().await;
            self.reported.push(message);
        }
    }

    /// Waits until all changes up to now are known, or until changes can no longer be followed. `now` is the current
    /// time by the snapshot's clock.
    ///
    /// # Errors
    /// If the server does not confirm in time that these are all changes.
    pub(super) async fn prove(&mut self, client: &Arc<KubeClient>, now: Timestamp) -> Result<()> {
        let mut missing: HashSet<&str> = self.kinds.iter().map(|kind| kind.known.plural).collect();
        let is_broken = |message: &Message| matches!(message, Message::Broken(_));
        if self.lost.is_some() || self.reported.iter().any(is_broken) {
            return Ok(());
        }
        let asked = self.watches.ask();
        let proving = async {
            while !missing.is_empty() {
                let message = self.watches.next().await;
                match &message {
                    Message::Current(kind, number) if *number >= asked => drop(missing.remove(kind)),
                    Message::Broken(_) => {
                        self.reported.push(message);
                        return false;
                    }
                    _ => self.reported.push(message),
                }
            }
            true
        };
        match timeout(PATIENCE, proving).await {
            Ok(true) => self.proven = now,
            // The next call of `news` returns the reason.
            Ok(false) => {}
            Err(_) => {
                let failure = Cause::TimedOut(PATIENCE.as_secs()).into();
                return Err(client.error("whether all changes were reported", failure));
            }
        }
        Ok(())
    }

    /// Returns the changes since the last call, or the reason that everything must be read. Once there is a reason,
    /// every later call returns it.
    ///
    /// # Errors
    /// If the server cannot be reached. The next calls return a reason instead.
    pub(super) fn news(&mut self) -> Result<OrWhole<KubeNews>> {
        let mut latest = LatestChanges { blocks: self.blocks, ..LatestChanges::default() };
        let reported = std::mem::take(&mut self.reported);
        for message in reported.into_iter().chain(self.watches.reported()) {
            match message {
                _ if self.lost.is_some() => {}
                Message::Change(known, change) => latest.change(known, change),
                Message::Reached(kind, version) => latest.reach(kind, version),
                Message::Current(..) => {}
                Message::Broken(Broken::Lost(why)) => self.lost = Some(why),
                Message::Broken(Broken::Failed(error)) => {
                    self.lost = Some(WhyWhole::Interrupted);
                    return Err(error);
                }
            }
        }
        Ok(self.lost.clone().map_or_else(|| Ok(latest.news(self.clock.now())), Err))
    }
}

#[derive(Default)]
struct LatestChanges {
    /// The last change of each object.
    changes: BTreeMap<objects::Changed, (&'static KnownKind, watch::Change)>,
    blocks: i64,
}

impl LatestChanges {
    fn change(&mut self, known: &'static KnownKind, change: watch::Change) {
        self.reach(known.plural, change.version.cast_signed());
        let (plural, source) = (known.plural, known.source);
        let (name, uid) = (change.name.clone(), change.uid.clone());
        self.changes.insert(objects::Changed { plural, source, name, uid }, (known, change));
    }

    fn reach(&mut self, kind: &'static str, version: i64) {
        if kind == BLOCKS {
            self.blocks = self.blocks.max(version);
        }
    }

    fn news(self, now: Timestamp) -> KubeNews {
        let mut fresh = Snapshot::default();
        for (known, change) in self.changes.values().filter(|(_, change)| !change.is_deleted) {
            known.add(&mut fresh, &change.object, Encoding::Json);
        }
        KubeNews { changed: self.changes.into_keys().collect(), blocks: self.blocks, fresh, now }
    }
}
