//! The datastore and everything else that the explorer controls. Every request waits until the explorer decides on it.

mod audit;
mod client;
mod disk;
pub mod etcd;
mod footprint;
pub mod kubernetes;
mod node;
mod turn;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use calipam_model::parallel::lock;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::memory::MemoryStore;
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) use self::audit::{Audit, NotedWrite};
pub use self::client::Client;
pub(crate) use self::disk::{Files, OneDisk};
pub use self::footprint::Footprint;
pub use self::node::Node;
pub(crate) use self::node::{AllNotes, NoteOfBeginning, notes_path};
pub(crate) use self::turn::PendingRequest;
use self::turn::{Grace, Pending};
use crate::truth::Truth;

/// The prefix of all values.
pub(crate) const ALL: &str = "/calico/";

/// The prefix of pods in footprints.
pub(crate) const PODS: &str = "pods/";

/// The nodes of every world. Names decide where a node begins to search a pool: `a5` at the first block, `b55` and `c8` at
/// two others if there are as many.
pub(crate) const NODES: [&str; 3] = ["a5", "b55", "c8"];

/// A request, identified by its actor and its number among the actor's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub actor: usize,
    pub number: usize,
}

/// An event of a request, an actor, the clock or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum Event {
    /// The request is answered.
    Go,
    /// The request gets no answer. A write may take effect at any later time, or never.
    Fail,
    /// The API server is overloaded, and asks the client to retry a second later.
    PutOff,
    /// The list cannot continue, since its revision has been compacted.
    Expire,
    /// A write takes effect after its sender has stopped waiting for it.
    Land,
    /// An actor is killed. Its requests may still take effect.
    Kill,
    /// A power failure kills an actor, whose journal loses half of the bytes that were not durable yet.
    Crash,
    /// The clock jumps ahead or back.
    Jump,
    /// The datastore does not answer a process until the process gives up, and then answers again.
    Hang,
    /// The datastore never answers a process again.
    Silence,
    /// The notes file of a node becomes unreadable.
    TearNotes,
    /// The notes of a node revert to the previous version, as after a power failure.
    OldNotes,
}

impl Event {
    /// True if the event is about a request, rather than about an actor, a node or the clock.
    pub(crate) fn has_request(self) -> bool {
        matches!(
            self,
            Self::Go | Self::Fail | Self::PutOff | Self::Expire | Self::Land
        )
    }
}

/// The kind of work that an actor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// DEL or GC releases a pod's addresses.
    Releases,
    /// A command executes a plan.
    Repairs,
    /// A command restores the state before the previous run.
    Undoes,
}

impl Phase {
    pub(crate) fn is_of_command(self) -> bool {
        self != Self::Releases
    }
}

/// Stored values, with their paths and revisions.
pub(crate) type Values = Vec<(String, Vec<u8>, i64)>;

