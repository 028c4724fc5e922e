//! Who has written what, in which phase of its work.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use calipam_assign::Change;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use serde_json::Value;

use super::{RequestId, kubernetes};

/// What an actor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// DEL or GC gives back what a pod had.
    Releases,
    /// A command writes what a plan says.
    Repairs,
    /// A command brings back what the run before it has replaced.
    Undoes,
}

impl Phase {
    pub(crate) fn is_of_command(self) -> bool {
        self != Self::Releases
    }
}

/// The writes so far.
#[derive(Default)]
pub(crate) struct Audit(Mutex<State>);

#[derive(Default)]
struct State {
    /// From which request on an actor does what.
    phases: BTreeMap<usize, Vec<(usize, Phase)>>,
    /// What a key had before.
    values: BTreeMap<String, Vec<u8>>,
    /// What a key had before the run of an actor first wrote it.
    replaced: BTreeMap<(usize, String), Option<Vec<u8>>>,
    /// What a key had before each write.
    former: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    /// What the run of an actor was about to write.
    intended: BTreeMap<(usize, String), Option<Vec<u8>>>,
    /// The journal of each actor's last command.
    journals: BTreeMap<usize, PathBuf>,
    /// The nodes for whose pods actors want addresses.
    adds: BTreeMap<usize, String>,
    /// Actors that write only while the datastore is locked.
    locking: BTreeSet<usize>,
    /// Nobody else acts.
    is_alone: bool,
    /// Someone was killed.
    has_killed: bool,
    /// Something went wrong, be it that an answer was lost.
    has_faults: bool,
    /// Keys that are being written by nobody of whom anything is asked.
    of_others: BTreeSet<String>,
    /// Who has written a key last, and whether it had been killed before.
    last: BTreeMap<String, (Option<usize>, bool)>,
}

/// One write, with what was there before.
pub(crate) struct Written {
    pub path: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// What its writer was doing.
    pub phase: Option<Phase>,
}

