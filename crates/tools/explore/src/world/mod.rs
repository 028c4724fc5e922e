//! A datastore under control: every request waits until the explorer says what becomes of it.

mod audit;
mod client;
mod disk;
pub(crate) mod etcd;
mod footprint;
pub(crate) mod kubernetes;
mod lock;
mod notes;
mod turn;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calipam_assign::MemoryStore;
use jiff::{SignedDuration, Timestamp};

pub use self::audit::Phase;
pub(crate) use self::audit::{Written, is_same};
pub use self::client::Client;
pub(crate) use self::client::at_once;
pub(crate) use self::disk::{Files, FreeDisk, OneDisk};
pub use self::footprint::Footprint;
pub use self::lock::{Held, NodeLock};
pub(crate) use self::notes::{NodeNotes, path as notes_path};
pub(crate) use self::turn::Asked;
use self::turn::Pending;
use crate::truth::Truth;

/// Where all values lie.
pub(crate) const ALL: &str = "/calico/";

/// What footprints call the pods of Kubernetes.
pub(crate) const PODS: &str = "pods/";

/// A request, by the actor that makes it and its number among the actor's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub actor: usize,
    pub number: usize,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// It is answered.
    Go,
    /// The one who asks hears nothing. A write is still on its way, and may take effect at any later time or never.
    Fail,
    /// The API server has too much to do, and wants the request again a second later.
    PutOff,
    /// The API server does not know the revision of a list any more.
    Expire,
}

/// What is stored, by path, with versions.
pub(crate) type Values = Vec<(String, Vec<u8>, i64)>;

/// Makes a write that is on its way; nothing hears what becomes of it.
pub(crate) type Write = Arc<dyn Fn(&MemoryStore) + Send + Sync>;

/// The datastore, what waits for it, and the truth about the cluster.
pub struct World {
    memory: MemoryStore,
    state: Mutex<State>,
    /// Who uses which address.
    pub truth: Truth,
    /// Who has written what.
    pub(crate) audit: audit::Audit,
    /// The files of all runs of calipam.
    pub(crate) files: Files,
    /// What the plugins of nodes have kept.
    pub(crate) notes: notes::AllNotes,
    /// The values are objects of Kubernetes, by their paths on an API server.
    is_kubernetes: AtomicBool,
    /// How many objects a page of a list has; 0 for all.
    page: AtomicUsize,
}

#[derive(Default)]
struct State {
    now: Timestamp,
    jumped: SignedDuration,
    pending: BTreeMap<RequestId, Pending>,
    /// Verdicts that were spoken and not yet heard.
    verdicts: BTreeMap<RequestId, Verdict>,
    /// Writes whose sender has given them up.
    on_the_way: BTreeMap<RequestId, OnTheWay>,
    /// Requests made so far, by actor.
    numbers: BTreeMap<usize, usize>,
    /// What each actor has been told, which is all that decides what it does next.
    told: BTreeMap<usize, u64>,
    /// Lists of which an actor has got the first page.
    lists: BTreeMap<usize, Vec<Values>>,
    /// Who holds which lock.
    locks: BTreeMap<String, usize>,
    /// Actors whose pods wait for addresses.
    adding: BTreeSet<usize>,
    /// Actors that look a second time after the grace period.
    waits: BTreeMap<usize, Grace>,
    /// What the step under way has touched beside its request.
    touched: Footprint,
}

/// What is over when the grace period is: an ADD that was under way when it began, and what was on its way then.
#[derive(Hash)]
struct Grace {
    adding: BTreeSet<usize>,
    on_the_way: BTreeSet<RequestId>,
}

/// A write that may still take effect.
pub(crate) struct OnTheWay {
    pub what: String,
    pub footprint: Footprint,
    write: Write,
    /// Its sender was killed.
    is_orphan: bool,
}

