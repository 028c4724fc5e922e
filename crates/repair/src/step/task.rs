//! Some edits of a step as a task of the engine.

use std::collections::BTreeSet;

use calipam_datastore::write::{Batch, Expect};
use calipam_model::key::Key;
use jiff::Timestamp;

use super::Edit;
use super::apply::apply;
use crate::engine::{Decision, Objects, Task};

/// Edits that are made in one batch.
pub(super) struct EditTask {
    pub edits: Vec<Edit>,
    pub evidence: Vec<(Key, Expect)>,
}

impl Task for EditTask {
    fn reads(&self) -> Vec<Key> {
        let changed = self.edits.iter().map(Edit::key);
        let keys: BTreeSet<Key> = changed.chain(self.evidence.iter().map(|(key, _)| key.clone())).collect();
        keys.into_iter().collect()
    }

    fn writes(&self) -> Vec<Key> {
        self.edits.iter().map(Edit::key).collect()
    }

    fn decide(&self, objects: &Objects) -> Decision {
        for (key, expect) in &self.evidence {
            let found = objects.get(key).and_then(Option::as_ref).map(|stored| &stored.revision);
            let holds = match (expect, found) {
                (Expect::Absent, None) => true,
                (Expect::At(version), Some(found)) => version.to_string() == found.to_string(),
                _ => false,
            };
            if !holds {
                let what = if found.is_some() { "is there, or has changed" } else { "is gone" };
                return Decision::Conflict(format!("the evidence no longer holds: {key} {what}"));
            }
        }
        match apply(&self.edits, objects, Timestamp::now()) {
            Err(reason) => Decision::Conflict(reason),
            Ok(changes) if changes.is_empty() => Decision::Already,
            Ok(changes) => Decision::Write(Batch { changes, evidence: self.evidence.clone() }),
        }
    }
}
