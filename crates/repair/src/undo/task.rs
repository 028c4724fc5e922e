//! One write of an undo as a task of the engine.

use std::sync::Arc;

use calipam_datastore::write::{Batch, Precondition};
use calipam_model::key::Key;

use super::refusal::{State, changed_since_plan, why_refused};
use super::restored::restored;
use super::{UndoObject, UndoStep};
use crate::engine::{Decision, Objects, Omitted, Task, change};

/// Restores the objects `from` to `to` of a step. Other tasks restore the other objects.
pub(super) struct UndoTask {
    pub step: Arc<UndoStep>,
    pub from: usize,
    pub to: usize,
    /// The largest number of awaited objects that one write requires to be unchanged.
    pub evidence: usize,
    /// The reason why the step is not undone.
    pub refusal: Option<String>,
}

impl UndoTask {
    /// Returns the objects to check. The first write checks the entire step, which is undone completely or not at all.
    fn checked(&self) -> &[UndoObject] {
        if self.from == 0 { &self.step.objects } else { &self.step.objects[self.from..self.to] }
    }
}

impl Task for UndoTask {
    fn reads(&self) -> Vec<Key> {
        self.checked().iter().chain(&self.step.awaited).map(|object| object.key.clone()).collect()
    }

    fn writes(&self) -> Vec<Key> {
        self.step.objects[self.from..self.to].iter().map(|object| object.key.clone()).collect()
    }

    fn decide(&self, objects: &Objects, _: &Omitted) -> Decision {
        let now = |object: &UndoObject| objects.get(&object.key).and_then(Option::as_ref);
        let undone = |object: &UndoObject| State::of(object, now(object)) == State::Undone;
        let found: Vec<_> =
            self.checked().iter().map(|object| (object, State::of(object, now(object)))).collect();
        let arrived = || self.step.awaited.iter().find(|object| !undone(object)).map(changed_since_plan);
        if let Some(reason) = self.refusal.clone().or_else(|| why_refused(&found)).or_else(arrived) {
            return Decision::Conflict(reason);
        }
        if self.step.objects[self.from..self.to].iter().all(undone) {
            return Decision::Already;
        }

        let back = |object: &UndoObject| {
            let before = object.before.as_ref().map(|before| restored(&object.key, now(object), before));
            change(object.key.clone(), before, now(object))
        };
        let objects = self.step.objects[self.from..self.to].iter();
        let changes = objects.filter(|object| !undone(object)).filter_map(back).collect();
        let as_it_is = |object: &UndoObject| {
            let version = now(object).map(|stored| stored.revision.clone());
            (object.key.clone(), version.map_or(Precondition::Absent, Precondition::At))
        };
        let awaited = self.step.awaited.iter().take(self.evidence);
        Decision::Write(Batch { changes, evidence: awaited.map(as_it_is).collect() })
    }
}
