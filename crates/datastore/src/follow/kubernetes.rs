//! Kinds of Kubernetes that were listed and are followed: each is watched from the version of its list on, and what the watches report is
//! taken together, whenever it is asked for.
//!
//! The watches know nothing of each other: the change of one kind may be known while an earlier one of another is not. What
//! everything was at some time is known only after [`KubeFollowed::prove`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use calipam_files::objects::{Encoding, KnownKind};
use calipam_files::recording::Positions;
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout};

use super::Changed;
use super::objects::{self, change};
use crate::changes::kubernetes::recorded;
use crate::changes::kubernetes::watches::{Message, Watches};
use crate::changes::{Broken, WhyWhole};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch;
use crate::error::{Cause, Result};

/// How long it may take the server to say that everything was reported.
const PATIENCE: Duration = Duration::from_secs(15);

/// How far kinds were followed.
pub(super) struct KubeFollowed {
    kinds: Vec<Kind>,
    positions: Positions,
    /// `None` where they have ended.
    watches: Option<Watches>,
    /// What was reported and not taken yet.
    reported: Vec<Message>,
    clock: Clock,
    /// Up to when everything is known.
    proven: Timestamp,
}

/// The server's clock at one moment, continued by this machine's monotonic clock.
struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.checked_add(passed).unwrap_or(self.at)
    }
}

/// What has changed.
pub(super) struct KubeNews {
    changed: BTreeSet<objects::Changed>,
    positions: Positions,
    /// The objects as they are since.
    fresh: Snapshot,
    now: Timestamp,
}

impl KubeNews {
    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    /// Makes the snapshot what is stored now.
    pub(super) fn apply(self, snapshot: &mut Snapshot, followed: &mut KubeFollowed) -> Changed {
        let Self { changed, positions, fresh, now: at } = self;
        let now = fresh.clone();
        let before = change(snapshot, &changed, fresh);
        followed.positions = positions;
        snapshot.taken_at = at;
        Changed { before, now }
    }
}

impl KubeFollowed {
    /// Begins after lists of these kinds, which were read from `begin` on, when it was `at` by the clock of the server. Brings the
    /// snapshot into the order that is kept.
    pub(super) fn begin(
        client: &Arc<KubeClient>,
        kinds: Vec<Kind>,
        mut positions: Positions,
        (begin, at): (Instant, Timestamp),
        snapshot: &mut Snapshot,
    ) -> Self {
        objects::sort(snapshot);
        positions.retain(|plural, _| kinds.iter().any(|kind| kind.known.plural == plural));
        let watches = Some(Watches::begin(client, &kinds, &positions));
        let clock = Clock { at, since: begin };
        Self { kinds, positions, watches, reported: Vec::new(), clock, proven: at }
    }

    /// The version up to which blocks are known.
    pub(super) fn revision(&self) -> i64 {
        self.positions.get("ipamblocks").map_or(0, |position| position.revision)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn proven(&self) -> Timestamp {
        self.proven
    }

    /// Waits until something has changed, or why that is not known.
    pub(super) async fn wait(&mut self, client: &Arc<KubeClient>) {
        let is_news = |message: &Message| matches!(message, Message::Change(..) | Message::Broken(_));
        while !self.reported.iter().any(is_news) {
            let message = self.watches(client).next().await;
            self.reported.push(message);
        }
    }

    /// Sees to it that everything that has happened by now is known, when it is `now`.
    ///
    /// # Errors
    /// Where the server does not say so in time.
    pub(super) async fn prove(&mut self, client: &Arc<KubeClient>, now: Timestamp) -> Result<()> {
        let mut missing: HashSet<&str> = self.kinds.iter().map(|kind| kind.known.plural).collect();
        let asked = self.watches(client).ask();
        let proving = async {
            while !missing.is_empty() {
                let message = self.watches(client).next().await;
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
            // The next question for news tells why.
            Ok(false) => {}
            Err(_) => {
                self.watches = None;
                let failure = Cause::TimedOut(PATIENCE.as_secs()).into();
                return Err(client.error("whether all changes were reported", failure));
            }
        }
        Ok(())
    }

    /// Returns the changes since the last call, or why everything has to be read.
    ///
    /// # Errors
    /// Where the server cannot be asked. The next time, what has been reported and not taken is reported again.
    pub(super) fn news(
        &mut self,
        client: &Arc<KubeClient>,
    ) -> Result<std::result::Result<KubeNews, WhyWhole>> {
        let now = self.now();
        let watches = self.watches(client);
        let later: Vec<Message> = watches.reported().collect();
        let mut taken = Taken { positions: self.positions.clone(), ..Taken::default() };
        for message in std::mem::take(&mut self.reported).into_iter().chain(later) {
            match message {
                Message::Change(known, change) => taken.change(known, change),
                Message::Reached(kind, version) => taken.reach(kind, version),
                Message::Current(..) => {}
                Message::Broken(broken) => {
                    self.watches = None;
                    return match broken {
                        Broken::Lost(why) => Ok(Err(why)),
                        Broken::Failed(error) => Err(error),
                    };
                }
            }
        }
        Ok(Ok(taken.news(now)))
    }

    /// The watches. If they have ended, they begin again, and report again what was not taken.
    fn watches(&mut self, client: &Arc<KubeClient>) -> &mut Watches {
        if self.watches.is_none() {
            self.reported.clear();
        }
        self.watches.get_or_insert_with(|| Watches::begin(client, &self.kinds, &self.positions))
    }
}

#[derive(Default)]
struct Taken {
    /// The last change of each object.
    changes: BTreeMap<objects::Changed, (&'static KnownKind, watch::Change)>,
    positions: Positions,
}

impl Taken {
    fn change(&mut self, known: &'static KnownKind, change: watch::Change) {
        self.reach(known.plural, change.version.cast_signed());
        let (plural, source) = (known.plural, known.source);
        let (name, uid) = (change.name.clone(), change.uid.clone());
        self.changes.insert(objects::Changed { plural, source, name, uid }, (known, change));
    }

    fn reach(&mut self, kind: &'static str, version: i64) {
        if let Some(position) = self.positions.get_mut(kind) {
            position.revision = position.revision.max(version);
        }
    }

    fn news(mut self, now: Timestamp) -> KubeNews {
        let mut last: HashMap<&str, (&KnownKind, &watch::Change)> = HashMap::new();
        let mut fresh = Snapshot::default();
        for (known, change) in self.changes.values() {
            let latest = last.entry(known.plural).or_insert((known, change));
            if latest.1.version < change.version {
                *latest = (known, change);
            }
            if !change.is_deleted {
                (known.add)(&mut fresh, &change.object, Encoding::Json);
            }
        }
        for (kind, (known, change)) in last {
            if let Some(position) = self.positions.get_mut(kind) {
                position.note(&recorded(known, change));
            }
        }
        KubeNews { changed: self.changes.into_keys().collect(), positions: self.positions, fresh, now }
    }
}
