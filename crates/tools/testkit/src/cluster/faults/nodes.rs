//! Nodes that no longer exist, or exist only in part.

use std::net::IpAddr;

use serde_json::json;

use crate::cluster::wire::{Tunnel, key};
use crate::cluster::{Cluster, Form, NodeInfo, Pod};

pub(super) fn gone(cluster: &mut Cluster) {
    let (info, pods) = lose_node(cluster);
    for pod in &pods {
        cluster.remove(&pod.endpoint);
        cluster.expect_leaked(pod, "node-gone");
    }
    for address in tunnels_of(cluster, &info) {
        cluster.expect_detail("leaked-address", address, "node-gone");
    }
}

fn tunnels_of(cluster: &Cluster, node: &NodeInfo) -> Vec<IpAddr> {
    let blocks = cluster.blocks().filter(|block| node.blocks.contains(&block.cidr));
    let records = blocks.flat_map(|block| block.records());
    let is_its = |handle: &String| is_tunnel(handle, &node.name);
    let tunnels = records.filter(|(_, record)| record.handle.as_ref().is_some_and(is_its));
    tunnels.map(|(address, _)| address).collect()
}

fn is_tunnel(handle: &str, node: &str) -> bool {
    Tunnel::ALL.iter().any(|tunnel| tunnel.handle(node) == handle)
}

/// Removes the object of a node that has two pods.
fn lose_node(cluster: &mut Cluster) -> (NodeInfo, Vec<Pod>) {
    let (info, pods) = cluster.victim_node(2);
    cluster.remove(&key::node(&info.name));
    for block in &info.blocks {
        cluster.expect("block-of-missing-node", block);
        cluster.expect("affinity-of-missing-node", format!("{}/{block}", info.name));
    }
    (info, pods)
}

/// Removes a node from Kubernetes, but keeps Calico's object for the node.
pub(super) fn left_behind(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    let name = &info.name;
    cluster.leave_object_out(&key::node(name));
    for block in &info.blocks {
        cluster.expect_in(&Form::WITH_PODS, "block-of-missing-node", block);
        cluster.expect_in(&Form::WITH_PODS, "affinity-of-missing-node", format!("{name}/{block}"));
    }
    for pod in &pods {
        cluster.remove(&pod.endpoint);
        cluster.expect_leaked_in(&[Form::Etcd], pod, "no-owner");
        cluster.expect_leaked_in(&Form::WITH_PODS, pod, "node-gone");
    }
    for address in tunnels_of(cluster, &info) {
        cluster.expect_detail_in(&Form::WITH_PODS, "leaked-address", address, "node-gone");
    }
}

/// Removes Calico's object of a live node.
pub(super) fn object_missing(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    let name = &info.name;
    cluster.remove(&key::node(name));
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {}, "spec": {}, "status": {}});
    cluster.put_kubernetes_only("nodes", "", name, object);
    cluster.expect_in(&[Form::EtcdWithKubernetes], "node-object-missing", name);
    cluster.expect_in(&Form::IN_KUBERNETES, "tunnel-address-missing", name);
    for block in &info.blocks {
        cluster.expect_in(&[Form::Etcd], "block-of-missing-node", block);
        cluster.expect_in(&[Form::Etcd], "affinity-of-missing-node", format!("{name}/{block}"));
    }
    for pod in &pods {
        let subject = cluster.endpoint_mut(&pod.endpoint).subject();
        cluster.expect_in(&[Form::Etcd], "endpoint-of-missing-node", subject);
    }
    for address in tunnels_of(cluster, &info) {
        cluster.expect_detail_in(&Form::IN_KUBERNETES, "leaked-address", address, "tunnel-moved");
    }
}

/// Clears the WireGuard address of a node that has a WireGuard key.
pub(super) fn tunnel_missing(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let tunnel = Tunnel::Wireguard;
    let address = cluster.node_mut(&info.name).tunnel(tunnel).expect("every node has all tunnels");
    cluster.node_mut(&info.name).tunnel_mut(tunnel).clear();
    cluster.free(address, info.blocks[0]);
    cluster.expect_detail("tunnel-address-missing", &info.name, "spec.wireguard.interfaceIPv4Address");
}

/// Removes a node and leaves its pods. The node may be alive, so its tunnel addresses are not reported as leaked.
pub(super) fn gone_pods_left(cluster: &mut Cluster) {
    let (_, pods) = lose_node(cluster);
    for pod in pods {
        let subject = cluster.endpoint_mut(&pod.endpoint).subject();
        cluster.expect("endpoint-of-missing-node", subject);
    }
}

pub(super) fn endpoint_on_missing(cluster: &mut Cluster) {
    let block = cluster.host().blocks[0];
    let missing = cluster.missing_node();
    let pod = cluster.add_pod(&missing, &[block]);
    let subject = cluster.endpoint_mut(&pod.endpoint).subject();
    cluster.expect("endpoint-of-missing-node", subject);
}
