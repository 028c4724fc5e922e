//! Causes and cures on generated clusters: each cure is carried out in memory as its command does it, and checked again.

use std::collections::{BTreeSet, HashSet};

use calipam_check::{Code, Context, FindingKey, Remedy, Report, Scope};
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::{Advice, Cure, Effect, advise};
use calipam_plan::release::{self, Observations};
use calipam_plan::{Basis, FindingSet, Plan, apply_plan, rebuild, try_plan};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::rounds;

use crate::checked::Checked;

fn advice_on(checked: &Checked) -> Advice {
    let context = Context::new(&checked.snapshot, &checked.options);
    advise(context, &checked.report, &Scope::default())
}

fn cures(advice: &Advice) -> impl Iterator<Item = &Cure> {
    let of_causes = advice.causes.iter().flat_map(|cause| &cause.cures);
    of_causes.chain(advice.others.iter().map(|other| &other.cure))
}

/// The plan of a remedy's command in its last check.
fn planned(basis: &Basis<'_>, remedy: &Remedy) -> Plan {
    let release = |request| release::plan(basis, &request);
    match remedy {
        Remedy::ReleaseLeaked => release(release::Request {
            leaked: true,
            ..Default::default()
        }),
        Remedy::ReleaseNodes(nodes) => {
            let scope = Scope::of_nodes(nodes.iter().cloned());
            release(release::Request {
                scope,
                ..Default::default()
            })
        }
        Remedy::ReleaseOrphanHandles => release(release::Request {
            orphan_handles: true,
            ..Default::default()
        }),
        Remedy::ReleaseAddress(address) => release(release::Request {
            addresses: vec![*address],
            ..Default::default()
        }),
        Remedy::Rebuild(blocks) => {
            let blocks = blocks.iter().copied().collect();
            rebuild::plan(
                basis,
                &rebuild::Request {
                    blocks,
                    ..Default::default()
                },
            )
        }
        other => panic!("{other:?} is no plan of blocks"),
    }
}

/// Carries out a cure in memory, as its command does: with the trial that leaves out what fails there.
fn carried_out(checked: &Checked, remedy: &Remedy) -> (Plan, Report) {
    let seen: Vec<Observations> = vec![checked.seen(15)];
    let plan = planned(&checked.basis().with(&seen, 0), remedy);
    let plan = try_plan(
        checked.snapshot.clone(),
        checked.report.clone(),
        plan,
        &checked.options,
    )
    .unwrap();
    let after = apply_plan(checked.snapshot.clone(), &plan, checked.snapshot.taken_at).unwrap();
    (plan, Checked::new(after).report)
}

/// Checks that what a cure names is gone after it, and that nothing is new but what its plan reveals.
fn assert_keeps_promise(name: &str, checked: &Checked, remedy: &Remedy, effect: &Effect) {
    let (plan, after) = carried_out(checked, remedy);
    let left: HashSet<FindingKey> = after.findings.iter().map(|finding| finding.key()).collect();
    let kept: Vec<&FindingKey> = effect.resolved.iter().filter(|key| left.contains(*key)).collect();
    assert!(kept.is_empty(), "{name}: {remedy:?} leaves {kept:?}");
    assert!(
        effect.addresses > 0 || !effect.resolved.is_empty(),
        "{name}: {remedy:?} changes nothing"
    );
    FindingSet::from(&checked.report)
        .verify(&plan, &after)
        .unwrap_or_else(|refusal| panic!("{name}: {remedy:?}: {refusal}"));
}

/// Checks all causes and cures of a cluster. Returns the number of cures that were carried out.
fn assert_advice(name: &str, snapshot: Snapshot) -> usize {
    let checked = Checked::new(snapshot);
    let advice = advice_on(&checked);
    let known: HashSet<FindingKey> = checked
        .report
        .findings
        .iter()
        .map(|finding| finding.key())
        .collect();
    let mut explained = HashSet::new();
    for key in advice.causes.iter().flat_map(|cause| &cause.findings) {
        assert!(known.contains(key), "{name}: {key:?} is no finding");
        assert!(explained.insert(key.clone()), "{name}: {key:?} has two causes");
    }
    let mut tried: Vec<&Remedy> = Vec::new();
    for Cure { remedy, effect } in cures(&advice) {
        let Some(effect) = effect else {
            assert!(
                matches!(
                    remedy,
                    Remedy::RestartPod { .. } | Remedy::RestartCalicoNode(_) | Remedy::Explain(_)
                ),
                "{name}: {remedy:?} was not tried"
            );
            continue;
        };
        if !matches!(remedy, Remedy::Configure(_) | Remedy::ChangePool { .. }) && !tried.contains(&remedy) {
            assert_keeps_promise(name, &checked, remedy, effect);
            tried.push(remedy);
        }
    }
    tried.len()
}

