//! Plans of releases that are made on generated clusters, simulated, and checked again.

use std::collections::BTreeSet;

use calipam_check::{Code, Report, Severity};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_plan::release::{Request, plan};
use calipam_plan::{Change, FindingSet, Plan, SkipReason, apply_plan, rebuild, try_plan};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::{rounds, values};
use serde_json::{Value, json};

use crate::checked::{Checked, assert_nothing_else_changed, edits};

/// The plan that releases all leaked addresses and orphan handles.
fn released(checked: &Checked) -> Plan {
    let everything = Request {
        leaked: true,
        orphan_handles: true,
        ..Request::default()
    };
    plan(&checked.basis(), &everything)
}

/// The subjects of the findings with this code. `errors_only` leaves out findings that are not errors.
fn subjects(report: &Report, code: Code, errors_only: bool) -> BTreeSet<String> {
    let of_code = report.findings.iter().filter(|f| f.code == code);
    let wanted = of_code.filter(|f| !errors_only || f.severity == Severity::Error);
    wanted.map(|f| f.subject.to_string()).collect()
}

/// The changes that repair leaked addresses.
fn repaired_leaks(plan: &Plan) -> impl Iterator<Item = &Change> {
    plan.changes().filter(|change| {
        change
            .repairs
            .iter()
            .any(|(code, _)| *code == Code::LeakedAddress)
    })
}

fn release_leaks_of(fault: Fault, spec: ClusterSpec) {
    let before = Checked::without_grace(Cluster::small(spec).with(fault, 2).snapshot());
    let plan = released(&before);
    let after = apply_plan(before.snapshot.clone(), &plan, before.snapshot.taken_at).unwrap();
    let after = Checked::without_grace(after);
    FindingSet::from(&before.report)
        .verify(&plan, &after.report)
        .unwrap_or_else(|refusal| panic!("{refusal}"));

    let skipped: BTreeSet<String> = plan.skipped.iter().map(|s| s.subject.to_string()).collect();
    let left = subjects(&after.report, Code::LeakedAddress, true);
    assert!(
        left.is_subset(&skipped),
        "{left:?} stay without a reason; skipped are {skipped:?}"
    );
    let orphans = subjects(&after.report, Code::OrphanHandle, false);
    assert!(orphans.is_subset(&skipped), "{orphans:?} stay without a reason");
    let known = subjects(&before.report, Code::LeakedAddress, false);
    for change in repaired_leaks(&plan) {
        assert!(known.contains(&change.subject.to_string()), "{change:?}");
    }

    for key in edits(&plan).map(Edit::key) {
        assert!(
            matches!(key, Key::Block(_) | Key::Handle(_) | Key::Affinity(_)),
            "a release changes {key}"
        );
    }
    assert_nothing_else_changed(fault.name(), &before.snapshot, &plan, &after.snapshot);
    let again = released(&after);
    assert!(
        again.is_empty(),
        "planned again: {:?}",
        again.changes().collect::<Vec<_>>()
    );
}

/// For every fault, leaked addresses are released, and nothing else changes.
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

#[test]
fn no_mix_of_features_leads_to_a_release() {
    for seed in 0..rounds(24) {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::small(ClusterSpec::new(seed));
        let mix: Vec<usize> = (0..Cluster::FEATURES).filter(|_| rng.below(2) == 1).collect();
        mix.iter().for_each(|feature| cluster.add_feature(*feature));

        let checked = Checked::new(cluster.snapshot());
        assert_eq!(checked.report.findings, [], "seed {seed}, features {mix:?}");
        let plan = released(&checked);
        assert!(
            plan.is_empty() && plan.skipped.is_empty(),
            "seed {seed}, features {mix:?}: {plan:?}"
        );
    }
}

/// A block without owner is deleted with its last address. A node's affinity for it then has no block.
#[test]
fn leaks_in_a_block_without_owner_are_freed_although_a_node_holds_an_affinity_for_it() {
    let handle = format!("k8s-pod-network.{:064x}", 7);
    let record = json!({"handle_id": handle, "secondary": {
        "namespace": "default", "pod": "gone", "node": "node-1", "timestamp": "2026-05-01 10:00:00 +0000 UTC"}});
    let resource = |name: &str| format!("/calico/resources/v3/projectcalico.org/{name}");
    let mut snapshot = Snapshot {
        taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
        ..Snapshot::default()
    };
    snapshot.mark_read([
        Source::Blocks,
        Source::Affinities,
        Source::Handles,
        Source::Nodes,
        Source::Pools,
        Source::Endpoints,
        Source::Pods,
    ]);
    let block = "10.244.1.0/30";
    for (key, value) in [
        (
            resource("ippools/default"),
            json!({"spec": {"cidr": "10.244.0.0/16", "blockSize": 30}}),
        ),
        (resource("nodes/node-1"), json!({"spec": {}})),
        (
            values::block_key(block),
            values::block(block, Value::Null, [record]),
        ),
        (
            values::affinity_key("host/node-1", block),
            json!({"state": "confirmed"}),
        ),
        (
            format!("/calico/ipam/v2/handle/{handle}"),
            json!({"block": {block: 1}}),
        ),
    ] {
        snapshot.add_entry(key.as_bytes(), value.to_string().as_bytes(), 7);
    }

    let checked = Checked::without_grace(snapshot);
    assert_eq!(
        subjects(&checked.report, Code::AffinityBlockMismatch, true).len(),
        1
    );
    let plan = released(&checked);
    let tried = try_plan(
        checked.snapshot.clone(),
        checked.report.clone(),
        plan,
        &checked.options,
    )
    .unwrap();
    assert_eq!(
        (repaired_leaks(&tried).count(), tried.skipped.len()),
        (1, 0),
        "{tried:?}"
    );
}

/// The number of addresses that a release and a rebuild would free, and the reasons why they keep the others.
fn freed(cluster: &Cluster) -> (usize, Vec<SkipReason>) {
    let checked = Checked::without_grace(cluster.snapshot());
    assert!(subjects(&checked.report, Code::LeakedAddress, true).len() >= 50);
    let rebuilt = rebuild::plan(&checked.basis(), &rebuild::Request::default());
    let released = released(&checked);
    let freed = repaired_leaks(&released).count();
    assert_eq!(freed, repaired_leaks(&rebuilt).count());
    let mut reasons: Vec<SkipReason> = released.skipped.iter().map(|skipped| skipped.reason).collect();
    reasons.dedup();
    (freed, reasons)
}

#[test]
fn without_a_single_endpoint_or_node_nothing_is_leaked() {
    let mut cluster = Cluster::plain(ClusterSpec::new(3), 6, 10);
    for evidence in ["workloadendpoints", "nodes"] {
        cluster.remove_prefix(&format!("/calico/resources/v3/projectcalico.org/{evidence}/"));
        assert_eq!(
            freed(&cluster),
            (0, vec![SkipReason::EvidenceLost]),
            "without {evidence}"
        );
    }
}

#[test]
fn leaks_are_freed_if_other_endpoints_remain() {
    let cluster = Cluster::plain(ClusterSpec::new(3), 1, 1).with(Fault::LeakedNoOwner, 30);
    assert!(freed(&cluster).0 >= 60);
}
