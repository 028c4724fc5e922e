//! Clusters whose pods have addresses from host-local.

use calipam_model::snapshot::{DatastoreKind, Source};
use serde_json::{Value, json};

use super::kubernetes_tests::{kubernetes, running, verdict, with_pods};
use crate::test_cluster::{Cluster, pod};
use crate::{Options, check, note_of_other_ipam};

/// A pod's record as `upgrade-ipam` writes it: without a timestamp.
fn upgraded(name: &str) -> Value {
    let mut record = pod("node-1", name);
    record["secondary"].as_object_mut().unwrap().remove("timestamp");
    record
}

/// A cluster in which Calico networks the pods on node-1. `record` is the record of 10.244.1.0, and `range` is the
/// node's pod range.
fn cluster(record: Value, range: &str, pods: &[(&str, &str)]) -> Cluster {
    let pods: Vec<_> = pods
        .iter()
        .map(|(name, address)| running(name, address))
        .collect();
    let mut cluster = with_pods(kubernetes(record), &pods);
    cluster.0.nodes[0].value.pod_cidrs = vec![range.parse().unwrap()];
    cluster
}

const PODS: [(&str, &str); 2] = [("a", "10.244.1.0"), ("b", "10.244.1.77")];

#[test]
fn addresses_of_host_local_are_one_finding() {
    let left_over = cluster(upgraded("a"), "10.244.1.0/24", &PODS);
    assert_eq!(verdict(&left_over), ["pods-without-calico-ipam default"]);
    let report = check(&left_over.0, &Options::default());
    let found = report
        .findings
        .iter()
        .find(|finding| finding.subject.kind() == "configuration")
        .unwrap();
    let message = "2 pods have addresses from host-local, not from Calico IPAM, but blocks still record 1 address for pods";
    assert_eq!(
        (found.severity.to_string(), found.message()),
        ("warning".into(), message.into())
    );

    // A deleted pod's record does not affect the pod that now has the address.
    let taken = cluster(upgraded("gone"), "10.244.1.0/24", &PODS);
    assert_eq!(verdict(&taken), ["pods-without-calico-ipam default"]);
    let clean = cluster(Value::Null, "10.244.1.0/24", &PODS);
    assert_eq!(verdict(&clean), ["pods-without-calico-ipam default"]);
    let severity = check(&clean.0, &Options::default())
        .findings
        .iter()
        .map(|f| f.severity)
        .max();
    assert_eq!(severity.unwrap().to_string(), "info");
}

#[test]
fn the_range_of_a_second_family_counts_too() {
    let mut v6 = cluster(
        Value::Null,
        "10.244.1.0/24",
        &[("a", "10.244.1.0"), ("b", "fd00::1:7")],
    );
    v6.resource("ippools/six", json!({"cidr": "fd00::/64", "blockSize": 122}));
    assert_eq!(
        verdict(&v6),
        ["unallocated-in-use 10.244.1.0", "unallocated-in-use fd00::1:7"]
    );
    v6.0.nodes[0]
        .value
        .pod_cidrs
        .push("fd00::1:0/112".parse().unwrap());
    assert_eq!(verdict(&v6), ["pods-without-calico-ipam default"]);
}

#[test]
fn lost_records_are_not_mistaken_for_another_ipam() {
    let unallocated = ["unallocated-in-use 10.244.1.77"];
    let states = [
        (
            "Calico assigned one",
            cluster(pod("node-1", "a"), "10.244.1.0/24", &PODS),
        ),
        (
            "the range is the pool",
            cluster(upgraded("a"), "10.244.0.0/16", &PODS),
        ),
        (
            "one is in no range",
            cluster(upgraded("a"), "10.244.1.64/26", &PODS),
        ),
        ("a source was not read", {
            let mut part = cluster(upgraded("a"), "10.244.1.0/24", &PODS);
            part.0.coverage.remove(&Source::Nodes);
            part
        }),
    ];
    for (what, cluster) in states {
        assert_eq!(verdict(&cluster), unallocated, "{what}");
    }
    let recorded = cluster(upgraded("a"), "10.244.1.0/24", &PODS[..1]);
    assert_eq!(
        verdict(&recorded),
        [""; 0],
        "upgraded, and nothing assigned since"
    );
}

#[test]
fn a_cluster_without_any_block_says_so() {
    let mut empty = cluster(Value::Null, "10.244.1.0/24", &PODS);
    empty.0.mark_read([Source::Affinities, Source::Handles]);
    let expected = Some("Pods have addresses from host-local, not from Calico IPAM");
    assert_eq!(note_of_other_ipam(&empty.0), expected);
    empty.0.blocks.clear();
    let unused = "There is no block, handle or affinity: this cluster does not use Calico IPAM";
    assert_eq!(note_of_other_ipam(&empty.0), Some(unused));
    assert_eq!(verdict(&empty), ["pods-without-calico-ipam default"]);
    empty.0.pools.clear();
    let no_pool = "There is no pool and no block: this cluster does not use Calico IPAM";
    assert_eq!(note_of_other_ipam(&empty.0), Some(no_pool));
    empty.0.coverage.remove(&Source::Affinities);
    assert_eq!(note_of_other_ipam(&empty.0), None);
    assert_eq!(note_of_other_ipam(&Cluster::new().0), None);
    assert_eq!(empty.0.datastore, DatastoreKind::Kubernetes);
}
