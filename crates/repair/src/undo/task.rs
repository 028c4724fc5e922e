//! One batch of an undo.

use std::sync::Arc;

use calipam_datastore::write::{Batch, Change, Stored};
use calipam_model::key::Key;

use super::UndoObject;
use super::refusal::{State, why_refused};
use super::restored::restored;
use crate::engine::{Decision, Objects, Omitted, Task};

/// Brings back some of the objects of a step; those before `from` were brought back by other tasks.
pub(super) struct UndoTask {
    objects: Arc<[UndoObject]>,
    from: usize,
    to: usize,
    /// Why the step is not undone.
    refusal: Option<String>,
}

impl UndoTask {
    pub(super) fn new(
        objects: &Arc<[UndoObject]>,
        from: usize,
        most: usize,
        refusal: Option<String>,
    ) -> Self {
        Self { objects: Arc::clone(objects), from, to: (from + most).min(objects.len()), refusal }
    }

    /// The first write of a step looks at the whole step: it is undone as a whole or not at all.
    fn looked_at(&self) -> &[UndoObject] {
        if self.from == 0 { &self.objects } else { &self.objects[self.from..self.to] }
    }
}

impl Task for UndoTask {
    fn reads(&self) -> Vec<Key> {
        self.looked_at().iter().map(|object| object.key.clone()).collect()
    }

    fn writes(&self) -> Vec<Key> {
        self.objects[self.from..self.to].iter().map(|object| object.key.clone()).collect()
    }

    fn decide(&self, objects: &Objects, _: &Omitted) -> Decision {
        let now = |object: &UndoObject| objects.get(&object.key).and_then(Option::as_ref);
        let undone = |object: &UndoObject| State::of(object, now(object)) == State::Undone;
        let found: Vec<_> =
            self.looked_at().iter().map(|object| (object, State::of(object, now(object)))).collect();
        if let Some(reason) = self.refusal.clone().or_else(|| why_refused(&found)) {
            return Decision::Conflict(reason);
        }
        if self.objects[self.from..self.to].iter().all(undone) {
            return Decision::Already;
        }

        let changes = self.objects[self.from..self.to]
            .iter()
            .filter(|object| !undone(object))
            .filter_map(|object| change(object, now(object)))
            .collect();
        Decision::Write(Batch { changes, evidence: Vec::new() })
    }
}

fn change(object: &UndoObject, now: Option<&Stored>) -> Option<Change> {
    let key = object.key.clone();
    let before = object.before.as_ref().map(|before| restored(&object.key, now, before));
    match (before, now) {
        (Some(before), Some(now)) => Some(Change::update(key, now.revision.clone(), before).of(now)),
        (Some(before), None) => Some(Change::create(key, before)),
        (None, Some(now)) => Some(Change::delete(key, now.revision.clone()).of(now)),
        (None, None) => None,
    }
}
