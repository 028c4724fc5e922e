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
    fn written_objects(&self) -> &[UndoObject] {
        match self.part {
            Part::Fences => &self.step.fences[self.range.clone()],
            Part::Objects => &self.step.objects[self.range.clone()],
        }
    }

    /// The restored objects to check, beginning with those that the task writes. The first write of a part checks the
    /// entire step, which is undone completely or not at all.
    fn checked(&self) -> &[UndoObject] {
        if self.range.start == 0 {
            return &self.step.objects;
        }
        match self.part {
            Part::Objects => self.written_objects(),
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

        for object in &self.step.awaited {
            if State::of(object, now(object)) != State::Undone {
                return Some(changed_since_plan(object));
            }
        }
        for fence in &self.step.fences {
            if Fence::of(fence, now(fence)) == Fence::Passed {
                return Some(changed_since_plan(fence));
            }
        }
        None
    }

    /// Returns the changes that close the task's fences: the objects are written again as they are.
    fn close_fences(&self, objects: &Objects) -> Vec<Change> {
        let mut changes = Vec::new();
        for fence in self.written_objects() {
            if let Some(Some(stored)) = objects.get(&fence.key)
                && Fence::of(fence, Some(stored)) == Fence::Open
            {
                changes.push(Change::again(fence.key.clone(), stored));
            }
        }
        changes
    }
}

/// Returns the changes that restore objects, as they were before the run.
fn restore(found: &[(&UndoObject, State)], objects: &Objects) -> Vec<Change> {
    let mut changes = Vec::new();
    for (object, state) in found {
        if *state == State::Undone {
            continue;
        }
        let now = objects.get(&object.key).and_then(Option::as_ref);
        let before = object
            .before
            .as_ref()
            .map(|before| restored(&object.key, now, before));
        changes.extend(change(object.key.clone(), before, now));
    }
    changes
}

/// Returns the precondition that an object stays as it was read, or absent.
fn unchanged(now: Option<&Stored>) -> Precondition {
    match now {
        Some(stored) => Precondition::At(stored.revision.clone()),
        None => Precondition::Absent,
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
        self.written_objects()
            .iter()
            .map(|object| object.key.clone())
            .collect()
    }

    /// Decides on the write: the objects as they were before the run, if nothing has changed since.
    fn decide(&self, objects: &Objects, _: &Omitted) -> Decision {
        let now = |object: &UndoObject| objects.get(&object.key).and_then(Option::as_ref);
        let mut found: Vec<(&UndoObject, State)> = Vec::new();
        for object in self.checked() {
            found.push((object, self.state(object, now(object))));
        }
        if let Some(reason) = self.objection(&found, now) {
            return Decision::Conflict(reason);
        }

        let changes = match self.part {
            Part::Fences => self.close_fences(objects),
            // The objects that the task writes are the first of those that it checks.
            Part::Objects => restore(&found[..self.range.len()], objects),
        };
        if changes.is_empty() {
            return Decision::Already;
        }

        let awaited = self.step.awaited.iter().take(self.evidence);
        let evidence = awaited.map(|object| (object.key.clone(), unchanged(now(object))));
        Decision::Write(Batch {
            changes,
            evidence: evidence.collect(),
        })
    }
}
