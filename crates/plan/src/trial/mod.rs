//! The trial of a plan in memory. Steps that fail are left out.

mod apply;
mod verify;

use std::collections::HashSet;

use calipam_check::{Finding, Options, Report, Subject, awaits_first_block, check, check_by_all_rules};
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;

pub(crate) use self::apply::Touched;
pub use self::apply::{StepError, apply_plan};
pub use self::verify::{FindingSet, TrialRefusal};
use crate::plan::{Action, Plan};
use crate::skipped::{SkipReason, Skipped};

/// The largest number of trials. Each of them checks the whole snapshot.
const MOST_TRIALS: usize = 10;

/// The reason why a plan failed its trial in memory.
#[derive(Debug, thiserror::Error)]
pub enum FailedTrial {
    #[error(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    Refused(TrialRefusal),
}

/// Carries out the plan in memory, on the snapshot that it was made from, checks again, and compares. The findings that
/// it claims to repair must be gone, and no new ones may appear. Steps that are involved in a failure are left out of
/// the plan and skipped, and the other steps are tried again. Returns the steps that succeed, which may be none.
///
/// `report` must be complete: neither filtered nor rechecked.
pub fn try_plan(
    mut snapshot: Snapshot,
    report: Report,
    mut plan: Plan,
    options: &Options,
) -> Result<Plan, FailedTrial> {
    let now = snapshot.taken_at;
    // The evidence is dropped: for a hundred thousand findings, it would take more memory than the rest of the trial.
    let before = FindingSet::from(if awaits_first_block(&snapshot) {
        check_by_all_rules(&snapshot, options)
    } else {
        report
    });

    let mut number_of_trials = 0;
    while !plan.is_empty() {
        number_of_trials += 1;

        // The snapshot contains the changed objects during the trial, since a copy of all others would be too large.
        let keys = plan.keys();
        let before_trial = Touched::take(&mut snapshot, &keys);
        let mut changed = before_trial.clone();
        let applied = changed.apply(&plan, snapshot.datastore, now);
        changed.put_into(&mut snapshot);

        let verified = match applied {
            Ok(()) => before
                .verify(&plan, &check(&snapshot, options))
                .map_err(FailedTrial::Refused),
            Err(error) => Err(FailedTrial::Step(error)),
        };
        let Err(failed) = verified else {
            free_on_another_thread((snapshot, before_trial));
            return Ok(plan);
        };
        if number_of_trials == MOST_TRIALS || !leave_out(&mut plan, &failed) {
            return Err(failed);
        }

        drop(Touched::take(&mut snapshot, &keys));
        before_trial.put_into(&mut snapshot);
    }
    Ok(plan)
}

/// Frees memory while the caller continues: freeing a million objects one by one takes time.
fn free_on_another_thread<T: Send + 'static>(objects: T) {
    let thread = std::thread::Builder::new().name("free".into());
    thread.spawn(move || drop(objects)).ok();
}

/// Leaves out the steps that are involved in the failure, and those that write the same objects. Returns false if no
/// step is found to be involved.
fn leave_out(plan: &mut Plan, failed: &FailedTrial) -> bool {
    let involved = plan.actions.iter().map(|action| is_involved(action, failed));
    let mut is_left_out: Vec<bool> = involved.collect();
    if !is_left_out.contains(&true) {
        return false;
    }
    leave_out_dependent(&mut is_left_out, &plan.actions);

    let detail = format!("left out, since the trial of the plan failed: {failed}");
    let actions = std::mem::take(&mut plan.actions);
    for (action, is_out) in actions.into_iter().zip(is_left_out) {
        if is_out {
            plan.skipped.extend(skipped(action, &detail));
        } else {
            plan.actions.push(action);
        }
    }
    plan.skipped.sort();
    plan.skipped.dedup();
    true
}

/// Returns true if the step could not be applied, does not repair what it claims, or may cause a new finding.
fn is_involved(action: &Action, failed: &FailedTrial) -> bool {
    match failed {
        FailedTrial::Step(error) => action.step.reason == error.step,
        FailedTrial::Refused(refusal) => {
            let mut claims = action.changes.iter().flat_map(|change| &change.repairs);
            claims.any(|repair| refusal.remaining.contains(repair))
                || refusal.new.iter().any(|finding| may_cause(action, finding))
        }
    }
}

/// Marks the steps that write an object of a step that is left out, until no further one is found: a handle is written
/// completely or not at all, and an affinity depends on its block.
fn leave_out_dependent(is_left_out: &mut [bool], actions: &[Action]) {
    let mut keys_of_actions: Vec<HashSet<Key>> = Vec::new();
    for action in actions {
        keys_of_actions.push(action.step.edits().map(Edit::key).collect());
    }
    let mut unwritten: HashSet<&Key> = HashSet::new();
    let mut grows = true;
    while grows {
        grows = false;
        for (is_out, keys) in is_left_out.iter_mut().zip(&keys_of_actions) {
            if *is_out || keys.iter().any(|key| unwritten.contains(key)) {
                let has_new_key = keys.iter().any(|key| !unwritten.contains(key));
                grows |= !*is_out || has_new_key;
                *is_out = true;
                unwritten.extend(keys);
            }
        }
    }
}

/// Returns true if the step changes something that the finding is about or depends on.
fn may_cause(action: &Action, finding: &Finding) -> bool {
    let place = finding.subject.network();
    let addresses = finding.addresses();
    let is_near = |cidr: IpNet| {
        let overlaps_place = place.is_some_and(|place| overlap(place, cidr));
        overlaps_place || addresses.iter().any(|address| cidr.contains(address))
    };
    let is_subject = |key: Key| match key {
        Key::Block(cidr) => is_near(cidr),
        Key::Affinity(key) => is_near(key.cidr) || finding.subject == Subject::Node(key.node),
        Key::Handle(id) => finding.subject == Subject::Handle(id),
        // Plans that change other objects are not tried: their planners check all consequences.
        _ => false,
    };
    let mut keys = action.step.edits().map(Edit::key);
    keys.any(|key| finding.depends_on.contains(&key) || is_subject(key))
}

/// Returns an entry for each finding that the action would repair. A change that repairs none has one for its object.
fn skipped(action: Action, detail: &str) -> Vec<Skipped> {
    let mut entries = Vec::new();
    for change in action.changes {
        if change.repairs.is_empty() {
            entries.push(Skipped::new(change.subject, SkipReason::TrialFailed, detail));
            continue;
        }
        for (code, subject) in change.repairs {
            entries.push(Skipped::new(subject, SkipReason::TrialFailed, detail).with_code(code));
        }
    }
    entries
}
