//! Nodes that do not exist any more.

use crate::cluster::wire::{Tunnel, key};
use crate::cluster::{Cluster, NodeInfo, Pod};

pub(super) fn gone(cluster: &mut Cluster) {
    let (info, pods) = lose_node(cluster);
    let name = &info.name;
    for pod in &pods {
        cluster.remove(&pod.endpoint);
        cluster.expect_leaked(pod, "node-gone");
    }
    let tunnels: Vec<_> = cluster
        .blocks()
        .filter(|b| info.blocks.contains(&b.cidr))
        .flat_map(|b| b.records())
        .filter(|(_, record)| record.handle.as_ref().is_some_and(|h| is_tunnel(h, name)))
        .map(|(address, _)| address)
        .collect();
    for address in tunnels {
        cluster.expect_detail("leaked-address", address, "node-gone");
    }
}

fn is_tunnel(handle: &str, node: &str) -> bool {
    Tunnel::ALL.iter().any(|tunnel| tunnel.handle(node) == handle)
}

/// Removes the object of a node that has two pods.
fn lose_node(cluster: &mut Cluster) -> (NodeInfo, Vec<Pod>) {
    let (node, pods) = cluster.victim_node(2);
    let info = cluster.nodes[node].clone();
    cluster.remove(&key::node(&info.name));
    for block in &info.blocks {
        cluster.expect("block-of-missing-node", block);
        cluster.expect("affinity-of-missing-node", format!("{}/{block}", info.name));
    }
    (info, pods)
}

/// WireGuard was switched on, and the node has its key, but took no address.
pub(super) fn tunnel_missing(cluster: &mut Cluster) {
    let node = cluster.add_node();
    let info = cluster.nodes[node].clone();
    let tunnel = Tunnel::Wireguard;
    let address = cluster.node_mut(&info.name).tunnel(tunnel).expect("every node has all tunnels");
    cluster.node_mut(&info.name).tunnel_mut(tunnel).clear();
    cluster.free(address, info.blocks[0]);
    cluster.expect_detail("tunnel-address-missing", &info.name, "spec.wireguard.interfaceIPv4Address");
}

/// The node may be alive: its tunnel addresses are not leaked.
pub(super) fn gone_pods_left(cluster: &mut Cluster) {
    let (_, pods) = lose_node(cluster);
    for pod in pods {
        let subject = cluster.endpoint_mut(&pod.endpoint).subject();
        cluster.expect("endpoint-of-missing-node", subject);
    }
}

pub(super) fn endpoint_on_missing(cluster: &mut Cluster) {
    let node = cluster.host();
    let block = cluster.nodes[node].blocks[0];
    let missing = cluster.missing_node();
    let pod = cluster.add_pod(&missing, &[block]);
    let subject = cluster.endpoint_mut(&pod.endpoint).subject();
    cluster.expect("endpoint-of-missing-node", subject);
}
