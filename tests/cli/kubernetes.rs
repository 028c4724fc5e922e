//! `check` of a real kube-apiserver.

use calipam_testkit::kube::{Flavour, service_account_token};
use serde_json::json;

use super::kube_cluster::{KubeCluster, Record};
use super::program::{calipam, file, scratch};

/// Starts a server with one node and its block. The block records a tunnel and a deleted pod.
pub(super) fn cluster() -> KubeCluster {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node(
        "node-1",
        json!({"projectcalico.org/IPv4IPIPTunnelAddr": "10.0.0.0"}),
    );
    let tunnel = json!({"node": "node-1", "type": "ipipTunnelAddress"});
    let pod = json!({"namespace": "default", "node": "node-1", "pod": "web-0"});
    let records = [("ipip-tunnel-addr-node-1", tunnel), ("k8s-pod-network.abc", pod)];
    let records = (0..)
        .zip(records)
        .map(|(ordinal, (handle, owner))| Record::new(ordinal, handle, owner));
    cluster.add_block("10.0.0.0/26", "node-1", &records.collect::<Vec<_>>());
    cluster
}

#[test]
fn the_kubernetes_datastore_is_read() {
    let cluster = cluster();
    let run = cluster.run("check -o json --settle 1s").exits(1);
    let report = run.json();
    assert_eq!(run.column("findings", "code"), ["leaked-address"], "{run:?}");
    assert_eq!(report["findings"][0]["subject"]["name"], "10.0.0.1");
    assert_eq!(
        (&report["rechecked"], &report["coverage"]["pods"]),
        (&json!(true), &json!("read"))
    );
    assert_eq!(report["cluster"]["datastore"], "kubernetes");

    // Nothing is missing.
    let table = cluster
        .run("check --settle 0")
        .prints_last("\n1 finding: 1 error\n");
    table.prints("1 block · 2 allocations · 1 affinity · 2 handles · 0 pods · 1 node\n");
    cluster
        .run("show --ip 10.0.0.1")
        .succeeded()
        .prints("default/web-0, which was not found");

    let (_folder, path) = scratch("cluster.jsonl.zst");
    let path = path.display();
    cluster.run(&format!("export {path}")).succeeded();
    let offline = calipam(&format!("check -o json --datastore {path}")).json();
    assert_eq!(offline["findings"], report["findings"]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
        clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}]\n\
        users: [{name: x, user: {token: hunter2}}]\n\
        contexts: [{name: x, context: {cluster: x, user: x}}]\n";
    let (_folder, path) = file("kubeconfig", kubeconfig);
    calipam(&format!("check -vv --datastore kubernetes --kubeconfig {path}"))
        .refused(3, "error: ")
        .says("127.0.0.1:1")
        .hides("hunter2");
}

/// Missing permissions are reported before anything is read, as RBAC rules that can be copied.
#[test]
fn missing_permissions_are_named_as_rules() {
    let cluster = KubeCluster::start(Flavour::Classic);
    let token = service_account_token(&cluster.server, "nobody").unwrap();
    let kubeconfig = std::fs::read_to_string(cluster.server.kubeconfig()).unwrap();
    let (_folder, path) = file("kubeconfig", kubeconfig.replace(cluster.server.token(), &token));
    let run = calipam(&format!("check --datastore kubernetes --kubeconfig {path}"))
        .refused(3, "\nhint: add this to a ClusterRole")
        .hides(&token);
    assert!(run.stderr.starts_with("error: "), "{run:?}");
    assert!(
        run.stderr.lines().any(|line| line.trim_start().starts_with("- ")),
        "{run:?}"
    );
}
