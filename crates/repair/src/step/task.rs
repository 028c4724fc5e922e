//! Some edits of a step as a task of the engine.

use std::collections::BTreeSet;

use calipam_datastore::write::{Batch, Change, Content, Object, Stored};
use calipam_model::edit::{Current, CurrentValue, Edit, Expect, Next, apply};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

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
        let stored = |key: &Key| objects.get(key).and_then(Option::as_ref);
        let changes = match apply(&self.edits, Timestamp::now(), |key| stored(key).map(current)) {
            Err(reason) => return Decision::Conflict(reason),
            Ok(changes) => changes,
        };
        let changes: Vec<Change> = changes
            .into_iter()
            .filter_map(|(key, next)| {
                let version = stored(&key).map(|stored| stored.revision.clone());
                change(key, next, version)
            })
            .collect();
        if changes.is_empty() {
            return Decision::Already;
        }
        Decision::Write(Batch { changes, evidence: self.evidence.clone() })
    }
}

fn current(stored: &Stored) -> Current<'_> {
    let value = match &stored.content {
        Content::Block(block) => CurrentValue::Block(block),
        Content::Handle(handle) => CurrentValue::Handle(handle),
        Content::Affinity(affinity) => CurrentValue::Affinity(affinity),
        Content::Other | Content::Unreadable(_) => CurrentValue::Unreadable,
    };
    Current { revision: &stored.revision, value }
}

fn change(key: Key, next: Next, version: Option<Revision>) -> Option<Change> {
    let object = match next {
        Next::Block(block) => Object::Block(block),
        Next::Handle(handle) => Object::Handle(handle),
        Next::Affinity(affinity) => Object::Affinity(affinity),
        Next::Gone => return version.map(|version| Change::delete(key, version)),
    };
    Some(match version {
        Some(version) => Change::update(key, version, &object),
        None => Change::create(key, &object),
    })
}
