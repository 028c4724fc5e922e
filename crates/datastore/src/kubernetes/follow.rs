//! Kubernetes kinds that are listed once and then followed: each is watched from the version of its list on, and the
//! changes of all kinds are collected on request.
//!
//! The watches are independent, so a change of one kind may be known before an earlier change of another kind. The
//! state of all kinds at one time is known only after [`Feed::confirm_current`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use calipam_files::objects::{Encoding, KnownKind};
use calipam_files::recording::Positions;
use calipam_files::{Extent, ProgressFn};
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout};

use super::changes::{Message, Watches, positions, require_watch};
use super::client::KubeClient;
use super::client::kinds::Kind;
use super::client::watch;
use super::objects::{self, change};
use super::whole::list::Counter;
use super::whole::order::{Lists, lists_in_order};
use super::whole::{assemble, plan};
use crate::error::{Cause, Error, Result};
use crate::feed::{Broken, Changed, Feed, WholeReadReason};

/// The kind that every assignment and release writes.
const BLOCKS: &str = "ipamblocks";
/// Time limit for the server to confirm that everything was reported.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// The followed kinds, their watches, and the point up to which their changes were applied.
pub(crate) struct KubeFeed {
    client: Arc<KubeClient>,
    kinds: Vec<Kind>,
    /// The version up to which blocks are known.
    blocks_version: i64,
    watches: Watches,
    /// The reason why changes can no longer be followed.
    lost: Option<WholeReadReason>,
    /// Reports that have not been collected.
    reported: Vec<Message>,
    /// Changes that have not been applied.
    latest: LatestChanges,
    clock: Clock,
    /// The time up to which all changes are known.
    confirmed_until: Timestamp,
}

/// The snapshot's clock at one moment, continued by this machine's monotonic clock.
pub(crate) struct Clock {
    start: Timestamp,
    started: Instant,
}

impl Clock {
    /// A clock that shows `start` now.
    pub(crate) fn starting_at(start: Timestamp) -> Self {
        Self {
            start,
            started: Instant::now(),
        }
    }

    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.start.checked_add(passed).unwrap_or(self.start)
    }
}

impl KubeFeed {
    /// Starts to follow kinds after they were listed. `clock` was started just before the lists were read. Sorts the
    /// snapshot into the order that updates need.
    pub(crate) fn begin(
        client: &Arc<KubeClient>,
        kinds: Vec<Kind>,
        positions: &Positions,
        clock: Clock,
        snapshot: &mut Snapshot,
    ) -> Self {
        objects::sort(snapshot);
        let watches = Watches::begin(client, &kinds, positions);
        let blocks_version = positions.get(BLOCKS).map_or(0, |position| position.revision);
        Self {
            client: Arc::clone(client),
            kinds,
            blocks_version,
            watches,
            lost: None,
            reported: Vec::new(),
            latest: LatestChanges {
                blocks_version,
                collected_at: clock.start,
                ..LatestChanges::default()
            },
            confirmed_until: clock.start,
            clock,
        }
    }
}

