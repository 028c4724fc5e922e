//! `calipam show --compare`, which compares the pods of Kubernetes with the records of Calico.

use std::path::Path;

use calipam_testkit::kube::{Kinds, Lease, create, create_in_etcd, lease};
use calipam_testkit::values;
use serde_json::{Value, json};

use super::kube_cluster::pod;
use super::kubernetes;
use super::program::{Run, calipam, expected, on_example};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// An address, if the source has one.
type Address = Option<&'static str>;

/// A pod of the comparison, with its address in each of the three sources.
struct Workload {
    name: &'static str,
    /// The name of the node in Calico.
    node: &'static str,
    in_kubernetes: Address,
    in_endpoint: Address,
    in_block: Option<u8>,
}

const fn workload(name: &'static str, pod: Address, endpoint: Address, in_block: Option<u8>) -> Workload {
    Workload {
        name,
        node: "node-1",
        in_kubernetes: pod,
        in_endpoint: endpoint,
        in_block,
    }
}

/// On node-1 the sources differ in every way; node-2, called worker-b in Calico, is consistent.
const WORKLOADS: [Workload; 7] = [
    workload("healthy", Some("10.0.0.1"), Some("10.0.0.1"), Some(1)),
    workload("moved", Some("10.0.0.2"), Some("10.0.0.5"), Some(2)),
    workload("leaked", None, None, Some(3)),
    workload("without-endpoint", Some("10.0.0.4"), None, Some(4)),
    workload("without-pod", None, Some("10.0.0.6"), Some(6)),
    workload("unrecorded", Some("10.0.0.7"), Some("10.0.0.7"), None),
    Workload {
        node: "worker-b",
        ..workload("quiet", Some("10.0.0.9"), Some("10.0.0.9"), Some(9))
    },
];

fn kubernetes_name(node: &str) -> &str {
    if node == "worker-b" { "node-2" } else { node }
}

/// Creates a block of eight addresses for a node, with the records of the node's pods.
fn block(node: &str, first: u8) -> Value {
    let attribute = |w: &Workload| {
        json!({"handle_id": format!("k8s-pod-network.{}", w.name), "secondary": {"namespace": "shop", "node": node,
            "pod": w.name, "timestamp": "2026-05-01 10:12:00.123456789 +0000 UTC"}})
    };
    let here = WORKLOADS.iter().filter(|w| w.node == node);
    let records = here.filter_map(|w| Some((w.in_block?.checked_sub(first)?.into(), attribute(w))));
    values::block(
        &format!("10.0.0.{first}/29"),
        format!("host:{node}"),
        values::sparse(records),
    )
}

/// Returns Calico's keys in etcd, with their values.
fn keys() -> Vec<(String, Value)> {
    let cluster = json!({"spec": {"clusterGUID": "0f0e1d2c3b4a59687786951423324150", "calicoVersion": "v3.32.1", "datastoreReady": true}});
    let mut keys = vec![
        (format!("{RESOURCES}/clusterinformations/default"), cluster),
        (
            format!("{RESOURCES}/ippools/default"),
            json!({"spec": {"cidr": "10.0.0.0/16", "blockSize": 29}}),
        ),
    ];
    for (node, first) in [("node-1", 0), ("worker-b", 8)] {
        let reference =
            json!({"spec": {"orchRefs": [{"nodeName": kubernetes_name(node), "orchestrator": "k8s"}]}});
        keys.push((format!("{RESOURCES}/nodes/{node}"), reference));
        keys.push((
            format!("/calico/ipam/v2/assignment/ipv4/block/10.0.0.{first}-29"),
            block(node, first),
        ));
    }
    for (workload, address) in WORKLOADS.iter().filter_map(|w| Some((w, w.in_endpoint?))) {
        let escaped = |text: &str| text.replace('-', "--");
        let name = format!("{}-k8s-{}-eth0", escaped(workload.node), escaped(workload.name));
        let spec = json!({"orchestrator": "k8s", "node": workload.node, "pod": workload.name, "endpoint": "eth0",
            "ipNetworks": [format!("{address}/32")]});
        let endpoint = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        keys.push((format!("{RESOURCES}/workloadendpoints/shop/{name}"), endpoint));
    }
    keys
}

