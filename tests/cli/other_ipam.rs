//! Clusters whose pods use another IPAM, and clusters whose pools overlap other networks, as output of kubectl.

use std::fs;

use calipam_testkit::values;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::{Run, calipam, column};

const CALICO: &str = "crd.projectcalico.org/v1";
const CREATED: &str = "2026-05-01T10:00:00Z";

fn object(group: &str, kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "uid": format!("u-{kind}-{name}"), "resourceVersion": "7",
        "creationTimestamp": CREATED});
    json!({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Creates a node with an address range for its pods, as the kubelet and calico-node do.
fn node(number: u8) -> Value {
    let range = format!("10.2.{number}.0/24");
    let mut node = object(
        "v1",
        "Node",
        &format!("machine-{number}"),
        json!({"podCIDR": range, "podCIDRs": [range]}),
    );
    node["status"] = json!({"addresses": [{"type": "InternalIP", "address": format!("192.0.2.{number}")}]});
    node
}

fn pod(name: &str, number: u8, address: &str) -> Value {
    let mut pod = object(
        "v1",
        "Pod",
        name,
        json!({"nodeName": format!("machine-{number}")}),
    );
    pod["metadata"]["namespace"] = "app".into();
    pod["metadata"]["annotations"] = json!({"cni.projectcalico.org/podIP": format!("{address}/32"),
        "cni.projectcalico.org/podIPs": format!("{address}/32")});
    pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    pod
}

/// Creates a block in which `upgrade-ipam` has recorded the pod `app/a`, with its handle and affinity.
fn left_over() -> [Value; 3] {
    let handle = format!("k8s-pod-network.{:064x}", 7);
    let attribute = json!({"handle_id": handle,
        "secondary": {"namespace": "app", "node": "machine-1", "pod": "a"}});
    let block = values::block("10.2.1.0/30", "host:machine-1", [Value::Null, attribute]);
    let affinity =
        json!({"state": "confirmed", "node": "machine-1", "cidr": "10.2.1.0/30", "deleted": "false"});
    let count = json!({"handleID": handle, "block": {"10.2.1.0/30": 1}, "deleted": false});
    [
        object(CALICO, "IPAMBlock", "10-2-1-0-30", block),
        object(CALICO, "BlockAffinity", "machine-1-10-2-1-0-30", affinity),
        object(CALICO, "IPAMHandle", &handle, count),
    ]
}

/// Creates a folder with the objects, and with empty lists of the other kinds.
fn folder(objects: &[Value]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, list: Value| fs::write(folder.path().join(name), list.to_string()).unwrap();
    write(
        "all.json",
        json!({"apiVersion": "v1", "kind": "List", "items": objects}),
    );
    let custom = ["IPPool", "IPAMBlock", "IPAMHandle", "BlockAffinity"].map(|kind| (CALICO, kind));
    for (group, kind) in custom
        .into_iter()
        .chain(["Node", "Pod", "Service"].map(|kind| ("v1", kind)))
    {
        let list = json!({"apiVersion": group, "kind": format!("{kind}List"), "items": [], "metadata": {}});
        write(&format!("{kind}.json"), list);
    }
    folder
}

fn on(folder: &TempDir, line: &str) -> Run {
    calipam(&format!("{line} --datastore {}", folder.path().display()))
}

#[test]
fn pods_of_host_local_are_one_finding_and_nothing_to_rebuild() {
    let pool = object(
        CALICO,
        "IPPool",
        "default",
        json!({"cidr": "10.2.0.0/16", "blockSize": 30}),
    );
    let pods = [
        pod("a", 1, "10.2.1.1"),
        pod("b", 1, "10.2.1.2"),
        pod("c", 2, "10.2.2.9"),
    ];
    let folder = folder(&[&[pool, node(1), node(2)][..], &pods, &left_over()].concat());
    let check = on(&folder, "check -o json").json();
    assert_eq!(
        column(&check["findings"], "code"),
        ["pods-without-calico-ipam"],
        "{check}"
    );
    assert_eq!(
        check["findings"][0]["evidence"],
        json!({"pods": 3, "leftOver": 1})
    );
    let plan = on(&folder, "rebuild -o json").json();
    assert_eq!(plan["changes"], json!([]), "{plan}");
    on(&folder, "show --compare").prints("Pods have addresses from host-local, not from Calico IPAM");
}

#[test]
fn a_cluster_with_policy_only_says_so() {
    let folder = folder(&[node(1), node(2)]);
    for line in ["show", "show --compare", "show --nodes"] {
        on(&folder, line)
            .prints("There is no pool and no block: this cluster does not use Calico IPAM")
            .omits("agree");
    }
}

#[test]
fn a_pool_over_the_nodes_is_refused_before_and_found_afterwards() {
    let pool = object(CALICO, "IPPool", "nodes", json!({"cidr": "192.0.2.0/24"}));
    let folder = folder(&[pool, node(1), node(2)]);
    let check = on(&folder, "check -o json").json();
    let found = &check["findings"][0];
    assert_eq!(
        (&found["code"], &found["severity"]),
        (&json!("pool-overlaps-nodes"), &json!("critical"))
    );
    assert_eq!(
        found["evidence"]["covers"][0],
        json!({"address": "192.0.2.1", "name": "machine-1"})
    );
}
