//! Versions that later runs left and brought back: two runs over one object are undone one after the other, the newer first.

use std::collections::BTreeMap;

use calipam_model::key::Key;

use super::restored::is_restored;
use super::{LeftVersion, UndoPlan, Wrote, is_marked, is_same_version, wrote};
use crate::journal::Recorded;

impl UndoPlan {
    /// The same where later runs, in the order in which they began, have written to the objects: what such a run changed and
    /// its undo brought back counts as the run left it, although revision and sequence numbers are others. That holds only
    /// where each write found the version that the one before it had left, so that no one else has written in between.
    pub fn after(mut self, later: &[Recorded]) -> Self {
        let mut written: BTreeMap<Key, Vec<Wrote>> = BTreeMap::new();
        for recorded in later {
            let outcome = |id| recorded.outcomes.get(id).and_then(|outcome| outcome.written.as_ref());
            let intents = recorded.intents.iter().filter_map(|intent| Some((intent, outcome(&intent.id)?)));
            let wrote = intents.flat_map(|(intent, revisions)| wrote(intent, revisions, is_marked(recorded)));
            wrote.flatten().for_each(|wrote| written.entry(wrote.key.clone()).or_default().push(wrote));
        }

        for object in self.steps.iter_mut().flat_map(|step| &mut step.objects) {
            let Some(written) = written.get(&object.key) else { continue };
            let mut now = object.left.as_ref();
            for wrote in written {
                if is_same_version(&object.key, present(now), wrote.found.as_ref()) {
                    now = wrote.left.as_ref();
                }
            }
            let value = |version: Option<&LeftVersion>| version.and_then(|version| version.value.clone());
            if is_restored(&object.key, value(now).as_ref(), value(object.left.as_ref()).as_ref()) {
                object.left = now.cloned();
            }
        }
        self
    }
}

/// What is marked deleted is gone for the next write, which creates it.
fn present(version: Option<&LeftVersion>) -> Option<&LeftVersion> {
    version.filter(|version| version.value.is_some())
}
