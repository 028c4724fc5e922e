//! Refuses to undo steps whose objects have changed since the run.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_datastore::write::Stored;
use calipam_model::key::Key;
use calipam_model::parallel;
use calipam_model::pool::Pool;

use super::conflicts::refusals;
use super::restored::is_restored_now;
use super::{LeftVersion, NotUndone, UndoObject, UndoPlan, UndoStep};
use crate::engine::Objects;
use crate::error::Result;
use crate::journal::{compared_by_value, same_value};
use crate::lock;
use crate::session::check_guid;

/// The present state of an object that the undo should restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The object is as the run left it.
    AsLeft,
    /// The object is as it was before the run, for example after a killed undo.
    Undone,
    /// Other clients have changed the object.
    Changed,
}

impl State {
    /// Compares an object with the state before the run and with the one that the run left.
    pub(super) fn of(object: &UndoObject, now: Option<&Stored>) -> Self {
        if is_restored_now(&object.key, now, object.before.as_ref()) {
            Self::Undone
        } else if is_left(object, now) {
            Self::AsLeft
        } else {
            Self::Changed
        }
    }
}

/// The present state of an object of a write that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// The object is the version that the write expects.
    Open,
    /// The object is another version with the same value: the write fails.
    Closed,
    /// The write has arrived, or another client has changed the object.
    Passed,
}

impl Fence {
    /// Compares a fence with the version that the run left.
    pub(super) fn of(object: &UndoObject, now: Option<&Stored>) -> Self {
        let (Some(expected), Some(now)) = (&object.left, now) else {
            return Self::Passed;
        };
        let expected_value = expected.value.as_ref();
        if !expected_value.is_some_and(|value| same_value(value, &now.raw)) {
            return Self::Passed;
        }
        if expected.revision == now.revision.to_string() {
            Self::Open
        } else {
            Self::Closed
        }
    }
}

/// Returns the reason to refuse objects that are undone together: another client has changed one of them since the run.
/// The run may have written the `arrived` objects after an earlier undo.
pub(super) fn why_refused(found: &[(&UndoObject, State)], arrived: &BTreeSet<Key>) -> Option<String> {
    let not_undone = found
        .iter()
        .filter(|(object, state)| *state == State::AsLeft && !arrived.contains(&object.key));
    let first_phase = not_undone.map(|(object, _)| object.phase()).min();
    // An earlier undo may have deleted an object that the run created. It undoes the phases in order: if an object of
    // an earlier phase is not undone, another client has deleted it.
    let is_deleted_by_others =
        |object: &UndoObject| was_created(object) && first_phase.is_some_and(|phase| phase < object.phase());
    let changed = found.iter().find(|(object, state)| match state {
        State::Changed => true,
        State::Undone => is_deleted_by_others(object),
        State::AsLeft => false,
    });
    changed.map(|(object, _)| format!("{} has changed since the run", object.key.named()))
}

/// Returns true if the run created the object.
fn was_created(object: &UndoObject) -> bool {
    let has_value = object.left.as_ref().is_some_and(|left| left.value.is_some());
    object.before.is_none() && has_value
}

/// Explains that one of a step's `awaited` objects has changed: a late write of the run arrived, or another client
/// wrote to it.
pub(super) fn changed_since_plan(object: &UndoObject) -> String {
    format!(
        "{} has changed since this undo was planned: undo the run again",
        object.key.named()
    )
}

/// Returns true if the object is still as the run left it.
fn is_left(object: &UndoObject, now: Option<&Stored>) -> bool {
    let Some(now) = now else {
        // An object that the run only marked deleted has been deleted since.
        return object.left.as_ref().is_none_or(|left| left.value.is_none());
    };
    // An undo was killed between the two steps of a deletion. The new undo finishes it.
    if object.before.is_none() && now.is_deleted() {
        return true;
    }
    let Some(left) = &object.left else {
        // The run left no object, so another client has created it.
        return false;
    };

    let has_same_value = match &left.value {
        Some(value) => same_value(value, &now.raw),
        None => now.is_deleted(),
    };
    let is_same_version = left.revision == now.revision.to_string() || compared_by_value(object.key.clone());
    has_same_value && is_same_version
}

impl UndoStep {
    /// Returns true if one of the step's objects is a pool.
    pub fn writes_pools(&self) -> bool {
        self.objects
            .iter()
            .any(|object| matches!(object.key, Key::Pool(_)))
    }

    /// Returns the objects to check: the step's own objects, the awaited ones and those of late writes.
    fn checked(&self) -> impl Iterator<Item = &UndoObject> {
        self.objects.iter().chain(&self.awaited).chain(&self.fences)
    }

    /// Keeps the step's objects as they were found. The write changes each of them, so that it need not read them
    /// again.
    fn keep_found(&mut self, stored: Vec<Option<Stored>>) {
        let mut found = Objects::new();
        for (object, mut stored) in self.objects.iter().zip(stored) {
            let left = object.left.as_ref().and_then(|left| left.value.as_ref());
            // The journal has nearly all of these values, so that they take no more memory.
            if let (Some(stored), Some(left)) = (&mut stored, left)
                && stored.raw == *left
            {
                stored.raw = left.clone();
            }
            found.insert(object.key.clone(), stored);
        }
        self.found = Arc::new(found);
    }
}

/// The states of a step's objects.
struct Judged {
    states: Vec<State>,
    awaited: Vec<State>,
    fences: Vec<Fence>,
}

