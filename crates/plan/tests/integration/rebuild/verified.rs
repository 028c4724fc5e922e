//! A plan that does not do what it claims, or does more, is refused.

use calipam_check::{Code, Subject};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_plan::rebuild::Request;
use calipam_plan::{FindingSet, Plan, SkipReason, TrialRefusal, Verb, apply_plan, try_plan};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::judge::planned;
use crate::checked::Checked;

fn of(faults: &[Fault]) -> (Checked, Plan) {
    let mut cluster = Cluster::plain(ClusterSpec::new(17), 2, 3);
    faults.iter().for_each(|fault| cluster.inject(*fault, 1));
    let checked = Checked::new(cluster.snapshot());
    let plan = planned(&checked, &Request::default());
    (checked, plan)
}

fn tried(checked: &Checked, plan: &Plan) -> Result<(), TrialRefusal> {
    let after =
        apply_plan(checked.snapshot.clone(), plan, checked.snapshot.taken_at).expect("it can be made");
    FindingSet::from(&checked.report).verify(plan, &Checked::new(after).report)
}

#[test]
fn a_repair_that_a_plan_claims_must_happen() {
    let (checked, mut plan) = of(&[Fault::OrphanHandle, Fault::MissingHandle]);
    assert_eq!(tried(&checked, &plan), Ok(()));
    let place = plan
        .actions
        .iter()
        .position(|action| action.changes[0].action == Verb::DeleteHandle);
    plan.actions[place.unwrap()].step.parts.clear();
    let refusal = tried(&checked, &plan).unwrap_err();
    assert_eq!((refusal.remaining.len(), refusal.new.len()), (1, 0));
    assert_eq!(refusal.remaining[0].0, Code::OrphanHandle);
}

#[test]
fn findings_that_a_plan_causes_fail_its_trial() {
    let (checked, mut plan) = of(&[Fault::UnallocatedFreed]);
    // The addresses are recorded, but the handle's count is not raised.
    for action in &mut plan.actions {
        action.step.parts[0].edits.remove(0);
    }
    let refusal = tried(&checked, &plan).unwrap_err();
    assert_eq!(
        refusal.new.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        [Code::MissingHandle]
    );
    assert!(
        refusal.to_string().starts_with("it would create missing-handle "),
        "{refusal}"
    );
}

#[test]
fn findings_that_a_corrupt_block_hid_are_not_new_after_its_repair() {
    let (checked, mut plan) = of(&[Fault::CorruptIndexHuge]);
    let [(Code::LeakedAddress, Subject::Address(_))] = plan.revealed.as_slice() else {
        panic!("{:?}", plan.revealed);
    };
    assert_eq!(tried(&checked, &plan), Ok(()));
    // If the plan does not repair the block, a finding that appears in it counts as new.
    for change in plan.actions.iter_mut().flat_map(|action| &mut action.changes) {
        change.repairs.clear();
    }
    let refusal = tried(&checked, &plan).unwrap_err();
    assert_eq!(
        refusal.new.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        [Code::LeakedAddress]
    );
}

#[test]
fn a_finding_about_a_full_pool_may_appear_after_recording() {
    let mut cluster = Cluster::plain(ClusterSpec::new(17), 2, 3).with(Fault::PoolNearlyFull, 1);
    // Three addresses of the pool have no record, so the pool looks less full than it is.
    let full = Checked::new(cluster.snapshot()).report.findings.remove(0).subject;
    let Subject::Pool(pool) = full else {
        panic!("{full}")
    };
    let taken: Vec<_> = cluster
        .block_mut(pool)
        .records()
        .map(|(address, _)| address)
        .collect();
    taken
        .into_iter()
        .take(3)
        .for_each(|address| cluster.free(address, pool));
    let checked = Checked::new(cluster.snapshot());
    assert!(
        checked
            .report
            .findings
            .iter()
            .all(|finding| finding.code == Code::UnallocatedInUse)
    );
    let plan = planned(&checked, &Request::default());
    assert_eq!(tried(&checked, &plan), Ok(()));
}

#[test]
fn a_plan_that_fails_its_trial_is_reduced_to_the_steps_that_succeed() {
    let (checked, mut plan) = of(&[
        Fault::OrphanHandle,
        Fault::UnallocatedFreed,
        Fault::AffinityPending,
    ]);
    let all = plan.actions.len();
    let broken: Vec<_> = (0..all)
        .filter(|i| plan.actions[*i].changes[0].action == Verb::AssignAddress)
        .collect();
    // The addresses are recorded, but the handle's count is not raised.
    broken
        .iter()
        .for_each(|index| drop(plan.actions[*index].step.parts[0].edits.remove(0)));
    let rest = all - broken.len();
    assert!(tried(&checked, &plan).is_err() && rest >= 2 && !broken.is_empty());

    let cut = try_plan(
        checked.snapshot.clone(),
        checked.report.clone(),
        plan.clone(),
        &checked.options,
    )
    .unwrap();
    assert_eq!((cut.actions.len(), tried(&checked, &cut)), (rest, Ok(())));
    let left_out: Vec<_> = cut
        .skipped
        .iter()
        .filter(|skipped| skipped.reason == SkipReason::TrialFailed)
        .collect();
    assert!(
        left_out
            .iter()
            .all(|skipped| skipped.code == Some(Code::UnallocatedInUse))
    );
    assert!(left_out.len() >= broken.len() && left_out[0].detail.contains("it would create missing-handle"));

    // One step cannot be applied at all.
    let step = &mut plan
        .actions
        .iter_mut()
        .find(|a| a.changes[0].action == Verb::DeleteHandle)
        .unwrap()
        .step;
    for edit in step.parts.iter_mut().flat_map(|part| &mut part.edits) {
        let Edit::Delete(Key::Handle(id), _) = edit else {
            continue;
        };
        id.push('x');
    }
    let cut = try_plan(checked.snapshot, checked.report, plan, &checked.options).unwrap();
    assert_eq!(cut.actions.len(), rest - 1);
}
