//! Addresses that an owner other than the recorded one uses, and addresses on the wrong node.

use ipnet::IpNet;

use crate::cluster::layout::go_time;
use crate::cluster::wire::{Attribute, Tunnel};
use crate::cluster::{Cluster, NodeInfo};

/// Replaces the record of an address, and adjusts the counts of both handles.
fn record(cluster: &mut Cluster, address: std::net::IpAddr, block: IpNet, attribute: Attribute) {
    let new = attribute.handle.clone().expect("the new record has a handle");
    cluster.count(&new, block, 1);
    let old = std::mem::replace(cluster.record_mut(address, block), attribute);
    if let Some(old) = old.handle {
        cluster.count(&old, block, -1);
    }
    cluster.expect("owner-mismatch", address);
}

pub(super) fn other_pod(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let ghost = cluster.holder(&pod.node);
    for (address, block) in pod.addresses {
        record(cluster, address, block, ghost.attribute());
    }
}

pub(super) fn other_node(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let other = cluster.victim_node(0).0.name;
    let mut past = cluster.holder(&other);
    past.name = pod.name;
    for (address, block) in pod.addresses {
        record(cluster, address, block, past.attribute());
    }
}

pub(super) fn tunnel_as_pod(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(1);
    let ghost = cluster.holder(&info.name);
    let address = cluster.node_mut(&info.name).tunnel(Tunnel::Ipip).expect("the node has the tunnel");
    record(cluster, address, info.blocks[0], ghost.attribute());
}

pub(super) fn pod_as_tunnel(cluster: &mut Cluster) {
    let (NodeInfo { name, .. }, pods) = cluster.victim_node(1);
    let tunnel = Tunnel::Vxlan;
    let attribute =
        Attribute::new(&tunnel.handle(&name), [("node", name.as_str()), ("type", tunnel.attribute())]);
    record(cluster, pods[0].address(), pods[0].block(), attribute);
}

pub(super) fn legacy(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_legacy_pod(&info.name, &info.blocks[..1]);
    let ghost = cluster.holder(&info.name).name;
    let handle = format!("{}.{}", ghost.namespace, ghost.pod);
    record(cluster, pod.address(), pod.block(), Attribute::bare(&handle));
}

pub(super) fn container(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_container_pod(&info.name, info.blocks[0]);
    let other = cluster.holder(&info.name).handle();
    record(cluster, pod.address(), pod.block(), Attribute::bare(&other));
}

pub(super) fn foreign(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let other = cluster.holder(&pod.node);
    let handle = format!("nomad.alloc-{}", other.name.pod);
    let since = go_time(other.since);
    for (address, block) in pod.addresses {
        let entries = [("node", pod.node.as_str()), ("timestamp", since.as_str())];
        record(cluster, address, block, Attribute::new(&handle, entries));
    }
}

pub(super) fn reserved(cluster: &mut Cluster) {
    let (node, block) = cluster.add_windows();
    let address = cluster.block_mut(block).address(1);
    let holder = cluster.holder(&node);
    cluster.put_endpoint(&holder, [address]);
    cluster.expect("owner-mismatch", address);
}

pub(super) fn borrowed_tunnel(cluster: &mut Cluster, tunnel: Tunnel) {
    let (info, _) = cluster.victim_node(1);
    let lender = cluster.host();
    let family = |b: &&IpNet| b.addr().is_ipv6() == tunnel.is_v6();
    let (Some(own), Some(other)) = (info.blocks.iter().find(family), lender.blocks.iter().find(family))
    else {
        return;
    };
    let old = cluster.node_mut(&info.name).tunnel(tunnel).expect("the node has the tunnel");
    cluster.free(old, *own);
    let address = cluster.add_tunnel(&info.name, tunnel, *other);
    cluster.expect("borrowed-tunnel-address", address);
}