impl World {
    /// A cluster with nothing in it.
    pub fn new(now: Timestamp) -> Self {
        let state = State { now, ..State::default() };
        // What was there before is an hour old.
        let before = now - SignedDuration::from_hours(1);
        Self {
            memory: MemoryStore::new(before),
            state: Mutex::new(state),
            truth: Truth::default(),
            audit: audit::Audit::default(),
            files: Files::default(),
            notes: notes::AllNotes::default(),
            is_kubernetes: AtomicBool::new(false),
            page: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values as they are.
    pub fn data(&self) -> &MemoryStore {
        &self.memory
    }

    /// The same values in a datastore that answers at once.
    pub fn copy_of_data(&self) -> MemoryStore {
        let copy = MemoryStore::new(self.now());
        for (path, value, _) in self.values() {
            copy.put(&path, value);
        }
        copy
    }

    /// Everything that is stored.
    pub(crate) fn values(&self) -> Values {
        self.memory.values(if self.is_kubernetes() { kubernetes::ALL } else { ALL })
    }

    pub(crate) fn is_kubernetes(&self) -> bool {
        self.is_kubernetes.load(Ordering::Relaxed)
    }

    /// How many objects a page of a list has; 0 for all.
    pub(crate) fn page(&self) -> usize {
        self.page.load(Ordering::Relaxed)
    }

    /// Remembers what a list found whose first page an actor gets; gives its number.
    fn begin_list(&self, actor: usize, found: Values) -> i64 {
        let mut state = self.state();
        let lists = state.lists.entry(actor).or_default();
        lists.push(found);
        lists.len() as i64 - 1
    }

    /// What the list of that number found.
    fn begun_list(&self, actor: usize, number: i64) -> Values {
        let state = self.state();
        let list = usize::try_from(number).ok().and_then(|number| state.lists.get(&actor)?.get(number));
        list.cloned().unwrap_or_default()
    }

    /// The values so far become objects of an API server, which gives lists in pages of so many objects; 0 for all.
    pub(crate) fn to_kubernetes(&self, objects: &[(String, Vec<u8>)], page: usize) {
        self.page.store(page, Ordering::Relaxed);
        for (path, ..) in self.memory.values(ALL) {
            self.memory.remove(&path);
        }
        objects.iter().for_each(|(path, value)| self.memory.put(path, value.clone()));
        self.is_kubernetes.store(true, Ordering::Relaxed);
    }

    /// The time. It stands still unless the explorer moves it.
    pub fn now(&self) -> Timestamp {
        self.state().now
    }

    /// How far clocks have jumped.
    pub(crate) fn jumped(&self) -> SignedDuration {
        self.state().jumped
    }

    /// Clocks jump, those of nodes and those of commands.
    pub(crate) fn jump(&self, by: SignedDuration) {
        self.state().jumped += by;
        self.advance(by);
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, by: SignedDuration) {
        let now = &mut self.state().now;
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    /// The requests that wait, with what they are and touch. Those that wait for a lock that another has, or for the end of the grace
    /// period, are left out.
    pub(crate) fn waiting(&self) -> Vec<Asked> {
        let state = self.state();
        let is_free = |pending: &&Pending| {
            let grace = state.waits.get(&pending.asked.id.actor);
            pending.asked.lock.as_ref().is_none_or(|lock| !state.locks.contains_key(lock))
                && grace.is_none_or(|grace| grace.adding.is_disjoint(&state.adding))
        };
        let asked = |pending: &Pending| {
            let grace = state.waits.get(&pending.asked.id.actor);
            let late = grace.into_iter().flat_map(|grace| &grace.on_the_way);
            let mut asked = pending.asked.clone();
            asked.footprint = late.fold(asked.footprint, |all, id| all.write(format!("late/{id:?}")));
            asked
        };
        state.pending.values().filter(is_free).map(asked).collect()
    }

    /// True if an actor waits for anything, be it a lock that another has.
    pub(crate) fn is_waiting(&self, actor: usize) -> bool {
        self.state().pending.keys().any(|id| id.actor == actor)
    }

    /// The writes that may still take effect.
    pub(crate) fn on_the_way(&self) -> Vec<(RequestId, String, Footprint)> {
        let of = |(id, write): (&RequestId, &OnTheWay)| (*id, write.what.clone(), write.footprint.clone());
        self.state().on_the_way.iter().map(of).collect()
    }

    /// Says what becomes of a request.
    pub(crate) fn decide(&self, id: RequestId, verdict: Verdict) {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(&id) else { return };
        if let Some(grace) = state.waits.remove(&id.actor) {
            state.on_the_way.retain(|id, _| !grace.on_the_way.contains(id));
        }
        state.verdicts.insert(id, verdict);
        if verdict == Verdict::Fail {
            state.set_on_the_way(id, &pending);
        }
        drop(state);
        pending.waker.wake();
    }

    /// What an actor asked for before it was killed is on its way.
    pub(crate) fn leave_behind(&self, actor: usize) {
        let mut state = self.state();
        state.adding.remove(&actor);
        state.waits.remove(&actor);
        let of_actor = RequestId { actor, number: 0 }..RequestId { actor: actor + 1, number: 0 };
        let ids: Vec<RequestId> = state.pending.range(of_actor).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(pending) = state.pending.remove(&id) {
                state.set_on_the_way(id, &pending);
            }
        }
        state
            .on_the_way
            .iter_mut()
            .filter(|(id, _)| id.actor == actor)
            .for_each(|(_, write)| write.is_orphan = true);
    }

    /// A pod waits for its addresses.
    pub(crate) fn begin_add(&self, actor: usize) {
        self.state().adding.insert(actor);
    }

    /// It has them, or will not have them.
    pub(crate) fn end_add(&self, actor: usize) {
        self.state().adding.remove(&actor);
    }

    /// The next request of an actor comes after the grace period.
    pub(crate) fn wait_for_grace(&self, actor: usize) {
        let mut state = self.state();
        let has_begun = |actor: &&usize| state.told.contains_key(*actor);
        let adding = state.adding.iter().filter(has_begun).copied().collect();
        let on_the_way = state.on_the_way.keys().filter(|id| id.actor != actor).copied().collect();
        state.waits.insert(actor, Grace { adding, on_the_way });
        // Who has begun and what is on its way is in the steps of all.
        let touched = Footprint::default().read_range("actor/").read_range("late/");
        state.touched = std::mem::take(&mut state.touched).and(&touched);
    }

    /// Lets a write take effect whose sender does not wait for it any more; true where that was killed.
    pub(crate) fn land(&self, id: RequestId) -> bool {
        let write = self.state().on_the_way.remove(&id);
        let Some(OnTheWay { write, is_orphan, .. }) = write else { return false };
        write(&self.memory);
        is_orphan
    }

    /// An actor begins with something.
    pub(crate) fn begin_phase(&self, actor: usize, phase: Phase) {
        let requests = self.state().numbers.get(&actor).copied().unwrap_or_default();
        self.audit.begin(actor, requests, phase);
    }

    /// Notes that the step under way touches more than its request says.
    pub(crate) fn touch(&self, footprint: &Footprint) {
        let mut state = self.state();
        state.touched = std::mem::take(&mut state.touched).and(footprint);
    }

    /// What was touched since this was asked last.
    pub(crate) fn take_touched(&self) -> Footprint {
        std::mem::take(&mut self.state().touched)
    }

    /// Notes what an actor was told.
    pub(crate) fn tell(&self, actor: usize, what: impl Hash) {
        let mut state = self.state();
        let told = state.told.entry(actor).or_default();
        let mut hasher = DefaultHasher::new();
        (*told, what).hash(&mut hasher);
        *told = hasher.finish();
    }

    /// All that decides what can happen from here on: two worlds with the same state have the same future.
    pub(crate) fn hash(&self, mut hasher: impl Hasher) -> u64 {
        for (path, value, revision) in self.values() {
            (path, timeless(&value), revision).hash(&mut hasher);
        }
        self.truth.hash(&mut hasher);
        self.files.hash(&mut hasher);
        self.notes.hash(&mut hasher);
        self.audit.hash(&mut hasher);
        let state = self.state();
        (state.now, &state.told, &state.locks, &state.adding, &state.waits).hash(&mut hasher);
        state.pending.keys().for_each(|id| id.hash(&mut hasher));
        state.on_the_way.iter().for_each(|(id, write)| (id, &write.what, write.is_orphan).hash(&mut hasher));
        hasher.finish()
    }
}

/// A value without what comes from the clock of the machine: two runs of a schedule give the same then.
fn timeless(value: &[u8]) -> Vec<u8> {
    const FIELDS: [&[u8]; 5] = [
        b"\"timestamp\":\"",
        b"\"creationTimestamp\":\"",
        b"\"uid\":\"",
        b"\"affinity_claim_time\":\"",
        b"\"affinityClaimTime\":\"",
    ];
    let (mut rest, mut out) = (value, Vec::with_capacity(value.len()));
    while let Some(byte) = rest.first() {
        match FIELDS.iter().find(|field| rest.starts_with(field)) {
            Some(field) => {
                out.extend_from_slice(field);
                let text = &rest[field.len()..];
                rest = &text[text.iter().position(|byte| *byte == b'"').unwrap_or(text.len())..];
            }
            None => {
                out.push(*byte);
                rest = &rest[1..];
            }
        }
    }
    out
}

impl State {
    /// A write stays on its way; a read is of no interest to anyone.
    fn set_on_the_way(&mut self, id: RequestId, pending: &Pending) {
        if let Some(write) = &pending.write {
            let Asked { what, footprint, .. } = pending.asked.clone();
            self.on_the_way
                .insert(id, OnTheWay { what, footprint, write: Arc::clone(write), is_orphan: false });
        }
    }
}
