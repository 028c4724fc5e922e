//! Lists of objects in the form of `kubectl`, without a server.

use std::collections::BTreeSet;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Form, KubeCluster};
use calipam_testkit::kube::Flavour;

use super::findings::{
    FLAVOURS, broken, complaints, distinct_lines, in_etcd, in_folder, in_list, unexplained,
};

/// The wrong findings in etcd and in Kubernetes lists of the same cluster, and the unexplained differences between the
/// two.
async fn compare(cluster: &Cluster, flavour: Flavour) -> Vec<String> {
    let kubernetes = cluster.kubernetes(flavour);
    // One list of all objects does not show whether a kind without objects was read.
    let has_blocks = cluster.blocks().next().is_some();
    let list = if has_blocks { in_list(&kubernetes).await } else { in_folder(&kubernetes).await };
    let etcd = in_etcd(cluster);
    let mut wrong = complaints(&etcd, cluster.truth());
    wrong.extend(complaints(&list, kubernetes.truth()));
    wrong.extend(unexplained(&etcd, &list, &kubernetes));
    wrong
}

async fn assert_same(name: &str, cluster: &Cluster) {
    for flavour in FLAVOURS {
        let wrong = compare(cluster, flavour).await;
        assert!(wrong.is_empty(), "{name}, {flavour:?}: {wrong:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_documentation_is_the_same_in_every_form() {
    assert_same("example", &Cluster::example()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_gives_the_same_findings_in_every_form() {
    let mut failures = Vec::new();
    for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
        let cluster = broken(*fault, 2);
        for flavour in FLAVOURS.into_iter().filter(|flavour| fault.exists_in(Form::of(*flavour))) {
            let wrong = compare(&cluster, flavour).await;
            failures.extend(wrong.into_iter().map(|w| format!("{}, {flavour:?}: {w}", fault.name())));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_together_are_the_same_in_every_form() {
    for flavour in FLAVOURS {
        for spec in [ClusterSpec::new(1), ClusterSpec::new(2).v4_only(), ClusterSpec::new(3).wide()] {
            let cluster = Cluster::all_faults_of(spec, Form::of(flavour), 1 + usize::from(spec.wide));
            let wrong = compare(&cluster, flavour).await;
            assert!(wrong.is_empty(), "{flavour:?}: {wrong:#?}");
            let kubernetes = cluster.kubernetes(flavour);
            assert_eq!(complaints(&in_folder(&kubernetes).await, kubernetes.truth()), [""; 0]);
            if flavour == Flavour::Classic {
                let aggregated = in_list(&kubernetes.through_aggregated_api()).await;
                assert_eq!(complaints(&aggregated, kubernetes.truth()), [""; 0]);
            }
        }
    }
}

/// Exactly the objects that cannot exist in Kubernetes are reported as left out.
#[test]
fn objects_that_kubernetes_cannot_have_are_left_out() {
    let keys = |cluster: &KubeCluster| -> BTreeSet<String> {
        cluster.left_out().iter().map(|left| left.key.clone()).collect()
    };
    for flavour in FLAVOURS {
        let healthy = keys(&Cluster::small(ClusterSpec::new(7)).kubernetes(flavour));
        for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
            let broken = keys(&broken(*fault, 1).kubernetes(flavour));
            let left_out: Vec<&String> = broken.difference(&healthy).collect();
            // Kubernetes stores the IPAM settings once, so the second settings object in etcd is left out of every
            // cluster.
            let expected = !fault.exists_in(Form::of(flavour)) && *fault != Fault::ConfigurationMismatch;
            // These faults disappear in Kubernetes although no object is left out: only the sound settings object is
            // used, a boolean replaces the string, and object names contain no capital letters.
            let silent = matches!(
                fault,
                Fault::UndecodableConfiguration | Fault::AffinityDeletedText | Fault::UppercaseBlockKey
            );
            assert!(silent || expected != left_out.is_empty(), "{}, {flavour:?}: {left_out:?}", fault.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_that_kubernetes_decides_has_a_fault() {
    // Other tests cover rules that compare endpoints with pods, rules about etcd keys, and rules whose faults exclude
    // all others.
    let elsewhere = [
        "endpoint-without-pod",
        "pod-without-endpoint",
        "endpoint-node-mismatch",
        "node-object-missing",
        "configuration-mismatch",
        "unexpected-affinity-type",
        "invalid-pool-selector",
        "pods-without-calico-ipam",
        "pod-without-address",
    ];
    for flavour in FLAVOURS {
        let cluster = Cluster::all_faults_of(ClusterSpec::new(1), Form::of(flavour), 1).kubernetes(flavour);
        let found = in_list(&cluster).await;
        let codes: BTreeSet<&str> = found.iter().map(|f| f.code.name()).collect();
        let all = calipam_check::Code::of_one_cluster().map(|code| code.name());
        let is_refused = |code: &&str| flavour == Flavour::Native && *code == "unexpected-block-owner";
        let all = all.filter(|code| !elsewhere.contains(code) && !is_refused(code));
        let lacking: Vec<&str> = all.filter(|code| !codes.contains(code)).collect();
        assert!(lacking.is_empty(), "no fault for {lacking:?}");
        assert!(distinct_lines(&found).len() > 150);
    }
}
