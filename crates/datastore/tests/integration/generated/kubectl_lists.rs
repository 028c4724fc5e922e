//! Clusters with faults, without a server: lists of objects in the form of `kubectl`, and a cluster in etcd with the
//! pods, services and machines of such lists. The pods beside etcd lack Calico's annotations, which the CNI plugin does
//! not write if the datastore is etcd.

use std::collections::BTreeSet;

use calipam_check::{Code, Finding};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Form, KubeCluster};
use calipam_testkit::kube::Flavour;

use super::findings::{
    FLAVOURS, broken, complaints, distinct_lines, findings, in_etcd, in_folder, in_list, unexplained,
};
use super::forms::etcd_with_kubernetes;

/// The key of the cluster information.
const CLUSTER_INFORMATION: &[u8] = b"/calico/resources/v3/projectcalico.org/clusterinformations/default";

fn flavour_of(form: Form) -> Option<Flavour> {
    FLAVOURS.into_iter().find(|flavour| Form::of(*flavour) == form)
}

/// The findings in a form with pods, and the wrong ones: those that are not expected here, and in Kubernetes also the
/// wrong ones in etcd, and differences from etcd that are not explained.
async fn compare(cluster: &Cluster, form: Form) -> (Vec<Finding>, Vec<String>) {
    let Some(flavour) = flavour_of(form) else {
        let (snapshot, truth) = etcd_with_kubernetes(cluster).await;
        let found = findings(&snapshot);
        let wrong = complaints(&found, &truth);
        return (found, wrong);
    };
    let kubernetes = cluster.kubernetes(flavour);
    // One list of all objects does not show whether a kind without objects was read.
    let has_blocks = cluster.blocks().next().is_some();
    let has_information = cluster.keys().any(|key| key == CLUSTER_INFORMATION);
    let list = if has_blocks && has_information {
        in_list(&kubernetes).await
    } else {
        in_folder(&kubernetes).await
    };
    let etcd = in_etcd(cluster);
    let mut wrong = complaints(&etcd, cluster.truth());
    wrong.extend(complaints(&list, kubernetes.truth()));
    wrong.extend(unexplained(&etcd, &list, &kubernetes));
    (list, wrong)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_documentation_is_the_same_in_every_form() {
    for form in Form::IN_KUBERNETES {
        let (_, wrong) = compare(&Cluster::example(), form).await;
        assert!(wrong.is_empty(), "{form:?}: {wrong:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_gives_the_same_findings_in_every_form() {
    let mut failures = Vec::new();
    for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
        let cluster = broken(*fault, 2);
        let is_in = |form: &Form| *form == Form::EtcdWithKubernetes || fault.exists_in(*form);
        for form in Form::WITH_PODS.into_iter().filter(is_in) {
            let (_, wrong) = compare(&cluster, form).await;
            failures.extend(
                wrong
                    .into_iter()
                    .map(|wrong| format!("{}, {form:?}: {wrong}", fault.name())),
            );
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The rules that other tests cover. They compare endpoints with pods, or concern keys of etcd, or names, labels and
/// ranges of objects, which do not exist in etcd; their faults exclude all others; or they are about waiting pods, which
/// `tests/cli/why/` tests.
fn tested_elsewhere(form: Form) -> &'static [&'static str] {
    match form {
        Form::Etcd | Form::EtcdWithKubernetes => &[
            "affinity-labels",
            "handle-case-collision",
            "invalid-pool-selector",
            "pool-smaller-than-block",
            "pods-without-calico-ipam",
            "pod-without-address",
            "no-cluster-information",
            "auto-allocation-off",
        ],
        Form::Classic | Form::Native => &[
            "endpoint-without-pod",
            "pod-without-endpoint",
            "endpoint-node-mismatch",
            "node-object-missing",
            "configuration-mismatch",
            "unexpected-affinity-type",
            "invalid-pool-selector",
            "pool-smaller-than-block",
            "pods-without-calico-ipam",
            "pod-without-address",
            "no-cluster-information",
            "auto-allocation-off",
        ],
    }
}

/// Every rule has a fault in every form.
#[tokio::test(flavor = "multi_thread")]
async fn all_faults_together_are_the_same_in_every_form() {
    for form in Form::WITH_PODS {
        let mut codes = BTreeSet::new();
        for spec in [
            ClusterSpec::new(1),
            ClusterSpec::new(2).v4_only(),
            ClusterSpec::new(3).wide(),
        ] {
            let cluster = Cluster::all_faults_of(spec, form, 1 + usize::from(spec.wide));
            let (found, wrong) = compare(&cluster, form).await;
            assert!(wrong.is_empty(), "{form:?}: {wrong:#?}");
            assert!(distinct_lines(&found).len() > 150);
            codes.extend(found.iter().map(|finding| finding.code));

            let Some(flavour) = flavour_of(form) else { continue };
            let kubernetes = cluster.kubernetes(flavour);
            assert_eq!(
                complaints(&in_folder(&kubernetes).await, kubernetes.truth()),
                [""; 0]
            );
            if flavour == Flavour::Classic {
                let aggregated = in_list(&kubernetes.through_aggregated_api()).await;
                assert_eq!(complaints(&aggregated, kubernetes.truth()), [""; 0]);
            }
        }
        let is_refused = |name: &str| form == Form::Native && name == "unexpected-block-owner";
        let all = Code::of_one_cluster().filter(|code| !tested_elsewhere(form).contains(&code.name()));
        let lacking = all.filter(|code| !codes.contains(code)).map(|code| code.name());
        let lacking: Vec<&str> = lacking.filter(|name| !is_refused(name)).collect();
        assert!(lacking.is_empty(), "{form:?}: no fault for {lacking:?}");
    }
}

/// Exactly the objects that cannot exist in Kubernetes are reported as left out.
#[test]
fn objects_that_kubernetes_cannot_have_are_left_out() {
    let keys = |cluster: &KubeCluster| -> BTreeSet<String> { cluster.left_out.iter().cloned().collect() };
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
            assert!(
                silent || expected != left_out.is_empty(),
                "{}, {flavour:?}: {left_out:?}",
                fault.name()
            );
        }
    }
}
