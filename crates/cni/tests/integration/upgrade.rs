//! The migration from host-local.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use calipam_cni::upgrade::{NodeFiles, migrate};
use calipam_model::key::Key;
use calipam_testkit::kube::{Flavour, edit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{World, block_on};

#[test]
fn addresses_of_host_local_are_taken_over() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        takes_over(&World::kubernetes(flavour));
    }
}

fn takes_over(world: &World) {
    pod_with(world, &["10.7.0.70", "fd00:7::46"]);
    let node = Node::with(&[
        ("10.7.0.70", "c1\r\neth0"),
        ("10.7.0.71", "c2"),
        ("fd00:7::46", "c1\r\neth0"),
        ("last_reserved_ip.0", "10.7.0.71"),
        ("lock", ""),
    ]);
    for _ in 0..2 {
        node.migrate(world).unwrap();
    }

    let expected = [
        ("10.7.0.65".to_owned(), "ipip-tunnel-addr-a".to_owned()),
        ("10.7.0.70".to_owned(), "k8s-pod-network.c1".to_owned()),
        ("fd00:7::46".to_owned(), "k8s-pod-network.c1".to_owned()),
    ];
    assert_eq!(world.allocated(), expected);
    assert!(!node.networks().exists() && !node.plugin().exists());
    let annotations = world.get(&Key::Node("a".into())).unwrap()["metadata"]["annotations"].take();
    assert_eq!(annotations["projectcalico.org/IPv4IPIPTunnelAddr"], "10.7.0.65");
    assert_eq!(cluster(world)["spec"]["datastoreReady"], true);

    // The address is already recorded for another container. That record is kept.
    Node::with(&[("10.7.0.70", "c3")]).migrate(world).unwrap();
    assert_eq!(world.allocated(), expected);
}

#[test]
fn addresses_that_cannot_be_taken_over_are_refused_before_the_cluster_is_stopped() {
    let world = World::kubernetes(Flavour::Classic);
    pod_with(&world, &["10.7.0.70", "fd00:8::46"]);
    let before = cluster(&world);
    for (name, expected) in [
        ("fd00:8::46", "fd00:8::46 of pod ns/web-0 is in no enabled pool"),
        ("fd00:7::zz", "is not an address"),
    ] {
        let node = Node::with(&[("10.7.0.70", "c1"), (name, "c1")]);
        let reason = node.migrate(&world).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
        assert!(node.plugin().exists() && node.networks().join(name).exists());
    }
    assert_eq!(cluster(&world), before);
    assert_eq!(world.allocated(), []);
}

#[test]
fn a_failure_half_way_starts_the_cluster_again() {
    let world = World::kubernetes(Flavour::Classic);
    let node = Node::with(&[("10.7.0.70", "c1")]);
    let before = cluster(&world);
    fs::create_dir(node.networks().join("lock")).unwrap();
    let reason = node.migrate(&world).unwrap_err();
    assert!(reason.contains("lock"), "{reason}");
    let after = cluster(&world);
    assert_eq!(after["spec"]["datastoreReady"], true);
    assert_ne!(
        after["metadata"]["resourceVersion"],
        before["metadata"]["resourceVersion"]
    );
}

/// Creates a running pod on node `a` with these addresses, the first of which is its `podIP`.
fn pod_with(world: &World, addresses: &[&str]) {
    let spec = json!({"nodeName": "a", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]});
    world.create(
        &Key::Pod {
            namespace: "ns".into(),
            name: "web-0".into(),
        },
        &json!({"spec": spec}),
    );
    let all: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
    edit(world.server(), "/api/v1/namespaces/ns/pods/web-0/status", |pod| {
        pod["status"] = json!({"podIP": addresses[0], "podIPs": all, "phase": "Running"});
    });
}

/// The cluster information.
fn cluster(world: &World) -> Value {
    world.get(&Key::ClusterInformation("default".into())).unwrap()
}

/// host-local's files on a node: assigned addresses, and its program.
struct Node(TempDir);

impl Node {
    fn with(files: &[(&str, &str)]) -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        fs::create_dir(node.networks()).unwrap();
        for (name, content) in files {
            fs::write(node.networks().join(name), content).unwrap();
        }
        fs::write(node.plugin(), "").unwrap();
        node
    }

    fn networks(&self) -> PathBuf {
        self.0.path().join("networks")
    }

    fn plugin(&self) -> PathBuf {
        self.0.path().join("host-local")
    }

    fn migrate(&self, world: &World) -> Result<(), String> {
        let (addresses, plugins) = (self.networks(), vec![self.plugin()]);
        let files = NodeFiles {
            addresses,
            plugins,
            wait: Duration::ZERO,
        };
        block_on(migrate(&world.settings(), "a", &files)).map_err(|error| error.to_string())
    }
}
