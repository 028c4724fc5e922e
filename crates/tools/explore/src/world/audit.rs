//! Records all writes, with their writers and phases.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use calipam_model::block::Block;
use calipam_model::parallel::lock;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::memory::Change;
use serde_json::Value;

use super::{RequestId, kubernetes};

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

/// The writes so far.
#[derive(Default)]
pub(crate) struct Audit(Mutex<State>);

#[derive(Default)]
struct State {
    /// The phases of each actor, each with the number of its first request.
    phases: BTreeMap<usize, Vec<(usize, Phase)>>,
    /// Current values.
    values: BTreeMap<String, Vec<u8>>,
    /// The value that each key had before an actor's run first wrote it.
    replaced: BTreeMap<(usize, String), Option<Vec<u8>>>,
    /// All former values of a key.
    former: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    /// The values that an actor's run intended to write.
    intended: BTreeMap<(usize, String), Option<Vec<u8>>>,
    /// The journal of each actor's last command.
    journals: BTreeMap<usize, PathBuf>,
    /// The node of the pod for which each actor requests addresses.
    adds: BTreeMap<usize, String>,
    /// Actors that write only while the datastore is locked.
    locking: BTreeSet<usize>,
    /// True if there is only one actor.
    is_alone: bool,
    /// True if an actor was killed.
    has_killed: bool,
    /// True if a fault has occurred.
    has_faults: bool,
    /// True if a request got no answer.
    has_lost_answers: bool,
    /// Keys that the current step writes on behalf of someone else, to whom no invariant applies.
    of_others: BTreeSet<String>,
    /// The last writer of each key, and true if the writer had been killed before the write.
    last: BTreeMap<String, (Option<usize>, bool)>,
}

/// One write, with the previous value.
pub(crate) struct NotedWrite {
    pub path: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// The phase of the writer.
    pub phase: Option<Phase>,
}

impl NotedWrite {
    pub(crate) fn before(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    pub(crate) fn after(&self) -> Option<&[u8]> {
        self.after.as_deref()
    }
}

impl Audit {
    /// Starts a phase of an actor that has sent `requests` requests so far.
    pub(super) fn begin(&self, actor: usize, requests: usize, phase: Phase) {
        let mut state = lock(&self.0);
        if phase == Phase::Repairs {
            state.replaced.retain(|(other, _), _| *other != actor);
            state.intended.retain(|(other, _), _| *other != actor);
        }
        state.phases.entry(actor).or_default().push((requests + 1, phase));
    }

    pub(crate) fn kill(&self) {
        lock(&self.0).has_killed = true;
    }

    /// Records that an actor wants an address on a node.
    pub(crate) fn adds(&self, actor: usize, node: &str) {
        lock(&self.0).adds.insert(actor, node.to_owned());
    }

    /// The node of the pod for which a request's actor requests addresses.
    pub(crate) fn adds_for(&self, id: RequestId) -> Option<String> {
        lock(&self.0).adds.get(&id.actor).cloned()
    }

    /// Records that an actor locks the datastore while it writes.
    pub(crate) fn locks(&self, actor: usize) {
        lock(&self.0).locking.insert(actor);
    }

    pub(crate) fn is_locking(&self, actor: usize) -> bool {
        lock(&self.0).locking.contains(&actor)
    }

    /// Records that there is only one actor.
    pub(crate) fn alone(&self) {
        lock(&self.0).is_alone = true;
    }

    /// True if there are neither faults nor other actors to disturb an actor.
    pub(crate) fn is_undisturbed(&self) -> bool {
        let state = lock(&self.0);
        state.is_alone && !state.has_faults
    }

    /// Records a fault. `loses_answer` is true if the fault is a lost answer.
    pub(crate) fn fault(&self, loses_answer: bool) {
        let mut state = lock(&self.0);
        state.has_faults = true;
        state.has_lost_answers |= loses_answer;
    }

    /// True after a fault.
    pub(crate) fn has_faults(&self) -> bool {
        lock(&self.0).has_faults
    }

    pub(crate) fn has_lost_answers(&self) -> bool {
        lock(&self.0).has_lost_answers
    }

    pub(crate) fn has_killed(&self) -> bool {
        lock(&self.0).has_killed
    }

    /// Marks keys that the current step writes on behalf of someone else.
    pub(crate) fn mark_foreign<'k>(&self, keys: impl Iterator<Item = &'k str>) {
        lock(&self.0).of_others.extend(keys.map(str::to_owned));
    }

    /// Sets the journal of an actor's current command.
    pub(crate) fn set_journal(&self, actor: usize, journal: &Path) {
        lock(&self.0).journals.insert(actor, journal.to_owned());
    }

    /// The journal of the command that an actor would undo.
    pub(crate) fn journal_to_undo(&self, actor: usize) -> Option<PathBuf> {
        lock(&self.0).journals.get(&actor).cloned()
    }

    /// The phase of a request; `None` if it belongs to no phase.
    pub(crate) fn phase(&self, id: RequestId) -> Option<Phase> {
        let state = lock(&self.0);
        let phases = state.phases.get(&id.actor)?;
        phases.iter().rev().find(|(first, _)| *first <= id.number).map(|(_, phase)| *phase)
    }

    /// Records writes. Returns them with the previous values.
    pub(crate) fn note(
        &self,
        by: Option<RequestId>,
        is_orphan: bool,
        changes: Vec<Change>,
    ) -> Vec<NotedWrite> {
        let phase_of_request = by.and_then(|id| self.phase(id));
        let mut state = lock(&self.0);
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
            written.push(NotedWrite { path, before, after: value, phase });
        }
        written
    }

    /// The value of a key before an actor's run wrote it; `None` if the run has not written the key.
    pub(crate) fn replaced(&self, actor: usize, path: &str) -> Option<Option<Vec<u8>>> {
        lock(&self.0).replaced.get(&(actor, path.to_owned())).cloned()
    }

    /// True if a key has the value from before some run again, which means that an undo has restored it.
    pub(crate) fn is_restored(&self, path: &str, now: &[u8]) -> bool {
        let state = lock(&self.0);
        let mut before = state.replaced.iter().filter(|((_, replaced), _)| replaced == path);
        before.any(|(_, before)| is_same(path, before.as_deref(), Some(now)))
    }

    /// Records the value that a request intends to write.
    pub(super) fn intend(&self, by: RequestId, path: &str, after: Option<Vec<u8>>) {
        if self.phase(by) == Some(Phase::Repairs) {
            lock(&self.0).intended.insert((by.actor, path.to_owned()), after);
        }
    }

    /// True if others have written the value that an actor's run intended for a key, and the key now reverts to an
    /// earlier value. An undo cannot tell who wrote the value.
    pub(crate) fn reverts_foreign_write(
        &self,
        actor: usize,
        path: &str,
        now: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> bool {
        let state = lock(&self.0);
        let intended = state.intended.get(&(actor, path.to_owned()));
        let mut former = state.former.get(path).into_iter().flatten();
        intended.is_some_and(|intended| is_same(path, intended.as_deref(), now))
            && former.any(|former| is_same(path, former.as_deref(), after))
    }

    /// The first key that an undo has not restored, although no other client has written it since.
    pub(crate) fn first_unrestored(&self, actor: usize) -> Option<String> {
        let state = lock(&self.0);
        // The lock of the datastore is checked elsewhere.
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
        // Replaced values follow from the answers to the actors, so they need not be hashed.
        lock(&self.0).last.hash(hasher);
    }
}

/// True if two values of a key are equal, except for sequence numbers of blocks, which only rise.
pub(crate) fn is_same(path: &str, one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    // An API server changes the metadata.
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
