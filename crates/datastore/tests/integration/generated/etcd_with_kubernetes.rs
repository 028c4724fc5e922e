//! The form in etcd with what Kubernetes adds to it: pods without Calico's annotations, which the CNI plugin does not
//! write where the datastore is etcd, services and machines.

use calipam_model::snapshot::{Snapshot, Source};
use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, KubeCluster, Object};
use calipam_testkit::kube::Flavour;

use super::findings::{broken, complaints, findings};
use crate::support::{observe, open_file};

/// Annotations that the CNI plugin writes where the datastore is Kubernetes.
const WRITTEN_BY_CNI: [&str; 3] =
    ["cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs", "cni.projectcalico.org/containerID"];

/// The pods of a cluster as the kubelet alone reports them, on nodes as Kubernetes calls them; its services and its
/// machines.
async fn running(cluster: &Cluster, kubernetes: &KubeCluster) -> Snapshot {
    let mut list = kubernetes.list();
    let items = list["items"].as_array_mut().unwrap();
    // Other orchestrators have no pods; and a pod of another plugin is one without endpoint.
    items.retain(|item| {
        !["libnetwork", "hybrid"].contains(&item["metadata"]["namespace"].as_str().unwrap_or(""))
    });
    for pod in items.iter_mut().filter(|item| item["kind"] == "Pod") {
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|name, _| !WRITTEN_BY_CNI.contains(&name.as_str()));
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        if let Some(Object::Node(node)) = cluster.get(&key::node(node)) {
            pod["spec"]["nodeName"] = node.spec.orch_refs[0].node_name.clone().into();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.json");
    std::fs::write(&path, list.to_string()).unwrap();
    observe(&open_file(&path).await.unwrap()).await.unwrap()
}

async fn both(cluster: &Cluster, kubernetes: &KubeCluster) -> Snapshot {
    let mut snapshot = cluster.snapshot();
    let running = running(cluster, kubernetes).await;
    snapshot.pods = running.pods;
    snapshot.services = running.services;
    snapshot.machines = running.machines;
    snapshot.mark_read([Source::Pods, Source::Services, Source::Machines]);
    snapshot
}

/// Faults that show where Kubernetes is read as well: what services, machines and the status of pods say. Where all
/// blocks are lost, services miss theirs, and pods say that they belong to one machine.
const SHOWN_BESIDE: [Fault; 9] = [
    Fault::PodDisagreement,
    Fault::ServiceGone,
    Fault::ServiceExtra,
    Fault::ServiceWithoutAddress,
    Fault::ServiceUnrecorded,
    Fault::MachineGone,
    Fault::InstanceOfDeletedMachine,
    Fault::BlocksLost,
    Fault::UnallocatedBypassing,
];

#[tokio::test(flavor = "multi_thread")]
async fn features_in_etcd_are_healthy_with_kubernetes() {
    let cluster = Cluster::featured(ClusterSpec::new(7));
    let kubernetes = cluster.kubernetes(Flavour::Classic);
    let found = findings(&both(&cluster, &kubernetes).await);
    assert_eq!(complaints(&found, cluster.truth()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_in_etcd_is_the_same_with_kubernetes() {
    let mut failures = Vec::new();
    for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
        let cluster = broken(*fault, 2);
        let kubernetes = cluster.kubernetes(Flavour::Classic);
        let truth = if SHOWN_BESIDE.contains(fault) { kubernetes.truth() } else { cluster.truth() };
        let mut found = findings(&both(&cluster, &kubernetes).await);
        if matches!(fault, Fault::PodFinished | Fault::PodEvicted) {
            // Both forms together show that the endpoint of a finished pod is left.
            let all = found.len();
            found.retain(|finding| finding.code.name() != "endpoint-without-pod");
            assert_eq!(all - found.len(), 2, "{}", fault.name());
        }
        let wrong = complaints(&found, truth);
        failures.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", fault.name())));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
