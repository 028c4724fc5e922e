//! One batch of an undo.

use std::sync::Arc;

use calipam_datastore::write::{Batch, Change, Stored};
use calipam_model::key::Key;

use super::UndoObject;
use super::restored::{is_restored, restored};
use crate::engine::{Decision, Objects, Omitted, Task};
use crate::journal::{goes_by_value, same_value};

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

/// How an object that is to be brought back is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As the run left it.
    AsLeft,
    /// As it was before the run: an undo that was killed has brought it back already.
    Undone,
    /// Others have changed it.
    Changed,
}

impl State {
    pub(super) fn of(object: &UndoObject, now: Option<&Stored>) -> Self {
        if is_restored(&object.key, now, object.before.as_ref()) {
            Self::Undone
        } else if is_left(object, now) {
            Self::AsLeft
        } else {
            Self::Changed
        }
    }
}

/// Why objects that are undone together are not, where something has changed since. An undo deletes what the run created
/// last: where that is gone and the rest is not undone, others have deleted it.
pub(super) fn why_refused(found: &[(&UndoObject, State)]) -> Option<String> {
    let begun =
        found.iter().filter(|(_, state)| *state == State::AsLeft).map(|(object, _)| object.phase()).min();
    let is_gone = |object: &UndoObject| {
        let was_created =
            object.before.is_none() && object.left.as_ref().is_some_and(|left| left.value.is_some());
        was_created && begun.is_some_and(|phase| phase < object.phase())
    };
    let changed = found.iter().find(|(object, state)| match state {
        State::Changed => true,
        State::Undone => is_gone(object),
        State::AsLeft => false,
    });
    changed.map(|(object, _)| format!("{} has changed since the run", object.key))
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

/// True where the object is as the run left it.
fn is_left(object: &UndoObject, now: Option<&Stored>) -> bool {
    match (&object.left, now) {
        (None, None) => true,
        // It was marked deleted, and the deletion was finished since.
        (Some(left), None) => left.value.is_none(),
        // An undo was killed between the two steps of a deletion, which is finished.
        (_, Some(now)) if object.before.is_none() && now.is_deleted() => true,
        (Some(left), Some(now)) => {
            let is_value = left.value.as_ref().map_or(now.is_deleted(), |value| same_value(value, &now.raw));
            (left.revision == now.revision.to_string() || goes_by_value(object.key.clone())) && is_value
        }
        _ => false,
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
