//! The cluster on which an allocator begins.

use anyhow::Result;
use serde_json::{Value, json};

use super::crds::Flavour;
use super::objects::{create, named};
use crate::cluster::ClusterSpec;
use crate::servers::KubeApiserver;

/// Namespaces of test pods that a new server does not have.
const NAMESPACES: [&str; 3] = ["batch", "monitoring", "shop"];

/// Creates an empty cluster on a server with Calico's kinds: the configuration, the IPv4 pool of `spec`, nodes without
/// tunnels, and the namespaces of pods. Returns the names of the nodes.
///
/// # Panics
/// Panics if the server refuses an object.
pub fn seed(
    server: &KubeApiserver,
    flavour: Flavour,
    spec: &ClusterSpec,
    nodes: usize,
) -> Result<Vec<String>> {
    let pool = json!({"cidr": spec.pool_v4().to_string(), "blockSize": 26, "nodeSelector": "all()"});
    let cluster = json!({"clusterGUID": "0f0e1d2c3b4a59687786951423324150", "calicoVersion": "v3.32.1",
        "datastoreReady": true});
    let resources = [
        ("clusterinformations", "default", cluster),
        ("ippools", "default-ipv4-ippool", pool),
        (
            flavour.ipam_config().0,
            "default",
            json!({"strictAffinity": false, "autoAllocateBlocks": true}),
        ),
    ];
    for (plural, name, spec) in resources {
        let object = flavour.named(json!({ "spec": spec }), plural, name);
        create(server, &flavour.path(plural), &[object])?;
    }
    let names: Vec<String> = (1..=nodes).map(|number| format!("node-{number}")).collect();
    seed_nodes(server, &names)?;
    Ok(names)
}

/// Creates nodes and the namespaces of test pods, without any Calico objects.
///
/// # Panics
/// Panics if the server refuses an object.
pub fn seed_nodes(server: &KubeApiserver, names: &[String]) -> Result<()> {
    let namespaces = NAMESPACES.map(|name| named(json!({}), "v1", "Namespace", name));
    create(server, "/api/v1/namespaces", &namespaces)?;
    let nodes: Vec<Value> = names
        .iter()
        .map(|name| named(json!({}), "v1", "Node", name))
        .collect();
    create(server, "/api/v1/nodes", &nodes)
}
