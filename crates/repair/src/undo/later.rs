//! Versions of objects that later runs left or restored. Runs that changed the same object are undone one after the
//! other, newest first.

use std::collections::BTreeMap;

use calipam_model::key::Key;

use super::restored::is_restored;
use super::{LeftVersion, ObjectWrite, UndoObject, UndoPlan, is_marked, is_same_version, object_writes};
use crate::journal::Recorded;

impl UndoPlan {
    /// Takes later runs into account, in the order in which they began. A version that a later undo brought back counts
    /// as the version that the run left, although revision and sequence numbers differ. That holds only if each write
    /// found the version that the previous write had left, which means that no other client wrote in between.
    pub fn after(mut self, later: &[Recorded]) -> Self {
        let mut writes_by_key: BTreeMap<Key, Vec<ObjectWrite>> = BTreeMap::new();
        for run in later {
            for write in writes_of(run) {
                writes_by_key.entry(write.key.clone()).or_default().push(write);
            }
        }

        for object in self.steps.iter_mut().flat_map(|step| &mut step.objects) {
            let Some(writes) = writes_by_key.get(&object.key) else {
                continue;
            };
            let now = version_after(object, writes);
            let value_now = now.and_then(|version| version.value.as_ref());
            let value_left = object.left.as_ref().and_then(|version| version.value.as_ref());
            if is_restored(&object.key, value_now, value_left) {
                object.left = now.cloned();
            }
        }
        self
    }
}

/// Returns the version of an object after later writes; `None` if they deleted it. Ignores writes that found another
/// version than the previous one had left.
fn version_after<'a>(object: &'a UndoObject, writes: &'a [ObjectWrite]) -> Option<&'a LeftVersion> {
    let mut now = object.left.as_ref();
    for write in writes {
        // After a version that is only a deletion mark, the next write creates the object again.
        let present = now.filter(|version| version.value.is_some());
        if is_same_version(&object.key, present, write.found.as_ref()) {
            now = write.left.as_ref();
        }
    }
    now
}

/// Returns the writes that a run is known to have made, in their order. Leaves out intents with keys that calipam never
/// writes.
fn writes_of(run: &Recorded) -> Vec<ObjectWrite> {
    let mut writes = Vec::new();
    for intent in &run.intents {
        let outcome = run.outcomes.get(&intent.id);
        let Some(revisions) = outcome.and_then(|outcome| outcome.written.as_ref()) else {
            continue;
        };
        if let Ok(writes_of_intent) = object_writes(intent, revisions, is_marked(run)) {
            writes.extend(writes_of_intent);
        }
    }
    writes
}