impl Audit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An actor, which has made so many requests, begins with something else.
    pub(super) fn begin(&self, actor: usize, requests: usize, phase: Phase) {
        let mut state = self.state();
        if phase == Phase::Repairs {
            state.replaced.retain(|(other, _), _| *other != actor);
            state.intended.retain(|(other, _), _| *other != actor);
        }
        state.phases.entry(actor).or_default().push((requests + 1, phase));
    }

    pub(crate) fn kill(&self) {
        self.state().has_killed = true;
    }

    /// An actor wants an address on a node.
    pub(crate) fn adds(&self, actor: usize, node: &str) {
        self.state().adds.insert(actor, node.to_owned());
    }

    /// The node for whose pod a request was made, where it wants an address.
    pub(crate) fn adds_for(&self, id: RequestId) -> Option<String> {
        self.state().adds.get(&id.actor).cloned()
    }

    /// An actor locks the datastore while it writes.
    pub(crate) fn locks(&self, actor: usize) {
        self.state().locking.insert(actor);
    }

    pub(crate) fn is_locking(&self, actor: usize) -> bool {
        self.state().locking.contains(&actor)
    }

    /// There is one actor.
    pub(crate) fn alone(&self) {
        self.state().is_alone = true;
    }

    /// True where nobody and nothing keeps an actor from what it is to do.
    pub(crate) fn is_undisturbed(&self) -> bool {
        let state = self.state();
        state.is_alone && !state.has_faults
    }

    pub(crate) fn fault(&self) {
        self.state().has_faults = true;
    }

    /// True once anything went wrong that the explorer may let go wrong.
    pub(crate) fn has_faults(&self) -> bool {
        self.state().has_faults
    }

    /// True once someone was killed.
    pub(crate) fn has_killed(&self) -> bool {
        self.state().has_killed
    }

    /// The step under way writes these in the place of someone else.
    pub(crate) fn others<'k>(&self, keys: impl Iterator<Item = &'k str>) {
        self.state().of_others.extend(keys.map(str::to_owned));
    }

    /// The command that an actor begins, and may undo, has this journal.
    pub(crate) fn to_undo(&self, actor: usize, journal: &Path) {
        self.state().journals.insert(actor, journal.to_owned());
    }

    /// The journal of the command that an actor would undo.
    pub(crate) fn undoes(&self, actor: usize) -> Option<PathBuf> {
        self.state().journals.get(&actor).cloned()
    }

    /// What a request was made for; `None` where it is not one of calipam's runs.
    pub(crate) fn phase(&self, id: RequestId) -> Option<Phase> {
        let state = self.state();
        let phases = state.phases.get(&id.actor)?;
        phases.iter().rev().find(|(first, _)| *first <= id.number).map(|(_, phase)| *phase)
    }

    /// Notes writes; gives them with what was there before.
    pub(crate) fn note(&self, by: Option<RequestId>, is_orphan: bool, changes: Vec<Change>) -> Vec<Written> {
        let phase_of_request = by.and_then(|id| self.phase(id));
        let mut state = self.state();
        let others = std::mem::take(&mut state.of_others);
        let mut written = Vec::with_capacity(changes.len());
        for Change { path, value, .. } in changes {
            let (by, phase) = if others.contains(&path) { (None, None) } else { (by, phase_of_request) };
            let before = match &value {
                Some(value) => state.values.insert(path.clone(), value.clone()),
                None => state.values.remove(&path),
            };
            state.former.entry(path.clone()).or_default().push(before.clone());
            if let (Some(id), Some(Phase::Repairs)) = (by, phase) {
                state.replaced.entry((id.actor, path.clone())).or_insert_with(|| before.clone());
            }
            state.last.insert(path.clone(), (by.map(|id| id.actor), is_orphan));
            written.push(Written { path, before, after: value, phase });
        }
        written
    }

    /// What a key had before an actor's run wrote it; `None` where that has not written it.
    pub(crate) fn replaced(&self, actor: usize, path: &str) -> Option<Option<Vec<u8>>> {
        self.state().replaced.get(&(actor, path.to_owned())).cloned()
    }

    /// True where a key has what it had before a run first wrote it: an undo has brought that back.
    pub(crate) fn is_brought_back(&self, path: &str, now: &[u8]) -> bool {
        let state = self.state();
        let mut before = state.replaced.iter().filter(|((_, replaced), _)| replaced == path);
        before.any(|(_, before)| is_same(path, before.as_deref(), Some(now)))
    }

    /// An actor asks for a write.
    pub(super) fn intend(&self, by: RequestId, path: &str, after: Option<Vec<u8>>) {
        if self.phase(by) == Some(Phase::Repairs) {
            self.state().intended.insert((by.actor, path.to_owned()), after);
        }
    }

    /// True where others have written to a key what the run of an actor was about to write, and it gets back what it had before that: it
    /// cannot be told whose write it was.
    pub(crate) fn takes_back_of_others(
        &self,
        actor: usize,
        path: &str,
        now: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> bool {
        let state = self.state();
        let intended = state.intended.get(&(actor, path.to_owned()));
        let mut former = state.former.get(path).into_iter().flatten();
        intended.is_some_and(|intended| is_same(path, intended.as_deref(), now))
            && former.any(|former| is_same(path, former.as_deref(), after))
    }

    /// The first key that is not as it was before an actor's run wrote it, although nobody else has written it since.
    pub(crate) fn not_brought_back(&self, actor: usize) -> Option<String> {
        let state = self.state();
        // Whether the datastore is locked is a matter of its own.
        let is_counted = |path: &str| !path.contains("/clusterinformations/");
        let of_actor = state.replaced.iter().filter(|((other, path), _)| *other == actor && is_counted(path));
        let mut own = of_actor.filter(|((_, path), _)| state.last.get(path) == Some(&(Some(actor), false)));
        let is_other = |((_, path), before): &(&(usize, String), &Option<Vec<u8>>)| {
            !is_same(path, state.values.get(path).map(Vec::as_slice), before.as_deref())
        };
        own.find(is_other).map(|((_, path), _)| path.clone())
    }
}

impl Hash for Audit {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // What was replaced follows from what actors were told.
        self.state().last.hash(hasher);
    }
}

/// True if two values of a key say the same: blocks may differ in their sequence numbers, which only rise.
pub(crate) fn is_same(path: &str, one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    // What an API server gives an object is its own matter.
    let json = |raw: &[u8]| {
        let mut value = serde_json::from_slice::<Value>(raw).ok()?;
        if path.starts_with(kubernetes::ALL) {
            value["metadata"] = Value::Null;
        }
        Some(value)
    };
    if one == other || json(one).is_some_and(|value| json(other) == Some(value)) {
        return true;
    }
    let block = |raw: &[u8]| -> Option<Block> {
        let mut snapshot = Snapshot::default();
        if !kubernetes::decode(&mut snapshot, path, raw, 1) {
            snapshot.add_entry(path.as_bytes(), raw, 1);
        }
        snapshot.blocks.pop()?.value.content.sound().cloned()
    };
    block(one).zip(block(other)).is_some_and(|(one, other)| one.differs_only_in_sequences(&other))
}
