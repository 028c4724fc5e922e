//! All faults in one cluster.

use std::collections::BTreeSet;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::rounds;

use crate::expected::{assert_truth, findings};

#[test]
fn all_faults_together_give_exactly_the_ground_truth() {
    for seed in 0..rounds(4) {
        let cluster = Cluster::all_faults(ClusterSpec::new(seed), 1);
        assert!(cluster.truth().len() > Fault::ALL.len());
        assert_truth("all faults", &cluster);
    }
    assert_truth(
        "all faults, IPv4 only",
        &Cluster::all_faults(ClusterSpec::new(9).v4_only(), 1),
    );
    // If more than three nodes got no address for the same reason, they would share a finding.
    assert_truth(
        "all faults, 3 each",
        &Cluster::all_faults(ClusterSpec::new(11).wide(), 3),
    );
}

#[test]
fn any_two_faults_do_not_hide_each_other() {
    // Pairs each fault with another one. The distance between the two changes with the position, which gives many
    // different pairs.
    for (position, fault) in Fault::ALL.iter().enumerate() {
        let other = Fault::ALL[(position * 7 + 13) % Fault::ALL.len()];
        if fault.stands_alone() || other.stands_alone() {
            continue;
        }
        // Faults that depend on the entire cluster come last.
        let (first, second) = if *fault < other {
            (*fault, other)
        } else {
            (other, *fault)
        };
        let cluster = Cluster::plain(ClusterSpec::new(position as u64), 2, 2)
            .with(first, 1)
            .with(second, 1);
        assert_truth(&format!("{} and {}", first.name(), second.name()), &cluster);
    }
}

#[test]
fn every_rule_that_etcd_decides_has_a_fault() {
    // The codes of findings that a check finds only in data from Kubernetes.
    let elsewhere = "affinity-labels handle-case-collision endpoint-without-pod pod-without-endpoint \
        pod-address-disagreement endpoint-node-mismatch service-without-address service-address-extra \
        pods-without-calico-ipam pool-overlaps-services unrecorded-address wrong-node-recorded node-object-missing \
        pod-without-address";
    let mut covered: BTreeSet<&str> = elsewhere.split_whitespace().collect();
    let mut clusters = vec![Cluster::all_faults(ClusterSpec::new(1), 1)];
    for fault in Fault::ALL.iter().filter(|fault| fault.stands_alone()) {
        clusters.push(Cluster::small(ClusterSpec::new(1)).with(*fault, 1));
    }
    covered.extend(
        clusters
            .iter()
            .flat_map(findings)
            .map(|finding| finding.code.name()),
    );
    let codes = calipam_check::Code::of_one_cluster().map(|code| code.name());
    let lacking: Vec<&str> = codes.filter(|code| !covered.contains(code)).collect();
    assert!(lacking.is_empty(), "no fault for {lacking:?}");
}