/// Starts an API server whose etcd also has Calico's keys.
fn server() -> Lease {
    let server = lease(Kinds::Kubernetes).unwrap();
    for (key, value) in keys() {
        server.etcd().put(&key, value.to_string()).unwrap();
    }
    let object =
        |kind: &str, metadata: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    create(
        &server,
        "/api/v1/namespaces",
        &[object("Namespace", json!({"name": "shop"}))],
    )
    .unwrap();
    for name in ["node-1", "node-2"] {
        create(&server, "/api/v1/nodes", &[object("Node", json!({"name": name}))]).unwrap();
    }
    let pods = WORKLOADS.iter().enumerate().filter_map(|(number, w)| {
        Some(pod(
            "shop",
            w.name,
            kubernetes_name(w.node),
            w.in_kubernetes?,
            number,
        ))
    });
    create_in_etcd(&server, "/registry/pods/", &pods.collect::<Vec<_>>()).unwrap();
    server
}

/// Masks the parts of a transcript that differ from run to run.
fn lasting(run: &Run, location: &str, kubeconfig: &Path) -> String {
    let text = run.transcript().replace(location, "http://127.0.0.1:2379");
    let mut text = text.replace(kubeconfig.to_str().unwrap(), "kubeconfig.yaml");
    for field in ["takenAt: ", "revision: ", "\"takenAt\": ", "\"revision\": "] {
        let masked = |line: &str| match line.split_once(field) {
            Some((before, value)) => {
                format!(
                    "{before}{field}…{}\n",
                    if value.ends_with(',') { "," } else { "" }
                )
            }
            None => format!("{line}\n"),
        };
        text = text.lines().map(masked).collect();
    }
    // The header of a table. The revision includes the API server's own writes, so it is masked.
    match text
        .split_once(" · revision ")
        .and_then(|(before, rest)| Some((before, rest.split_once(" · ")?.1)))
    {
        Some((before, after)) => format!("{before} · revision … · {after}"),
        None => text,
    }
}

#[test]
fn each_way_in_which_etcd_and_kubernetes_differ() {
    let server = server();
    let (etcd, kubeconfig) = (server.etcd().endpoint(), server.kubeconfig());
    let connection = [
        "--etcd-endpoints",
        &etcd,
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let compare = |format| calipam(&[&["show", "--compare", "-o", format], &connection[..]].concat());
    for format in ["table", "wide", "yaml"] {
        expected!(
            format!("show-compare-{format}"),
            lasting(&compare(format), &etcd, &kubeconfig)
        );
    }
    let json = compare("json").json();
    let mut yaml: Value = serde_yaml::from_str(&compare("yaml").stdout).unwrap();
    for field in ["takenAt", "revision"] {
        yaml["cluster"][field] = json["cluster"][field].clone();
    }
    assert_eq!(json, yaml);
    assert_eq!(
        (&json["apiVersion"], &json["kind"]),
        (&"calipam/v1".into(), &"Comparison".into())
    );
}

/// The Kubernetes datastore has no endpoints, so the table has no columns for them.
#[test]
fn on_kubernetes_pods_are_compared_with_blocks() {
    let cluster = kubernetes::cluster();
    let (url, kubeconfig) = (cluster.server.url(), cluster.server.kubeconfig());
    let compare = || lasting(&cluster.run("show --compare"), &url, &kubeconfig);
    expected!("show-compare-kubernetes", compare());
    cluster.add_pods(&[pod("default", "web-0", "node-1", "10.0.0.1", 1)]);
    expected!("show-compare-kubernetes-agreed", compare());
}

#[test]
fn without_pods_there_is_nothing_to_compare() {
    expected!(
        "show-compare-without-pods",
        on_example(&["show", "--compare"]).transcript()
    );
}
