//! All forms of a generated cluster, as snapshots.

use calipam_model::snapshot::{Snapshot, Source};
use calipam_testkit::cluster::{Cluster, GroundTruth, KubeCluster};
use calipam_testkit::kube::Flavour;
use serde_json::json;

use super::findings::{snapshot_of_folder, snapshot_of_list, snapshot_of_objects};

/// A form: its name, its snapshot, and its expected findings.
pub(super) type FormRead = (&'static str, Snapshot, GroundTruth);

/// A snapshot of etcd with the pods, services and machines of its Kubernetes cluster, and the expected findings.
pub(super) async fn etcd_with_kubernetes(cluster: &Cluster) -> (Snapshot, GroundTruth) {
    let beside = cluster.beside_etcd();
    let mut list = beside.list();
    // The pool is needed because files without Calico objects are rejected.
    let pool = json!({"apiVersion": Flavour::Classic.api_version(), "kind": "IPPool", "metadata": {"name": "any"},
        "spec": {"cidr": "10.0.0.0/16"}});
    list["items"].as_array_mut().unwrap().push(pool);
    let kubernetes = snapshot_of_objects(&list).await;

    let mut snapshot = cluster.snapshot();
    snapshot.kubernetes_nodes = kubernetes.nodes;
    snapshot.pods = kubernetes.pods;
    snapshot.services = kubernetes.services;
    snapshot.machines = kubernetes.machines;
    snapshot.mark_read([Source::Pods, Source::Services, Source::Machines]);
    (snapshot, beside.truth().clone())
}

/// All forms: etcd with and without a kubeconfig; both API groups, in one list of all objects and in a list of each
/// kind; the classic group through Calico's aggregated API.
pub(super) async fn every_form(cluster: &Cluster) -> Vec<FormRead> {
    let (classic, native) = (
        cluster.kubernetes(Flavour::Classic),
        cluster.kubernetes(Flavour::Native),
    );
    let aggregated = classic.through_aggregated_api();
    let (beside, beside_truth) = etcd_with_kubernetes(cluster).await;
    let of = |kubernetes: &KubeCluster| kubernetes.truth().clone();
    vec![
        ("etcd", cluster.snapshot(), cluster.truth().clone()),
        ("etcd with Kubernetes", beside, beside_truth),
        ("classic", snapshot_of_list(&classic).await, of(&classic)),
        (
            "classic, a list of each kind",
            snapshot_of_folder(&classic).await,
            of(&classic),
        ),
        (
            "classic through the aggregated API",
            snapshot_of_list(&aggregated).await,
            of(&aggregated),
        ),
        ("native", snapshot_of_list(&native).await, of(&native)),
        (
            "native, a list of each kind",
            snapshot_of_folder(&native).await,
            of(&native),
        ),
    ]
}
