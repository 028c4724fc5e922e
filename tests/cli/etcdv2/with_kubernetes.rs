//! Clusters of Calico 2.x whose Kubernetes is read with `--kubeconfig`.

use calipam_testkit::calico2::endpoint_key;
use calipam_testkit::kube::{Kinds, Lease, create, lease};
use calipam_testkit::servers::KubeApiserver;
use serde_json::json;

use super::{AT_ONCE, Site};
use crate::cli::program::Run;

/// Starts a server with the pods of the healthy cluster.
fn kubernetes() -> Lease {
    let server = lease(Kinds::Kubernetes).unwrap();
    let object =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    // The server may have created the namespace already.
    server.request("POST", "/api/v1/namespaces", &object("Namespace", "default").to_string()).unwrap();
    for third in [1, 2] {
        let node = format!("node-{third}");
        create(&server, "/api/v1/nodes", &[object("Node", &node)]).unwrap();
        for (last, pod) in [(1, "a"), (2, "b"), (3, "c")] {
            add_pod(&server, &format!("{pod}-{third}"), &node, &format!("192.168.{third}.{last}"));
        }
    }
    server
}

fn add_pod(server: &KubeApiserver, name: &str, node: &str, address: &str) {
    let path = "/api/v1/namespaces/default/pods";
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    create(server, path, std::slice::from_ref(&pod)).unwrap();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    pod["status"] =
        json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready});
    let set = server.request("PUT", &format!("{path}/{name}/status"), &pod.to_string()).unwrap();
    assert_eq!(set.status, 200, "{}", set.body);
}

#[test]
fn pods_are_compared_with_the_endpoints_of_calico_2() {
    let Some(site) = Site::start() else { return };
    let server = kubernetes();
    let client = site.calico.client();
    let kubeconfig = server.kubeconfig();
    let run = |arguments: &[&str]| -> Run {
        site.run(&[arguments, &AT_ONCE[..], &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat())
    };
    let check = || {
        let checked = run(&["check", "-o", "json"]);
        let document = checked.json();
        (super::findings(&checked), document)
    };
    let (found, document) = check();
    assert_eq!(found, [""; 0]);
    assert_eq!(document["coverage"]["pods"], "read", "{}", document["coverage"]);
    let lookup = ["show", "--ip", "192.168.1.1", "--kubeconfig", kubeconfig.to_str().unwrap()];
    site.run(&lookup).succeeded().prints("a-1");

    // A deleted pod whose endpoint still exists, and a pod whose endpoint is missing.
    let deleted =
        server.request("DELETE", "/api/v1/namespaces/default/pods/a-1?gracePeriodSeconds=0", "").unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    client.delete(&endpoint_key("node-2", "default.b-2")).unwrap();
    let (found, _) = check();
    assert!(found.iter().any(|line| line.starts_with("endpoint-without-pod ")), "{found:?}");
    assert!(found.iter().any(|line| line.starts_with("pod-without-endpoint ")), "{found:?}");
    // The pod is running, so its address is not leaked.
    assert!(!found.iter().any(|line| line == "leaked-address 192.168.2.2"), "{found:?}");
    let before = site.dump();
    let released = run(&["release", "--leaked", "--yes"]);
    assert!(released.code <= 1, "{released:?}");
    let block = site.dump().remove("/calico/ipam/v2/assignment/ipv4/block/192.168.2.0-26");
    assert_eq!(block.as_ref(), before.get("/calico/ipam/v2/assignment/ipv4/block/192.168.2.0-26"));

    // With pods and endpoints, a rebuild does not need `--endpoints-only`.
    client.delete("/calico/ipam/v2/assignment/ipv4/block/192.168.2.0-26").unwrap();
    let rebuilt = run(&["rebuild", "--apply", "--yes"]);
    assert!(rebuilt.code <= 1, "{rebuilt:?}");
    let block = client.json("/calico/ipam/v2/assignment/ipv4/block/192.168.2.0-26").unwrap();
    for ordinal in [1, 2, 3] {
        assert!(block["allocations"][ordinal].is_u64(), "{block}");
    }
}