#[async_trait]
impl Feed for KubeFeed {
    fn revision(&self) -> i64 {
        self.blocks_version
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn confirmed_until(&self) -> Option<Timestamp> {
        Some(self.confirmed_until)
    }

    /// Waits until a change arrives, or until a watch is broken.
    async fn wait(&mut self) -> Result<()> {
        let ends_wait = |message: &Message| matches!(message, Message::Change(..) | Message::Broken(_));
        while self.lost.is_none() && !self.reported.iter().any(ends_wait) {
            let message = self.watches.next().await;
            self.reported.push(message);
        }
        Ok(())
    }

    /// Waits until all changes up to now are known, or until changes can no longer be followed.
    ///
    /// # Errors
    /// If the server does not confirm in time that these are all changes.
    async fn confirm_current(&mut self, now: Timestamp) -> Result<()> {
        let is_broken = |message: &Message| matches!(message, Message::Broken(_));
        if self.lost.is_some() || self.reported.iter().any(is_broken) {
            return Ok(());
        }

        match timeout(TIME_LIMIT, self.all_kinds_confirm()).await {
            Ok(true) => self.confirmed_until = now,
            // The next call of `news` returns the reason.
            Ok(false) => {}
            Err(_) => {
                let failure = Cause::TimedOut(TIME_LIMIT.as_secs()).into();
                let what = "the confirmation that all changes were reported";
                return Err(self.client.error(what, failure));
            }
        }
        Ok(())
    }

    /// Collects the reported changes, and returns the number of changes that wait to be applied.
    ///
    /// # Errors
    /// If a watch has broken. Once there is a reason to read everything, every later call returns it. After another
    /// failure, the later calls say that the watch was interrupted.
    async fn news(&mut self) -> Result<usize, Broken> {
        let mut reported = take(&mut self.reported);
        reported.extend(self.watches.waiting());
        for message in reported {
            // Once everything must be read again, the other reports have no use.
            if self.lost.is_none() {
                self.collect(message)?;
            }
        }
        self.latest.collected_at = self.clock.now();
        match &self.lost {
            Some(reason) => Err(reason.clone().into()),
            None => Ok(self.latest.changes.len()),
        }
    }

    /// Applies the latest changes to a snapshot, and returns the changed objects before and after.
    fn apply(&mut self, snapshot: &mut Snapshot) -> Changed {
        let mut now = Snapshot::default();
        for (known, change) in self.latest.changes.values() {
            if !change.is_deleted {
                known.add(&mut now, &change.object, Encoding::Json);
            }
        }
        let changed: BTreeSet<objects::Changed> = take(&mut self.latest.changes).into_keys().collect();
        let before = change(snapshot, &changed, now.clone());

        self.blocks_version = self.latest.blocks_version;
        snapshot.revision = self.blocks_version.to_string();
        snapshot.taken_at = self.latest.collected_at;
        Changed { before, now }
    }
}

impl KubeFeed {
    /// Notes a report. A broken watch is the reason why changes can no longer be followed.
    ///
    /// # Errors
    /// If a watch has failed without the loss of changes.
    fn collect(&mut self, report: Message) -> Result<(), Broken> {
        match report {
            Message::Change(known, change) => self.latest.change(known, change),
            Message::Reached(kind, version) => self.latest.reach(kind, version),
            // This confirmation came after the wait for it had ended.
            Message::Current(..) => {}
            Message::Broken(Broken::Lost(reason)) => self.lost = Some(reason),
            Message::Broken(Broken::Failed(error)) => {
                self.lost = Some(WholeReadReason::Interrupted);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Asks the watches to confirm that they have reported everything, and keeps what they report meanwhile. Returns
    /// true once all kinds have confirmed it, or false if a watch is broken.
    async fn all_kinds_confirm(&mut self) -> bool {
        let mut missing: HashSet<&str> = self.kinds.iter().map(|kind| kind.known.plural).collect();
        let asked = self.watches.ask();
        while !missing.is_empty() {
            let message = self.watches.next().await;
            match message {
                Message::Current(kind, number) => {
                    // A lower number answers an earlier request.
                    if number >= asked {
                        missing.remove(kind);
                    }
                }
                Message::Broken(_) => {
                    self.reported.push(message);
                    return false;
                }
                Message::Change(..) | Message::Reached(..) => self.reported.push(message),
            }
        }
        true
    }
}

/// Changes that have been collected from the watches, but not applied.
#[derive(Default)]
struct LatestChanges {
    /// The last change of each object.
    changes: BTreeMap<objects::Changed, (&'static KnownKind, watch::Change)>,
    /// The version up to which all changes of blocks were collected.
    blocks_version: i64,
    collected_at: Timestamp,
}

impl LatestChanges {
    /// Notes a change, in place of an earlier one of the same object.
    fn change(&mut self, known: &'static KnownKind, change: watch::Change) {
        self.reach(known.plural, change.version.cast_signed());
        let object = objects::Changed {
            plural: known.plural,
            source: known.source,
            name: change.name.clone(),
            uid: change.uid.clone(),
        };
        self.changes.insert(object, (known, change));
    }

    /// Notes that all changes of a kind up to `version` were collected.
    fn reach(&mut self, kind: &'static str, version: i64) {
        if kind == BLOCKS {
            self.blocks_version = self.blocks_version.max(version);
        }
    }
}

/// Reads the whole Kubernetes datastore, and starts to follow it.
///
/// # Errors
/// If it cannot be read or followed.
pub(super) async fn start(
    client: &Arc<KubeClient>,
    progress: &ProgressFn,
) -> Result<(Snapshot, KubeFeed), Broken> {
    let plan = plan(client, &Extent::Whole).await?;
    require_proof(client, &plan.kinds).await?;
    let started = Instant::now();
    let reader = Lists {
        client: Arc::clone(client),
        counter: Counter::new(progress),
    };
    let lists = lists_in_order::<Snapshot>(&reader, &plan).await?;
    let positions = positions(&plan.kinds, &lists);
    let mut snapshot = assemble(client, plan.coverage, lists);
    let clock = Clock {
        start: snapshot.taken_at,
        started,
    };
    let feed = KubeFeed::begin(client, plan.kinds, &positions, clock, &mut snapshot);
    Ok((snapshot, feed))
}

/// Checks that the API server can prove that it has reported all changes of these kinds.
///
/// # Errors
/// If it cannot, the user may not watch the kinds, or the server cannot be asked.
pub(crate) async fn require_proof(client: &Arc<KubeClient>, kinds: &[Kind]) -> Result<(), Broken> {
    if !client.api().whole_lists {
        let reason = "only Kubernetes 1.33 and later confirms that it has reported all changes";
        return Err(WholeReadReason::CannotWatch(reason.to_owned()).into());
    }
    match require_watch(client, kinds).await {
        Err(error @ Error::Permission { .. }) => Err(WholeReadReason::CannotWatch(error.to_string()).into()),
        result => Ok(result?),
    }
}
