//! Clusters of Calico 2.x whose Kubernetes is read with `--kubeconfig`.

use calipam_testkit::calico2::{block_key, endpoint_key};
use calipam_testkit::kube::{Kinds, Lease, create, create_in_etcd, lease};
use serde_json::json;

use super::{SECOND, Site};
use crate::cli::kube_cluster::pod;
use crate::cli::program::Runs;

/// Starts a server with the pods of the healthy cluster.
fn kubernetes() -> Lease {
    let server = lease(Kinds::Kubernetes).unwrap();
    let object =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    // The server may have created the namespace already.
    server
        .request(
            "POST",
            "/api/v1/namespaces",
            &object("Namespace", "default").to_string(),
        )
        .unwrap();
    create(
        &server,
        "/api/v1/nodes",
        &["node-1", "node-2"].map(|node| object("Node", node)),
    )
    .unwrap();
    let names = ["a-1", "b-1", "c-1", "a-2", "b-2", "c-2"];
    let pods = names.iter().enumerate().map(|(number, name)| {
        let (third, last) = (number / 3 + 1, number % 3 + 1);
        let mut pod = pod(
            "default",
            name,
            &format!("node-{third}"),
            &format!("192.168.{third}.{last}"),
            number,
        );
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        pod
    });
    create_in_etcd(&server, "/registry/pods/", &pods.collect::<Vec<_>>()).unwrap();
    server
}

#[test]
fn pods_are_compared_with_the_endpoints_of_calico_2() {
    let Some(site) = Site::start() else { return };
    let server = kubernetes();
    let client = site.calico.client;
    let kubeconfig = server.kubeconfig();
    let with_pods = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let document = site.run_at_once(&["check", "-o", "json"], &with_pods).json();
    assert_eq!(document["findings"], json!([]));
    assert_eq!(document["coverage"]["pods"], "read", "{}", document["coverage"]);
    site.run(&[&["show", "--ip", "192.168.1.1"], &with_pods[..]].concat())
        .succeeded()
        .prints("a-1");

    // A deleted pod whose endpoint still exists, and a pod whose endpoint is missing.
    let deleted = server
        .request(
            "DELETE",
            "/api/v1/namespaces/default/pods/a-1?gracePeriodSeconds=0",
            "",
        )
        .unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    client.delete(&endpoint_key("node-2", "default.b-2")).unwrap();
    let found = site.findings(&with_pods);
    for code in [" endpoint-without-pod ", " pod-without-endpoint "] {
        assert!(found.iter().any(|line| line.contains(code)), "{found:?}");
    }
    // The pod is running, so its address is not leaked.
    assert!(
        !found
            .iter()
            .any(|line| line.ends_with(" leaked-address 192.168.2.2")),
        "{found:?}"
    );
    let before = client.json(&block_key(SECOND)).unwrap();
    site.release(&[&["--leaked"], &with_pods[..]].concat())
        .completed();
    assert_eq!(client.json(&block_key(SECOND)).unwrap(), before);

    // With pods and endpoints, a rebuild does not need `--endpoints-only`.
    client.delete(&block_key(SECOND)).unwrap();
    site.run_at_once(&["rebuild", "--apply", "--yes"], &with_pods)
        .completed();
    let block = client.json(&block_key(SECOND)).unwrap();
    for ordinal in [1, 2, 3] {
        assert!(block["allocations"][ordinal].is_u64(), "{block}");
    }
}
