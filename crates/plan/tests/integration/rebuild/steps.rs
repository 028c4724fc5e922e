//! The steps of a plan as the executor carries them out: some are abandoned, and on Kubernetes each object is written
//! separately.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use calipam_check::index::Index;
use calipam_check::{Code, Finding, Options, Severity, Subject, check};
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Part, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::Request;
use calipam_plan::{Action, Plan, apply_plan};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};

use super::judge::planned;
use crate::checked::{Checked, edits};

/// A cluster with all faults, and a plan to rebuild it.
fn all_faults(seed: u64) -> (Snapshot, Plan) {
    let checked = Checked::new(Cluster::all_faults(ClusterSpec::new(seed), 1).snapshot());
    let plan = planned(&checked, &Request::default());
    (checked.snapshot, plan)
}

/// Returns true for an edit that requires one particular version of an object.
fn is_guarded(edit: &Edit) -> bool {
    match edit {
        _ if matches!(edit.key(), Key::Pool(_) | Key::IpamConfig) => {
            panic!("a rebuild changes {}", edit.key())
        }
        Edit::Create(..) | Edit::Replace(..) | Edit::Delete(..) => true,
        Edit::Block(_, edit) => matches!(edit, BlockEdit::Touch),
        Edit::Handle(_, edit) => !matches!(edit, HandleEdit::Decrement(..) | HandleEdit::Increment(..)),
        Edit::Affinity(..) | Edit::Pool(..) => true,
    }
}

#[test]
fn nothing_is_guarded_by_a_version_that_the_plan_itself_has_written() {
    let (_, plan) = all_faults(1);
    let mut written: BTreeSet<Key> = BTreeSet::new();
    for action in &plan.actions {
        for edit in action.step.edits() {
            // A half-deleted object is deleted before a new one is created, which is guarded by its absence.
            let is_new = matches!(edit, Edit::Create(Key::Affinity(_) | Key::Block(_), _));
            let clash = is_guarded(edit) && written.contains(&edit.key()) && !is_new;
            assert!(!clash, "{:?} in {}", edit.key(), action.step.reason);
        }
        written.extend(action.step.edits().map(Edit::key));
    }
}

#[test]
fn evidence_never_names_what_the_plan_writes_and_never_contradicts_itself() {
    let (snapshot, plan) = all_faults(2);
    let written: HashSet<Key> = edits(&plan).map(Edit::key).collect();
    let mut expected: BTreeMap<Key, Precondition> = BTreeMap::new();
    let mut count = 0;
    // Conditions on a block's handles or owner are compared with any version of the block, including those that the
    // plan writes.
    let of_versions =
        |(_, expect): &&(Key, Precondition)| matches!(expect, Precondition::Absent | Precondition::At(_));
    for (key, expect) in plan
        .actions
        .iter()
        .flat_map(|action| action.step.evidence())
        .filter(of_versions)
    {
        assert!(!written.contains(key), "{key} is evidence, and written");
        let before = expected.entry(key.clone()).or_insert_with(|| expect.clone());
        assert_eq!(before, expect, "{key}");
        count += 1;
    }
    assert!(count > 40, "{count}");
    let wanted = expected.keys().cloned().collect();
    let found = calipam_check::objects(&snapshot, &wanted);
    for (key, expect) in &expected {
        let now = found.get(key).map_or(Precondition::Absent, |object| {
            Precondition::At(object.revision().clone())
        });
        assert_eq!(
            *expect, now,
            "the evidence does not hold when it is planned: {key}"
        );
    }
}

#[test]
fn each_address_of_a_block_is_a_part_of_its_own() {
    let mut cluster = Cluster::plain(ClusterSpec::new(4), 1, 0);
    let pods: Vec<_> = (0..60).map(|_| cluster.add_pod_on(0)).collect();
    // One pod keeps its records, which show the network's name.
    pods[1..].iter().for_each(|pod| cluster.free_pod(pod));
    let checked = Checked::new(cluster.snapshot());
    let plan = planned(&checked, &Request::default());
    assert_eq!(plan.totals().addresses, 118);
    let parts: Vec<&Part> = plan
        .actions
        .iter()
        .flat_map(|action| &action.step.parts)
        .collect();
    assert_eq!(parts.len(), 118);
    for part in parts {
        // Each part edits a block and a handle, and depends on an endpoint.
        let keys: BTreeSet<Key> = part.edits.iter().map(Edit::key).collect();
        assert_eq!(
            (keys.len(), part.evidence.len(), part.addresses().len()),
            (2, 1, 1),
            "{part:?}"
        );
    }
    let after = apply_plan(checked.snapshot, &plan, cluster.spec().now).unwrap();
    assert_eq!(check(&after, &Options::default()).findings, []);
}

