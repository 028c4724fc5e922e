//! The migration from host-local.

use std::fs;
use std::time::Duration;

use calipam_cni::upgrade::{Places, migrate};
use calipam_testkit::kube::{Flavour, create};
use serde_json::{Value, json};

use crate::world::World;

#[test]
fn what_host_local_gave_out_is_taken_over() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        takes_over(&World::kubernetes(flavour), flavour);
    }
}

fn takes_over(world: &World, flavour: Flavour) {
    let server = world.server();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "ns"},
        "spec": {"nodeName": "a", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    create(server, "/api/v1/namespaces/ns/pods", &[pod]).unwrap();
    let path = "/api/v1/namespaces/ns/pods/web-0";
    let mut pod: Value = serde_json::from_str(&server.request("GET", path, "").unwrap().body).unwrap();
    pod["status"] = json!({"podIP": "10.7.0.70", "podIPs": [{"ip": "10.7.0.70"}], "phase": "Running"});
    assert_eq!(server.request("PUT", &format!("{path}/status"), &pod.to_string()).unwrap().status, 200);

    let folder = tempfile::tempdir().unwrap();
    let (networks, plugin) = (folder.path().join("networks"), folder.path().join("host-local"));
    fs::create_dir(&networks).unwrap();
    for (name, content) in
        [("10.7.0.70", "c1\r\neth0"), ("10.7.0.71", "c2"), ("last_reserved_ip.0", "10.7.0.71"), ("lock", "")]
    {
        fs::write(networks.join(name), content).unwrap();
    }
    fs::write(&plugin, "").unwrap();
    let places = Places { addresses: networks.clone(), plugins: vec![plugin.clone()], wait: Duration::ZERO };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..2 {
        runtime.block_on(migrate(&world.settings(), "a", &places)).unwrap();
    }

    let expected = [
        ("10.7.0.65".to_owned(), "ipip-tunnel-addr-a".to_owned()),
        ("10.7.0.70".to_owned(), "k8s-pod-network.c1".to_owned()),
    ];
    assert_eq!(world.allocated(), expected);
    assert!(!networks.exists() && !plugin.exists());
    let get = |path: &str| -> Value {
        serde_json::from_str(&server.request("GET", path, "").unwrap().body).unwrap()
    };
    let annotation =
        &get("/api/v1/nodes/a")["metadata"]["annotations"]["projectcalico.org/IPv4IPIPTunnelAddr"];
    assert_eq!(annotation, "10.7.0.65");
    let cluster = get(&format!("{}/default", flavour.path("clusterinformations")));
    assert_eq!(cluster["spec"]["datastoreReady"], true);
}
