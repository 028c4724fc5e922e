//! Records all writes, with their writers and phases.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use calipam_model::block::Block;
use calipam_testkit::memory::Change;
use serde_json::Value;

use super::{PendingRequest, Phase, kubernetes, snapshot};

/// All writes, and what the actors are doing.
#[derive(Default)]
pub(crate) struct Audit {
    /// True if there is only one actor.
    pub is_alone: bool,
    /// True if an actor was killed.
    pub has_killed: bool,
    /// True if a fault has occurred.
    pub has_faults: bool,
    /// True if a request got no answer.
    pub has_lost_answers: bool,
    /// The node of the pod for which each actor requests addresses.
    pub adds: BTreeMap<usize, String>,
    /// Actors that write only while the datastore is locked.
    pub locking: BTreeSet<usize>,
    /// Actors that give up only empty blocks.
    pub careful: BTreeSet<usize>,
    /// The journal of each actor's last command.
    pub journals: BTreeMap<usize, PathBuf>,
    /// Keys that the current step writes on behalf of someone else, to whom no invariant applies.
    pub of_others: BTreeSet<String>,
    /// The current phase of each actor.
    pub phases: BTreeMap<usize, Phase>,
    writes: Vec<NotedWrite>,
    /// The number of writes before each actor's run.
    runs: BTreeMap<usize, usize>,
    /// The values that an actor's run intended to write.
    pub intended: BTreeMap<(usize, String), Option<Vec<u8>>>,
}

/// One write, with the previous value.
#[derive(Clone)]
pub(crate) struct NotedWrite {
    pub path: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// The writer; `None` for others, to whom no invariant applies.
    writer: Option<usize>,
    /// The phase of the writer.
    pub phase: Option<Phase>,
    /// True if the writer had been killed before the write.
    is_orphan: bool,
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
    /// Starts a phase of an actor.
    pub(crate) fn begin(&mut self, actor: usize, phase: Phase) {
        if phase == Phase::Repairs {
            self.runs.insert(actor, self.writes.len());
            self.intended.retain(|(other, _), _| *other != actor);
        }
        self.phases.insert(actor, phase);
    }

    /// True if there are neither faults nor other actors to disturb an actor.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.is_alone && !self.has_faults
    }

    /// Records writes. Returns them with the previous values.
    pub(crate) fn note(&mut self, by: Option<&PendingRequest>, changes: Vec<Change>) -> Vec<NotedWrite> {
        let others = std::mem::take(&mut self.of_others);
        let begin = self.writes.len();
        for Change {
            path, value: after, ..
        } in changes
        {
            let by = by.filter(|_| !others.contains(&path));
            let before = self.last(&path).and_then(|last| last.after.clone());
            let writer = by.map(|by| by.id.actor);
            let phase = by.and_then(|by| by.phase);
            let is_orphan = by.is_some_and(|by| by.is_orphan);
            self.writes.push(NotedWrite {
                path,
                before,
                after,
                writer,
                phase,
                is_orphan,
            });
        }
        self.writes[begin..].to_vec()
    }

    /// The last write of a key.
    fn last(&self, path: &str) -> Option<&NotedWrite> {
        self.writes.iter().rev().find(|write| write.path == path)
    }

    /// True if an actor that gives up only empty blocks gives up one that is in use.
    pub(crate) fn takes_a_block_in_use(&self, actor: usize, write: &NotedWrite) -> bool {
        let block = |raw: Option<&[u8]>| block(&write.path, raw?);
        let is_in_use = |before: Block| before.owner().is_some() && !before.is_empty();
        self.careful.contains(&actor)
            && block(write.after()).is_some_and(|after| after.owner().is_none())
            && block(write.before()).is_some_and(is_in_use)
    }

    /// The writes of an actor's run.
    fn of_run(&self, actor: usize) -> impl Iterator<Item = &NotedWrite> {
        let writes = self
            .runs
            .get(&actor)
            .map(|begin| &self.writes[*begin..])
            .unwrap_or_default();
        writes
            .iter()
            .filter(move |write| write.writer == Some(actor) && write.phase == Some(Phase::Repairs))
    }

    /// The first write of a key by an actor's run. It has the value that an undo restores.
    fn replaced(&self, actor: usize, path: &str) -> Option<&NotedWrite> {
        self.of_run(actor).find(|write| write.path == path)
    }

    /// True if a key has the value from before some run again, which means that an undo has restored it.
    pub(crate) fn is_restored(&self, path: &str, now: &[u8]) -> bool {
        let mut replaced = self.runs.keys().filter_map(|actor| self.replaced(*actor, path));
        replaced.any(|replaced| is_same(path, replaced.before(), Some(now)))
    }

    /// True if an undo restores the value from before the actor's run.
    ///
    /// If the run has not written the key, others may have written the value that the run intended. The undo cannot
    /// tell who wrote it, so it may revert the key to an earlier value.
    pub(crate) fn restores(&self, actor: usize, write: &NotedWrite) -> bool {
        let path = &write.path;
        // An undo writes objects again as they are, so that late writes of the run find other versions.
        if is_same(path, write.before(), write.after()) {
            return true;
        }
        if let Some(replaced) = self.replaced(actor, path) {
            return is_same(path, replaced.before(), write.after());
        }
        let intended = self.intended.get(&(actor, path.clone()));
        let mut of_key = self.writes.iter().filter(|write| write.path == *path);
        intended.is_some_and(|intended| is_same(path, intended.as_deref(), write.before()))
            && of_key.any(|former| is_same(path, former.before(), write.after()))
    }

    /// The first key that an undo has not restored, although no other client has written it since.
    pub(crate) fn first_unrestored(&self, actor: usize) -> Option<&str> {
        let is_unrestored = |write: &&NotedWrite| {
            let replaced = self.replaced(actor, &write.path).and_then(NotedWrite::before);
            let last = self
                .last(&write.path)
                .filter(|last| last.writer == Some(actor) && !last.is_orphan);
            // The lock of the datastore is checked elsewhere.
            !write.path.contains("/clusterinformations/")
                && last.is_some_and(|last| !is_same(&write.path, last.after(), replaced))
        };
        self.of_run(actor).find(is_unrestored).map(|write| &*write.path)
    }
}

impl Hash for Audit {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // Values follow from the answers to the actors, so they need not be hashed.
        let last: BTreeMap<_, _> = self
            .writes
            .iter()
            .map(|write| (&write.path, (write.writer, write.is_orphan)))
            .collect();
        last.hash(hasher);
    }
}

/// True if two values of a key are equal, except for sequence numbers of blocks, which only rise.
fn is_same(path: &str, one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return one.is_none() && other.is_none();
    };
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
    block(path, one)
        .zip(block(path, other))
        .is_some_and(|(one, other)| one.differs_only_in_sequences(&other))
}

/// The block with a key; `None` if it cannot be decoded, or if the key is not that of a block.
fn block(path: &str, raw: &[u8]) -> Option<Block> {
    let mut snapshot = snapshot(&[(path.to_owned(), raw.to_vec(), 1)]);
    snapshot.blocks.pop()?.value.content.sound().cloned()
}
