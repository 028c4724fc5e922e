//! Versions of objects that later runs left or restored. Runs that changed the same object are undone one after the
//! other, newest first.

use std::collections::BTreeMap;

use calipam_model::key::Key;

use super::restored::is_restored;
use super::{LeftVersion, ObjectWrite, UndoPlan, is_marked, is_same_version, object_writes};
use crate::journal::Recorded;

impl UndoPlan {
    /// Takes later runs into account, in the order in which they began. A version that a later undo brought back counts
    /// as the version that the run left, although revision and sequence numbers differ. That holds only if each write
    /// found the version that the previous write had left, which means that no other client wrote in between.
    pub fn after(mut self, later: &[Recorded]) -> Self {
        let mut written: BTreeMap<Key, Vec<ObjectWrite>> = BTreeMap::new();
        for recorded in later {
            let outcome = |id| {
                recorded
                    .outcomes
                    .get(id)
                    .and_then(|outcome| outcome.written.as_ref())
            };
            let intents = recorded
                .intents
                .iter()
                .filter_map(|intent| Some((intent, outcome(&intent.id)?)));
            for write in intents
                .flat_map(|(intent, revisions)| object_writes(intent, revisions, is_marked(recorded)))
                .flatten()
            {
                written.entry(write.key.clone()).or_default().push(write);
            }
        }

        for object in self.steps.iter_mut().flat_map(|step| &mut step.objects) {
            let Some(written) = written.get(&object.key) else {
                continue;
            };
            let mut now = object.left.as_ref();
            for write in written {
                // After a version that is only a deletion mark, the next write creates the object again.
                let present = now.filter(|version| version.value.is_some());
                if is_same_version(&object.key, present, write.found.as_ref()) {
                    now = write.left.as_ref();
                }
            }
            let value = |version: Option<&LeftVersion>| version.and_then(|version| version.value.clone());
            if is_restored(
                &object.key,
                value(now).as_ref(),
                value(object.left.as_ref()).as_ref(),
            ) {
                object.left = now.cloned();
            }
        }
        self
    }
}