impl Judged {
    /// Judges the objects that [`UndoStep::checked`] returns, as they were found.
    fn of(step: &UndoStep, found: &[Option<Stored>]) -> Self {
        let (objects_now, rest) = found.split_at(step.objects.len());
        let (awaited_now, fences_now) = rest.split_at(step.awaited.len());

        let mut states = Vec::with_capacity(step.objects.len());
        for (object, now) in step.objects.iter().zip(objects_now) {
            states.push(State::of(object, now.as_ref()));
        }
        let mut awaited = Vec::with_capacity(step.awaited.len());
        for (object, now) in step.awaited.iter().zip(awaited_now) {
            awaited.push(State::of(object, now.as_ref()));
        }
        let mut fences = Vec::with_capacity(step.fences.len());
        for (fence, now) in step.fences.iter().zip(fences_now) {
            fences.push(Fence::of(fence, now.as_ref()));
        }
        Self {
            states,
            awaited,
            fences,
        }
    }

    /// Returns an object that a late write of the run has changed: the run got no answer to this write, but the
    /// datastore carried it out later. `None` if there is no such object.
    fn late_write<'a>(&self, step: &'a UndoStep) -> Option<&'a UndoObject> {
        for (object, state) in step.awaited.iter().zip(&self.awaited) {
            if *state != State::Undone {
                return Some(object);
            }
        }
        for (object, fence) in step.fences.iter().zip(&self.fences) {
            if *fence == Fence::Passed {
                return Some(object);
            }
        }
        None
    }
}

impl UndoPlan {
    /// Reads the objects as they are now. Skips steps whose objects have changed since the run, or would conflict with
    /// other objects. Leaves out steps that find everything as it was before the run.
    pub async fn read(mut self, datastore: &Datastore) -> Result<Self> {
        let information = datastore.stored_object(lock::key()).await?;
        check_guid(information.as_ref(), "journal", &self.cluster)?;
        let keys: Vec<Key> = self
            .steps
            .iter()
            .flat_map(UndoStep::checked)
            .map(|object| object.key.clone())
            .collect();
        let mut stored = datastore.stored(&keys).await?.into_iter();
        let mut found: Vec<Vec<Option<Stored>>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            found.push(stored.by_ref().take(step.checked().count()).collect());
        }
        let judged = parallel::in_parts(parallel::BLOCKS, found.len(), |steps| {
            let judge = |index: usize| Judged::of(&self.steps[index], &found[index]);
            steps.map(judge).collect::<Vec<Judged>>()
        });

        let steps = std::mem::take(&mut self.steps);
        let judgements = judged.into_iter().flatten();
        for ((mut step, judgement), stored) in steps.into_iter().zip(judgements).zip(found) {
            let objects: Vec<_> = step
                .objects
                .iter()
                .zip(judgement.states.iter().copied())
                .collect();
            let mut refusal = why_refused(&objects, &step.arrived);
            if refusal.is_none() {
                refusal = judgement.late_write(&step).map(changed_since_plan);
            }
            if let Some(reason) = refusal {
                self.skip(step, reason);
                continue;
            }

            if judgement.states.iter().all(|state| *state == State::Undone) {
                self.already += step.objects.len();
                step.objects.clear();
            }
            if judgement.states.iter().all(|state| *state == State::AsLeft) {
                step.keep_found(stored);
            }
            if !step.objects.is_empty() || judgement.fences.contains(&Fence::Open) {
                self.steps.push(step);
            }
        }

        // An object that only a refused step would have deleted can conflict with other steps.
        loop {
            let refusals = refusals(datastore, &self.steps, self.began).await?;
            if refusals.iter().all(Option::is_none) {
                return Ok(self);
            }
            for (step, refusal) in std::mem::take(&mut self.steps).into_iter().zip(refusals) {
                if let Some(reason) = refusal {
                    self.skip(step, reason)
                } else {
                    self.steps.push(step)
                }
            }
        }
    }

    /// Returns the pools after the undo, given the present ones.
    pub fn pools_after(&self, mut pools: Vec<Pool>) -> Vec<Pool> {
        for object in self.steps.iter().flat_map(|step| &step.objects) {
            let Key::Pool(name) = &object.key else { continue };
            pools.retain(|pool| pool.name != *name);
            if let Some(before) = &object.before
                && let Ok(pool) = Pool::parse(name, before)
            {
                pools.push(pool.value);
            }
        }
        pools
    }

    /// Skips the steps that write pools.
    pub fn keep_pools(&mut self, reason: &str) {
        let skipped: Vec<UndoStep> = self.steps.extract_if(.., |step| step.writes_pools()).collect();
        for step in skipped {
            self.skip(step, reason.to_owned());
        }
    }

    /// Makes the steps that write pools depend on other objects staying at the versions that were read.
    pub fn depend_on(&mut self, others: &[(Key, Stored)]) {
        let mut unchanged = Vec::new();
        for (key, stored) in others {
            let version = LeftVersion {
                revision: stored.revision.to_string(),
                value: Some(stored.raw.clone()),
            };
            unchanged.push(UndoObject::unchanged(key.clone(), Some(version)));
        }
        for step in &mut self.steps {
            if step.writes_pools() {
                step.awaited.extend_from_slice(&unchanged);
            }
        }
    }

    fn skip(&mut self, step: UndoStep, reason: String) {
        let keys = step.objects.into_iter().map(|object| object.key).collect();
        self.skipped.push(NotUndone { keys, reason });
    }
}