/// Creates the snapshot that a check would take of these values.
pub(crate) fn snapshot(values: &[(String, Vec<u8>, i64)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (path, value, revision) in values {
        if !kubernetes::decode(&mut snapshot, path, value, *revision) {
            snapshot.add_entry(path.as_bytes(), value, *revision);
        }
    }
    snapshot
}

/// Executes a late write, without an answer.
pub(crate) type Write = Arc<dyn Fn(&MemoryStore) + Send + Sync>;

/// The time that clients wait for an answer before their first write. It is longer than a schedule, so that it is
/// reached only if the explorer decides so.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The datastore, its pending requests, and the truth about the cluster.
#[derive(Default)]
pub struct World {
    /// True if each request is answered at once, without a decision.
    pub(crate) is_free: bool,
    /// The stored values.
    pub data: MemoryStore,
    state: Mutex<State>,
    /// The real users of addresses.
    pub truth: Truth,
    audit: Mutex<Audit>,
    /// The journals of all runs of calipam.
    pub(crate) files: Files,
    /// The notes of nodes.
    pub(crate) notes: AllNotes,
    /// Notified when a request is cancelled.
    pub(super) cancelled: Notify,
    /// The number of objects on a page of a list, if the values are objects in Kubernetes, stored under their paths on
    /// an API server; 0 means all.
    page: OnceLock<usize>,
    /// The values before the first step.
    beginning: OnceLock<MemoryStore>,
}

#[derive(Default)]
struct State {
    now: Timestamp,
    jumped: SignedDuration,
    pending: BTreeMap<RequestId, Pending>,
    /// Writes whose senders no longer wait for them.
    late_writes: BTreeMap<RequestId, PendingRequest>,
    /// Requests that get no answer and no error.
    hung: Vec<Pending>,
    /// Number of requests that each actor has sent so far.
    numbers: BTreeMap<usize, usize>,
    /// A hash of all answers to each actor. The answers determine the actor's next steps.
    answers: BTreeMap<usize, u64>,
    /// The holder of each lock.
    locks: BTreeMap<String, usize>,
    /// Actors whose pods wait for addresses.
    adding: BTreeSet<usize>,
    /// Actors that wait for the end of the grace period before their second read.
    waits: BTreeMap<usize, Grace>,
    /// The paths that the current step has touched in addition to its request.
    touched: Footprint,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// Creates an empty cluster.
    pub fn new(now: Timestamp) -> Self {
        let state = Mutex::new(State {
            now,
            ..State::default()
        });
        // Values that exist before the actors start are an hour old.
        let data = MemoryStore::new(now - SignedDuration::from_hours(1));
        Self {
            data,
            state,
            ..Self::default()
        }
    }

    /// Creates a world whose requests are answered at once.
    pub fn free(data: MemoryStore) -> Self {
        Self {
            is_free: true,
            data,
            ..Self::default()
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// All writes, and what the actors are doing.
    pub(crate) fn audit(&self) -> MutexGuard<'_, Audit> {
        lock(&self.audit)
    }

    /// Copies the values to a world without other actors.
    pub fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            page: self.page.clone(),
            ..Self::free(self.data.copy(self.now()))
        })
    }

    /// All stored values.
    pub(crate) fn values(&self) -> Values {
        self.data.values(if self.is_kubernetes() {
            kubernetes::ALL
        } else {
            ALL
        })
    }

    pub(crate) fn is_kubernetes(&self) -> bool {
        self.page.get().is_some()
    }

    /// Replaces the values with objects of an API server whose lists have pages of `page` objects; 0 means no pages.
    pub(crate) fn to_kubernetes(&self, pods: Vec<Value>, page: usize) {
        kubernetes::convert(&self.data, pods);
        let _ = self.page.set(page);
    }

    /// Keeps the current values as those before the first step.
    pub(crate) fn note_beginning(&self) {
        let _ = self.beginning.set(self.data.copy(self.now()));
    }

    /// The values before the first step.
    pub(crate) fn beginning(&self) -> &MemoryStore {
        self.beginning.get().expect("a world that has begun")
    }

    /// The current time, which only the explorer advances.
    pub fn now(&self) -> Timestamp {
        self.state().now
    }

    /// The sum of all jumps.
    pub(crate) fn jumped(&self) -> SignedDuration {
        self.state().jumped
    }

    /// Advances the clocks of nodes and of commands.
    pub(crate) fn jump(&self, by: SignedDuration) {
        self.state().jumped += by;
        self.advance(by);
    }

    /// Advances the clock of nodes.
    pub(crate) fn advance(&self, by: SignedDuration) {
        let now = &mut self.state().now;
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    /// The pending requests, without those that wait for a held lock or for the end of the grace period.
    pub(crate) fn waiting(&self) -> Vec<PendingRequest> {
        let state = self.state();
        let free = |Pending { asked, .. }: &Pending| {
            let grace = state.waits.get(&asked.id.actor);
            let is_free = asked
                .lock
                .as_ref()
                .is_none_or(|lock| !state.locks.contains_key(lock))
                && grace.is_none_or(|grace| grace.adding.is_disjoint(&state.adding));
            let late = grace.into_iter().flat_map(|grace| &grace.late_writes);
            let footprint = late.fold(asked.footprint.clone(), |all, id| {
                all.write(format!("late/{id:?}"))
            });
            is_free.then(|| PendingRequest {
                footprint,
                ..asked.clone()
            })
        };
        state.pending.values().filter_map(free).collect()
    }

    /// True if an actor has a pending request, which may be for a lock.
    pub(crate) fn is_waiting(&self, actor: usize) -> bool {
        self.state().pending.keys().any(|id| id.actor == actor)
    }

    /// Decides on a request and returns it.
    pub(crate) fn decide(&self, id: RequestId, verdict: Event) -> Option<PendingRequest> {
        let mut state = self.state();
        let Pending { asked, decision } = state.pending.remove(&id)?;
        if let Some(grace) = state.waits.remove(&id.actor) {
            state.late_writes.retain(|id, _| !grace.late_writes.contains(id));
        }
        if verdict == Event::Fail {
            state.add_late_write(asked.clone());
        }
        drop(state);
        let _ = decision.send(verdict);
        Some(asked)
    }

    /// Forgets the requests that their senders have cancelled.
    pub(crate) fn forget_cancelled(&self) {
        let mut state = self.state();
        state.pending.retain(|_, pending| !pending.decision.is_closed());
        state.hung.retain(|pending| !pending.decision.is_closed());
    }

    /// True if an actor has a pending request to the datastore.
    pub(crate) fn waits_for_datastore(&self, actor: usize) -> bool {
        self.state()
            .pending
            .iter()
            .any(|(id, pending)| id.actor == actor && !pending.asked.is_local)
    }

    /// The first pending write of an actor to its disk.
    pub(crate) fn pending_on_disk(&self, actor: usize) -> Option<RequestId> {
        let state = self.state();
        let mut own = state
            .pending
            .iter()
            .filter(|(id, pending)| id.actor == actor && pending.asked.is_local);
        own.next().map(|(id, _)| *id)
    }

    /// Leaves the pending requests of an actor to the datastore without an answer. Its writes may take effect at any
    /// later time, or never.
    pub(crate) fn hang(&self, actor: usize) {
        let mut state = self.state();
        state.waits.remove(&actor);
        let hangs = |id: &RequestId, pending: &mut Pending| id.actor == actor && !pending.asked.is_local;
        let pending: Vec<Pending> = state.pending.extract_if(.., hangs).map(|(_, own)| own).collect();
        pending
            .iter()
            .for_each(|pending| state.add_late_write(pending.asked.clone()));
        state.hung.extend(pending);
    }

    /// Waits until an actor gives up one of its requests that [hang](Self::hang), and then sends another one. That one
    /// waits for a second at least, so a look each tenth of a second sees it.
    pub(crate) async fn next_after_giving_up(&self, actor: usize) {
        const LOOK: Duration = Duration::from_millis(100);
        const LOOKS: usize = 40_000;

        let has_given_up = || {
            let state = self.state();
            let mut own = state
                .hung
                .iter()
                .filter(|pending| pending.asked.id.actor == actor);
            own.any(|pending| pending.decision.is_closed())
        };
        while !has_given_up() {
            self.cancelled.notified().await;
        }
        for _ in 0..LOOKS {
            tokio::time::sleep(LOOK).await;
            if self.is_waiting(actor) {
                break;
            }
        }
    }

    /// Adds to the footprint of the current step.
    pub(crate) fn touch(&self, footprint: &Footprint) {
        let mut state = self.state();
        state.touched = std::mem::take(&mut state.touched).and(footprint);
    }

    /// Returns and clears the footprint of the current step.
    pub(crate) fn take_touched(&self) -> Footprint {
        std::mem::take(&mut self.state().touched)
    }

    /// Records an answer to an actor.
    pub(crate) fn record_answer(&self, actor: usize, what: impl Hash) {
        let mut state = self.state();
        let answers = state.answers.entry(actor).or_default();
        let mut hasher = DefaultHasher::new();
        (*answers, what).hash(&mut hasher);
        *answers = hasher.finish();
    }

    /// A hash of the state. Two worlds with the same hash have the same future.
    pub(crate) fn hash(&self, mut hasher: impl Hasher) -> u64 {
        for (path, value, revision) in self.values() {
            (path, timeless(&value), revision).hash(&mut hasher);
        }
        self.truth.hash(&mut hasher);
        self.files.hash(&mut hasher);
        self.notes.hash(&mut hasher);
        self.audit().hash(&mut hasher);
        let state = self.state();
        (
            state.now,
            &state.answers,
            &state.locks,
            &state.adding,
            &state.waits,
        )
            .hash(&mut hasher);
        state.pending.keys().for_each(|id| id.hash(&mut hasher));
        state
            .late_writes
            .iter()
            .for_each(|(id, write)| (id, &write.what, write.is_orphan).hash(&mut hasher));
        hasher.finish()
    }
}

/// The error of a request without answer.
fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "no answer")
}

/// Removes the values of fields that depend on the machine's clock. All other fields are equal in two runs of a
/// schedule.
fn timeless(value: &[u8]) -> Vec<u8> {
    const FIELDS: [&str; 5] = [
        "timestamp",
        "creationTimestamp",
        "uid",
        "affinity_claim_time",
        "affinityClaimTime",
    ];
    let mut text = String::from_utf8_lossy(value).into_owned();
    for field in FIELDS {
        let begin = format!("\"{field}\":\"");
        let mut parts: Vec<&str> = text.split(&begin).collect();
        parts
            .iter_mut()
            .skip(1)
            .for_each(|part| *part = part.trim_start_matches(|c| c != '"'));
        text = parts.join(&begin);
    }
    text.into_bytes()
}
