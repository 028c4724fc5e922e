//! Addresses that an owner other than the recorded one uses, and addresses on the wrong node.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::cluster::build::Holder;
use crate::cluster::wire::{Attribute, Tunnel};
use crate::cluster::{Cluster, NodeInfo, Pod};

/// Replaces the record of an address, and adjusts the counts of both handles.
fn record(cluster: &mut Cluster, address: IpAddr, block: IpNet, attribute: Attribute) {
    let new = attribute.handle.clone().expect("the new record has a handle");
    cluster.count(&new, block, 1);
    let old = std::mem::replace(cluster.record_mut(address, block), attribute);
    if let Some(old) = old.handle {
        cluster.count(&old, block, -1);
    }
    cluster.expect("owner-mismatch", address);
}

/// Replaces the records of all addresses of a pod.
fn record_all(cluster: &mut Cluster, pod: &Pod, attribute: &Attribute) {
    for (address, block) in &pod.addresses {
        record(cluster, *address, *block, attribute.clone());
    }
}

pub(super) fn other_pod(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let ghost = cluster.holder(&pod.node).attribute();
    record_all(cluster, &pod, &ghost);
}

pub(super) fn other_node(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let other = cluster.victim_node(0).0.name;
    let past = Holder {
        name: pod.name.clone(),
        ..cluster.holder(&other)
    };
    record_all(cluster, &pod, &past.attribute());
}

pub(super) fn tunnel_as_pod(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(1);
    let ghost = cluster.holder(&info.name);
    let address = cluster
        .tunnel(&info.name, Tunnel::Ipip)
        .expect("the node has the tunnel");
    record(cluster, address, info.blocks[0], ghost.attribute());
}

pub(super) fn pod_as_tunnel(cluster: &mut Cluster) {
    let (NodeInfo { name, .. }, pods) = cluster.victim_node(1);
    let tunnel = Tunnel::Vxlan;
    let attribute = Attribute::new(
        &tunnel.handle(&name),
        [("node", name.as_str()), ("type", tunnel.attribute())],
    );
    record(cluster, pods[0].address(), pods[0].block(), attribute);
}

pub(super) fn legacy(cluster: &mut Cluster) {
    let pod = cluster.legacy_victim();
    let ghost = cluster.holder(&pod.node).name;
    let handle = format!("{}.{}", ghost.namespace, ghost.pod);
    record_all(cluster, &pod, &Attribute::bare(&handle));
}

pub(super) fn container(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_container_pod(&info.name, info.blocks[0]);
    let other = cluster.holder(&info.name).handle();
    record_all(cluster, &pod, &Attribute::bare(&other));
}

pub(super) fn foreign(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let other = cluster.holder(&pod.node);
    let handle = format!("nomad.alloc-{}", other.name.pod);
    record_all(cluster, &pod, &other.attribute_of(&handle));
}

/// Adds a Windows node, which needs strict affinity, with a pod on a reserved ordinal.
pub(super) fn reserved(cluster: &mut Cluster) {
    super::pools::strict(cluster);
    let (node, block) = cluster.add_windows();
    let address = cluster.block_mut(block).address(1);
    let holder = cluster.holder(&node);
    cluster.put_endpoint(&holder, &[address]);
    cluster.expect("owner-mismatch", address);
}

pub(super) fn borrowed_tunnel(cluster: &mut Cluster, tunnel: Tunnel) {
    let (info, _) = cluster.victim_node(1);
    let lender = cluster.host();
    let (Some(own), Some(other)) = (info.block_for(tunnel), lender.block_for(tunnel)) else {
        return;
    };
    let old = cluster
        .tunnel(&info.name, tunnel)
        .expect("the node has the tunnel");
    cluster.free(old, own);
    let address = cluster.add_tunnel(&info.name, tunnel, other);
    cluster.expect("borrowed-tunnel-address", address);
}
