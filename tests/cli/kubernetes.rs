//! `check` of a real kube-apiserver.

use calipam_testkit::kube::{Flavour, Kinds, Lease, create, lease, service_account_token};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use super::program::{Run, calipam, scratch};

/// Starts a server with one node and its block. The block records a tunnel and a deleted pod.
pub(super) fn server() -> Lease {
    let flavour = Flavour::Classic;
    let server = lease(Kinds::Calico(flavour)).unwrap();
    let add = |plural: &str, kind: &str, name: &str, spec: Value| {
        let labels = json!({
            "projectcalico.org/affinity-type": "host", "projectcalico.org/ip-version": "4",
            "projectcalico.org/hostname-hash": "A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA",
        });
        let object = json!({"apiVersion": flavour.api_version(), "kind": kind,
            "metadata": {"name": name, "labels": labels}, "spec": spec});
        create(&server, &flavour.path(plural), &[object]).unwrap();
    };
    add(
        "ipamblocks",
        "IPAMBlock",
        "10-0-0-0-30",
        json!({
            "cidr": "10.0.0.0/30", "affinity": "host:node-1",
            "allocations": [0, 1, null, null], "unallocated": [3, 2],
            "attributes": [
                {"handle_id": "ipip-tunnel-addr-node-1", "secondary": {"node": "node-1", "type": "ipipTunnelAddress"}},
                {"handle_id": "k8s-pod-network.abc", "secondary": {"namespace": "default", "node": "node-1",
                    "pod": "web-0", "timestamp": "2026-05-01 10:12:00.123456789 +0000 UTC"}},
            ],
            "sequenceNumber": 1777630272123456792_u64,
            "sequenceNumberForAllocation": {"0": 1777630272123456789_u64, "1": 1777630272123456790_u64},
            "deleted": false, "strictAffinity": false,
        }),
    );
    let affinity = json!({"cidr": "10.0.0.0/30", "node": "node-1", "state": "confirmed", "type": "host", "deleted": "false"});
    add("blockaffinities", "BlockAffinity", "node-1-10-0-0-0-30", affinity);
    for id in ["ipip-tunnel-addr-node-1", "k8s-pod-network.abc"] {
        let value = json!({"handleID": id, "block": {"10.0.0.0/30": 1}, "deleted": false});
        add("ipamhandles", "IPAMHandle", id, value);
    }
    add("ippools", "IPPool", "default-ipv4-ippool", json!({"cidr": "10.0.0.0/16", "blockSize": 30}));
    let cluster = json!({"clusterGUID": "0f0e1d2c3b4a59687786951423324150", "calicoVersion": "v3.32.1", "datastoreReady": true});
    add("clusterinformations", "ClusterInformation", "default", cluster);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1",
        "annotations": {"projectcalico.org/IPv4IPIPTunnelAddr": "10.0.0.0"}}});
    create(&server, "/api/v1/nodes", &[node]).unwrap();
    server
}

pub(super) fn on_kubernetes(server: &KubeApiserver, arguments: &[&str]) -> Run {
    let kubeconfig = server.kubeconfig();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    calipam(&[arguments, &connection].concat())
}

#[test]
fn the_kubernetes_datastore_is_read() {
    let server = server();
    let run = on_kubernetes(&server, &["check", "-o", "json", "--settle", "1s"]).exits(1);
    let report = run.json();
    let findings: Vec<_> = report["findings"].as_array().unwrap().iter().collect();
    assert_eq!(findings.len(), 1, "{run:?}");
    assert_eq!(findings[0]["code"], "leaked-address");
    assert_eq!(findings[0]["subject"]["name"], "10.0.0.1");
    assert_eq!((&report["rechecked"], &report["coverage"]["pods"]), (&json!(true), &json!("read")));
    assert_eq!(report["cluster"]["datastore"], "kubernetes");

    let table = on_kubernetes(&server, &["check", "--settle", "0"]);
    let says = "1 block · 2 allocations · 1 affinity · 2 handles · 0 pods · 1 node\n";
    assert!(table.stdout.contains(says), "{table:?}");
    assert!(table.stdout.ends_with("\n1 finding: 1 error\n"), "nothing is missing: {table:?}");

    let story = on_kubernetes(&server, &["show", "--ip", "10.0.0.1"]).succeeded();
    assert!(story.stdout.contains("default/web-0, which was not found"), "{story:?}");

    let (_folder, path) = scratch("cluster.jsonl.zst");
    let path = path.to_str().unwrap();
    on_kubernetes(&server, &["export", path]).succeeded();
    let offline = calipam(&["check", "-o", "json", "--datastore", path]);
    let offline = offline.json();
    assert_eq!(offline["findings"], report["findings"]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let (_folder, path) = scratch("kubeconfig");
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
        clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: x, user: {token: hunter2}}]\n\
        contexts: [{name: x, context: {cluster: x, user: x}}]\n";
    std::fs::write(&path, kubeconfig).unwrap();
    let run = calipam(&["check", "-vv", "--datastore", "kubernetes", "--kubeconfig", path.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{run:?}");
    assert!(run.stderr.contains("error: ") && run.stderr.contains("127.0.0.1:1"), "{run:?}");
    assert!(!run.transcript().contains("hunter2"), "{run:?}");
}

/// Missing permissions are reported before anything is read, as RBAC rules that can be copied.
#[test]
fn missing_permissions_are_named_as_rules() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let token = service_account_token(&server, "nobody").unwrap();
    let (_folder, path) = scratch("kubeconfig");
    let kubeconfig = std::fs::read_to_string(server.kubeconfig()).unwrap().replace(server.token(), &token);
    std::fs::write(&path, kubeconfig).unwrap();
    let run = calipam(&["check", "--datastore", "kubernetes", "--kubeconfig", path.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""), "{run:?}");
    assert!(run.stderr.starts_with("error: "), "{run:?}");
    assert!(run.stderr.contains("\nhint: add this to a ClusterRole"), "{run:?}");
    assert!(run.stderr.lines().any(|line| line.trim_start().starts_with("- ")), "{run:?}");
    assert!(!run.transcript().contains(&token), "a token is a secret");
}
