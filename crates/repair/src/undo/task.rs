//! One write of an undo as a task of the engine.

use std::ops::Range;
use std::sync::Arc;

use calipam_datastore::write::{Batch, Change, Precondition, Stored};
use calipam_model::key::Key;

use super::refusal::{Fence, State, changed_since_plan, why_refused};
use super::restored::restored;
use super::{UndoObject, UndoStep};
use crate::engine::{Decision, Objects, Omitted, Task, change};

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The objects that are written again as they are.
    Fences,
    /// The objects that are restored.
    Objects,
}

/// Writes some objects of one part of a step. Other tasks write the others.
pub(super) struct UndoTask {
    pub step: Arc<UndoStep>,
    pub part: Part,
    /// The positions of the objects in the part.
    pub range: Range<usize>,
    /// The largest number of awaited objects that one write requires to be unchanged.
    pub evidence: usize,
    /// The reason why the step is not undone.
    pub refusal: Option<String>,
}

impl UndoTask {
    /// The objects that this task writes.
    fn own(&self) -> &[UndoObject] {
        match self.part {
            Part::Fences => &self.step.fences[self.range.clone()],
            Part::Objects => &self.step.objects[self.range.clone()],
        }
    }

    /// The restored objects to check, beginning with those that the task writes. The first write of a part checks the
    /// entire step, which is undone completely or not at all.
    fn checked(&self) -> &[UndoObject] {
        match self.part {
            _ if self.range.start == 0 => &self.step.objects,
            Part::Objects => self.own(),
            Part::Fences => &[],
        }
    }

    /// The state of an object that the task checks.
    fn state(&self, object: &UndoObject, now: Option<&Stored>) -> State {
        let is_as_found = match (self.step.found.get(&object.key), now) {
            (Some(Some(found)), Some(now)) => found.revision == now.revision && found.raw == now.raw,
            (Some(None), None) => true,
            _ => false,
        };
        // The plan has found each of these objects as the run left it.
        if is_as_found {
            State::AsLeft
        } else {
            State::of(object, now)
        }
    }

    /// The reason to write nothing. `found` are the objects to check.
    fn objection<'o>(
        &self,
        found: &[(&UndoObject, State)],
        now: impl Fn(&UndoObject) -> Option<&'o Stored>,
    ) -> Option<String> {
        if self.refusal.is_some() {
            return self.refusal.clone();
        }
        if let Some(reason) = why_refused(found, &self.step.arrived) {
            return Some(reason);
        }
        let step = &*self.step;
        let is_changed = |object: &&UndoObject| State::of(object, now(object)) != State::Undone;
        let is_passed = |fence: &&UndoObject| Fence::of(fence, now(fence)) == Fence::Passed;
        let changed = step
            .awaited
            .iter()
            .find(is_changed)
            .or_else(|| step.fences.iter().find(is_passed));
        changed.map(changed_since_plan)
    }
}

impl Task for UndoTask {
    fn reads(&self) -> Vec<Key> {
        let step = &*self.step;
        let objects = self.checked().iter().chain(&step.awaited).chain(&step.fences);
        objects.map(|object| object.key.clone()).collect()
    }

    /// The objects as the plan found them: the write compares each of them.
    fn known(&self) -> Objects {
        match self.part {
            Part::Objects => (*self.step.found).clone(),
            Part::Fences => Objects::new(),
        }
    }

    fn writes(&self) -> Vec<Key> {
        self.own().iter().map(|object| object.key.clone()).collect()
    }

    /// Decides on the write: the objects as they were before the run, if nothing has changed since.
    fn decide(&self, objects: &Objects, _: &Omitted) -> Decision {
        let now = |object: &UndoObject| objects.get(&object.key).and_then(Option::as_ref);
        let found: Vec<_> = self
            .checked()
            .iter()
            .map(|object| (object, self.state(object, now(object))))
            .collect();
        if let Some(reason) = self.objection(&found, now) {
            return Decision::Conflict(reason);
        }

        let again = |fence: &UndoObject| {
            let stored = now(fence).filter(|stored| Fence::of(fence, Some(stored)) == Fence::Open)?;
            Some(Change::again(fence.key.clone(), stored))
        };
        let back = |(object, state): &(&UndoObject, State)| {
            let now = now(object);
            if *state == State::Undone {
                return None;
            }
            let before = object
                .before
                .as_ref()
                .map(|before| restored(&object.key, now, before));
            change(object.key.clone(), before, now)
        };
        let changes: Vec<Change> = match self.part {
            Part::Fences => self.own().iter().filter_map(again).collect(),
            Part::Objects => found.iter().take(self.range.len()).filter_map(back).collect(),
        };
        if changes.is_empty() {
            return Decision::Already;
        }

        let as_it_is = |object: &UndoObject| {
            let version = now(object).map(|stored| stored.revision.clone());
            (
                object.key.clone(),
                version.map_or(Precondition::Absent, Precondition::At),
            )
        };
        let awaited = self.step.awaited.iter().take(self.evidence);
        Decision::Write(Batch {
            changes,
            evidence: awaited.map(as_it_is).collect(),
        })
    }
}
