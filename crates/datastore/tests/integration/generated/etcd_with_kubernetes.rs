//! A cluster in etcd, with objects from Kubernetes: services, machines, and pods. The pods lack Calico's annotations,
//! which the CNI plugin does not write if the datastore is etcd.

use std::collections::BTreeSet;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Form};

use super::findings::{broken, complaints, findings};
use super::forms::etcd_with_kubernetes;

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_in_etcd_with_kubernetes() {
    let mut failures = Vec::new();
    for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
        let (snapshot, truth) = etcd_with_kubernetes(&broken(*fault, 2)).await;
        let wrong = complaints(&findings(&snapshot), &truth);
        failures.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", fault.name())));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_together_in_etcd_with_kubernetes() {
    let form = Form::EtcdWithKubernetes;
    let mut found = BTreeSet::new();
    for spec in [ClusterSpec::new(1), ClusterSpec::new(2).v4_only(), ClusterSpec::new(3).wide()] {
        let (snapshot, truth) = etcd_with_kubernetes(&Cluster::all_faults_of(spec, form, 1)).await;
        let findings = findings(&snapshot);
        assert_eq!(complaints(&findings, &truth), [""; 0]);
        found.extend(findings.iter().map(|finding| finding.code));
    }
    // Other tests cover these codes. They concern names, labels and ranges of objects, which do not exist in etcd; a
    // fault that excludes all others; and waiting pods, which `tests/cli/why.rs` tests.
    let elsewhere = [
        "affinity-labels",
        "handle-case-collision",
        "invalid-pool-selector",
        "pods-without-calico-ipam",
        "pod-without-address",
    ];
    let all = calipam_check::Code::of_one_cluster().filter(|code| !elsewhere.contains(&code.name()));
    let lacking: Vec<&str> = all.filter(|code| !found.contains(code)).map(|code| code.name()).collect();
    assert!(lacking.is_empty(), "no fault for {lacking:?}");
}