#[test]
fn the_cures_of_each_fault_keep_their_promises() {
    let mut number = 0;
    for (seed, fault) in Fault::ALL.iter().enumerate() {
        for spec in [
            ClusterSpec::new(seed as u64),
            ClusterSpec::new(seed as u64).v4_only(),
        ] {
            number += assert_advice(
                fault.name(),
                Cluster::plain(spec, 3, 3).with(*fault, 2).snapshot(),
            );
        }
    }
    assert!(number > 60, "{number}");
}

#[test]
fn the_cures_of_pairs_of_faults_keep_their_promises() {
    let together: Vec<Fault> = Fault::ALL
        .iter()
        .copied()
        .filter(|fault| !fault.stands_alone())
        .collect();
    let mut rng = Rng::new(64);
    for round in 0..rounds(120) {
        let mut pair = [*rng.pick(&together), *rng.pick(&together)];
        // Faults that depend on the whole cluster come last.
        pair.sort();
        let mut cluster = Cluster::plain(ClusterSpec::new(round), 3, 3);
        pair.iter()
            .for_each(|fault| cluster.inject(*fault, 1 + rng.below(2) as usize));
        assert_advice(&pair.map(Fault::name).join(" + "), cluster.snapshot());
    }
}

#[test]
fn a_healthy_cluster_has_no_cause_and_no_cure() {
    let checked = Checked::new(Cluster::small(ClusterSpec::new(5)).snapshot());
    assert!(advice_on(&checked).is_empty());
}

#[test]
fn deleted_nodes_are_one_cause_with_one_command() {
    let cluster = Cluster::plain(ClusterSpec::new(1), 3, 2);
    let mut snapshot = cluster.snapshot();
    let gone: BTreeSet<String> = snapshot.nodes.drain(..2).map(|node| node.value.name).collect();
    snapshot
        .endpoints
        .retain(|stored| !gone.contains(&stored.value.node().to_string()));
    let checked = Checked::new(snapshot);
    let advice = advice_on(&checked);
    let cause = &advice.causes[0];
    assert_eq!(cause.name, "deleted-nodes");
    assert_eq!(cause.cures[0].remedy, Remedy::ReleaseNodes(gone));
    let effect = cause.cures[0].effect.as_ref().unwrap();
    let leaked = checked
        .report
        .findings
        .iter()
        .filter(|finding| finding.code == Code::LeakedAddress)
        .count();
    assert_eq!(
        (effect.addresses, effect.at_once, effect.second_check),
        (leaked, leaked, None)
    );
    assert!(cause.says.starts_with("2 nodes were deleted ("), "{}", cause.says);
}

/// The message of the cause of known faults, if there is one, in a cluster of a version with a fault.
fn known_fault(version: &str, fault: Fault) -> Option<String> {
    let mut cluster = Cluster::plain(ClusterSpec::new(3), 3, 3).with(fault, 1);
    cluster.set_information("calicoVersion", version);
    let advice = advice_on(&Checked::new(cluster.snapshot()));
    advice
        .causes
        .into_iter()
        .find(|cause| cause.name == "old-calico")
        .map(|cause| cause.says)
}

#[test]
fn faults_of_calico_are_known_by_version() {
    let cases = [
        (
            Fault::UnallocatedFreed,
            "kube-controllers#901",
            ["v3.20.2", "v3.21.0"],
            ["v3.19.4", "v3.20.3", "v3.21.1"],
        ),
        (
            Fault::MissingHandle,
            "calico#5613",
            ["v3.17.0", "v3.22.1"],
            ["v3.22.2", "v3.32.1", "v3.33.0"],
        ),
        (
            Fault::OrphanHandleEmpty,
            "calico#10658",
            ["v3.18.0", "v3.28.5"],
            ["v3.17.9", "v3.29.0", "v3.32.1"],
        ),
    ];
    for (fault, pull_request, with, without) in cases {
        for version in with {
            let says = known_fault(version, fault).unwrap_or_default();
            assert!(says.contains(pull_request), "{version}: {says:?}");
        }
        for version in without {
            assert_eq!(known_fault(version, fault), None, "{fault:?} in {version}");
        }
    }
}