/// The plan, reduced to these steps.
fn of_steps(plan: &Plan, steps: Vec<Step>) -> Plan {
    let actions = steps
        .into_iter()
        .map(|step| Action {
            step,
            changes: Vec::new(),
        })
        .collect();
    Plan {
        actions,
        ..plan.clone()
    }
}

/// Carries out the steps, part by part, on the snapshot. Like the executor, it abandons a step whose guards do not
/// hold.
pub(super) fn carry_out(
    snapshot: &Snapshot,
    plan: &Plan,
    steps: impl Iterator<Item = Vec<Step>>,
) -> Snapshot {
    let now = snapshot.taken_at;
    let mut world = snapshot.clone();
    for parts in steps {
        for part in parts {
            match apply_plan(world.clone(), &of_steps(plan, vec![part]), now) {
                Ok(next) => world = next,
                // After a conflict in one part, the rest of the step is skipped.
                Err(_) => break,
            }
        }
    }
    world
}

/// Fails if an address in use was freed, or there is a new finding worse than a warning.
pub(super) fn assert_no_harm(before: &Snapshot, plan: &Plan, after: &Snapshot, name: &str) {
    let findings = |snapshot: &Snapshot| check(snapshot, &Options::default()).findings;
    let known = findings(before)
        .into_iter()
        .map(|finding| (finding.code, finding.subject));
    let known: HashSet<(Code, Subject)> = known.chain(plan.revealed.iter().cloned()).collect();
    // An address that is now recorded may be in another node's block. Calico itself can leave a block without an owner
    // while the block's affinity still exists (facts 3.15).
    let told = [Code::BorrowedTunnelAddress, Code::AffinityBlockMismatch];
    let is_new =
        |f: &Finding| f.severity < Severity::Warning && !told.contains(&f.code) && !known.contains(&f.key());
    let new = findings(after).into_iter().filter(is_new);
    let new: Vec<_> = new
        .map(|f| format!("{} {}: {}", f.code, f.subject, f.message()))
        .collect();
    assert!(new.is_empty(), "{name}: {new:#?}");
    let (earlier, later) = (
        Index::new(before, before.taken_at),
        Index::new(after, after.taken_at),
    );
    for block in &earlier.blocks {
        for allocation in block.sound.into_iter().flat_map(|sound| sound.allocations()) {
            let used = !earlier.uses_of(allocation.address).is_empty();
            let held = later
                .block(block.key)
                .and_then(|b| b.sound?.allocation_of(allocation.address));
            assert!(
                !used || held.is_some(),
                "{name}: {} is in use and was freed",
                allocation.address
            );
        }
    }
}

#[test]
fn steps_that_are_abandoned_do_no_harm() {
    let mut rng = Rng::new(77);
    for seed in 0..2 {
        let (snapshot, plan) = all_faults(seed);
        for round in 0..4 {
            let steps: Vec<Step> = plan.actions.iter().map(|action| action.step.clone()).collect();
            let kept = steps
                .into_iter()
                .filter(|_| rng.below(3) > 0)
                .map(|step| vec![step]);
            let after = carry_out(&snapshot, &plan, kept);
            assert_no_harm(&snapshot, &plan, &after, &format!("seed {seed}, round {round}"));
        }
    }
}

/// Splits a step into writes of single objects, as for a datastore without transactions. Returns the first `count`
/// writes.
pub(super) fn part_of(step: &Step, count: usize) -> Vec<Step> {
    let object = |(_, edits): (Key, Vec<(usize, usize)>)| {
        let mut one = Step::new(&*step.reason);
        one.whole().edits = edits
            .iter()
            .map(|(part, edit)| step.parts[*part].edits[*edit].clone())
            .collect();
        one
    };
    step.by_object().into_iter().take(count).map(object).collect()
}

#[test]
fn steps_that_break_off_between_two_objects_do_no_harm() {
    let mut rng = Rng::new(78);
    for seed in 3..6 {
        let (snapshot, plan) = all_faults(seed);
        let mut parts = Vec::new();
        for action in &plan.actions {
            let all = action.step.edits().count() as u64;
            parts.push(part_of(&action.step, rng.below(all + 1) as usize));
        }
        let after = carry_out(&snapshot, &plan, parts.into_iter());
        assert_no_harm(&snapshot, &plan, &after, &format!("seed {seed}"));
    }
}
