//! Nodes that no longer exist, or exist only in part.

use serde_json::json;

use crate::cluster::truth::Text;
use crate::cluster::wire::{Tunnel, key};
use crate::cluster::{Cluster, Form, NodeInfo};

/// Removes a node with its pods.
pub(super) fn gone(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    expect_tunnels(cluster, &info, &Form::ALL, "node-gone");
    lose_node(cluster, &info);
    for pod in &pods {
        cluster.remove(&pod.endpoint);
        cluster.expect_leaked(pod, "node-gone");
    }
}

/// Expects the tunnel addresses of a node to be reported as leaked for a reason.
fn expect_tunnels(cluster: &mut Cluster, node: &NodeInfo, forms: &[Form], reason: Text) {
    for tunnel in Tunnel::ALL {
        if let Some(address) = cluster.tunnel(&node.name, tunnel) {
            cluster.expect_detail_in(forms, "leaked-address", address, reason);
        }
    }
}

/// Expects a node to be reported as missing.
fn expect_missing(cluster: &mut Cluster, node: &NodeInfo, forms: &[Form]) {
    for block in &node.blocks {
        cluster.expect_in(forms, "block-of-missing-node", block);
        cluster.expect_in(
            forms,
            "affinity-of-missing-node",
            format!("{}/{block}", node.name),
        );
    }
}

/// Removes the object of a node.
fn lose_node(cluster: &mut Cluster, node: &NodeInfo) {
    cluster.remove(&key::node(&node.name));
    expect_missing(cluster, node, &Form::ALL);
}

/// Removes a node from Kubernetes, but keeps Calico's object for the node.
pub(super) fn left_behind(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    cluster.leave_object_out(&key::node(&info.name));
    expect_missing(cluster, &info, &Form::WITH_PODS);
    for pod in &pods {
        cluster.remove(&pod.endpoint);
        cluster.expect_leaked_in(&[Form::Etcd], pod, "no-owner");
        cluster.expect_leaked_in(&Form::WITH_PODS, pod, "node-gone");
    }
    expect_tunnels(cluster, &info, &Form::WITH_PODS, "node-gone");
}

/// Removes Calico's object of a live node.
pub(super) fn object_missing(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    expect_tunnels(cluster, &info, &Form::IN_KUBERNETES, "tunnel-moved");
    let name = &info.name;
    cluster.remove(&key::node(name));
    cluster.put_kubernetes_only(&format!("nodes//{name}"), json!({"spec": {}, "status": {}}));
    cluster.expect_in(&[Form::EtcdWithKubernetes], "node-object-missing", name);
    cluster.expect_in(&Form::IN_KUBERNETES, "tunnel-address-missing", name);
    expect_missing(cluster, &info, &[Form::Etcd]);
    for pod in &pods {
        cluster.expect_in(&[Form::Etcd], "endpoint-of-missing-node", pod.subject());
    }
}

/// Clears the WireGuard address of a node that has a WireGuard key.
pub(super) fn tunnel_missing(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let address = cluster
        .tunnel(&info.name, Tunnel::Wireguard)
        .expect("every node has all tunnels");
    cluster.set_tunnel(&info.name, Tunnel::Wireguard, "");
    cluster.free(address, info.blocks[0]);
    cluster.expect_detail(
        "tunnel-address-missing",
        &info.name,
        "spec.wireguard.interfaceIPv4Address",
    );
}

/// Removes a node and leaves its pods. The node may be alive, so its tunnel addresses are not reported as leaked.
pub(super) fn gone_pods_left(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    lose_node(cluster, &info);
    for pod in pods {
        cluster.expect("endpoint-of-missing-node", pod.subject());
    }
}

pub(super) fn endpoint_on_missing(cluster: &mut Cluster) {
    let block = cluster.host().blocks[0];
    let missing = cluster.missing_node();
    let pod = cluster.add_pod(&missing, &[block]);
    cluster.expect("endpoint-of-missing-node", pod.subject());
}
