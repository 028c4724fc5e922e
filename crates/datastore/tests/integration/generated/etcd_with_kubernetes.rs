//! The form in etcd with what Kubernetes adds to it: pods without Calico's annotations, which the CNI plugin does not
//! write where the datastore is etcd, services and machines.

use calipam_model::snapshot::{Snapshot, Source};
use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, Fault, KubeCluster, Object};
use calipam_testkit::kube::Flavour;
use serde_json::Value;

use super::findings::{broken, complaints, findings};
use crate::support::{observe, open_file};

/// The pods of a cluster as the kubelet alone reports them, on nodes as Kubernetes calls them; its services and its
/// machines.
async fn running(cluster: &Cluster, kubernetes: &KubeCluster) -> Snapshot {
    let mut list = kubernetes.list();
    let items = list["items"].as_array_mut().unwrap();
    // Other orchestrators have no pods.
    items.retain(|item| item["metadata"]["namespace"] != "libnetwork");
    for pod in items.iter_mut().filter(|item| item["kind"] == "Pod") {
        pod["metadata"]["annotations"] = Value::Null;
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
const SHOWN_BESIDE: [Fault; 7] = [
    Fault::PodDisagreement,
    Fault::ServiceGone,
    Fault::ServiceExtra,
    Fault::ServiceWithoutAddress,
    Fault::ServiceUnrecorded,
    Fault::MachineGone,
    Fault::BlocksLost,
];

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_in_etcd_is_the_same_with_kubernetes() {
    let mut failures = Vec::new();
    for fault in Fault::KUBERNETES_ONLY.iter().chain(Fault::ALL) {
        let cluster = broken(*fault, 2);
        let kubernetes = cluster.kubernetes(Flavour::Classic);
        let truth = if SHOWN_BESIDE.contains(fault) { kubernetes.truth() } else { cluster.truth() };
        let wrong = complaints(&findings(&both(&cluster, &kubernetes).await), truth);
        failures.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", fault.name())));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
