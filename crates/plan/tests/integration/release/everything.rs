//! For every fault, leaked addresses are released, and nothing else changes.

use std::collections::BTreeSet;

use calipam_check::{Code, check};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_plan::release::Request;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::support::{carry_out, no_grace, objects, plan_on, subjects};

fn everything() -> Request {
    Request { leaked: true, orphan_handles: true, ..Request::default() }
}

fn release_leaks_of(fault: Fault, spec: ClusterSpec) {
    let cluster = Cluster::small(spec).with(fault, 2);
    let snapshot = cluster.snapshot();
    let before = check(&snapshot, &no_grace());
    let plan = plan_on(&snapshot, &everything(), &[], &no_grace());
    let (after, report) = carry_out(&snapshot, &plan, &no_grace());

    let skipped: BTreeSet<String> = plan.skipped.iter().map(|s| s.subject.to_string()).collect();
    let left: BTreeSet<String> = subjects(&report, Code::LeakedAddress, true).into_iter().collect();
    assert!(left.is_subset(&skipped), "{left:?} stay without a reason; skipped are {skipped:?}");
    let orphans: BTreeSet<String> = subjects(&report, Code::OrphanHandle, false).into_iter().collect();
    assert!(orphans.is_subset(&skipped), "{orphans:?} stay without a reason");
    let known = subjects(&before, Code::LeakedAddress, false);
    for subject in plan.changes().filter(|c| c.repairs.iter().any(|r| r.0 == Code::LeakedAddress)) {
        assert!(known.contains(&subject.subject.to_string()), "{subject:?}");
    }

    let touched: BTreeSet<String> = plan.actions.iter().flat_map(|a| a.step.edits()).map(name).collect();
    let (old, new) = (objects(&snapshot), objects(&after));
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for object in all.into_iter().filter(|object| old.get(*object) != new.get(*object)) {
        assert!(touched.contains(object), "{object} was changed, but no edit is about it");
    }
    let again = plan_on(&after, &everything(), &[], &no_grace());
    assert!(again.is_empty(), "planned again: {:?}", again.changes().collect::<Vec<_>>());
}

fn name(edit: &Edit) -> String {
    match edit.key() {
        Key::Block(cidr) => format!("block {cidr}"),
        Key::Handle(id) => format!("handle {id}"),
        Key::Affinity(key) => format!("affinity {}/{key}", key.kind),
        key => panic!("a release changes {key}"),
    }
}

#[test]
fn addresses_that_each_fault_leaks_are_released() {
    let mut failures = Vec::new();
    for fault in Fault::ALL {
        for spec in [ClusterSpec::new(7), ClusterSpec::new(8).v4_only()] {
            let released = std::panic::catch_unwind(|| release_leaks_of(*fault, spec));
            failures.extend(released.is_err().then(|| fault.name()));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
