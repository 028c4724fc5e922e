//! Allocated addresses that are not in use.

use jiff::SignedDuration;

use crate::cluster::build::{Holder, sub_block};
use crate::cluster::layout::go_time;
use crate::cluster::wire::{Attribute, Pool, Tunnel};
use crate::cluster::{Cluster, Form, Pod};

pub(super) fn no_owner(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.remove(&pod.endpoint);
    cluster.expect_leaked(&pod, "no-owner");
}

pub(super) fn without_time(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.remove(&pod.endpoint);
    for (address, block) in pod.addresses.clone() {
        cluster.record_mut(address, block).owner.get_or_insert_default().remove("timestamp");
    }
    cluster.expect_leaked(&pod, "no-owner");
}

/// Leaks an address whose recorded time is ten years ahead, which is in the future for any test.
pub(super) fn future(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.remove(&pod.endpoint);
    let later = cluster.spec.now.saturating_add(SignedDuration::from_hours(10 * 366 * 24));
    let later = go_time(later.expect("a time in this era"));
    for (address, block) in pod.addresses.clone() {
        cluster.record_mut(address, block).set("timestamp", &later);
    }
    cluster.expect_leaked(&pod, "no-owner");
}

pub(super) fn new_sandbox(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let node = pod.node.clone();
    succeed(cluster, &pod, &node);
    cluster.expect_leaked(&pod, "pod-has-other-address");
}

/// Starts a new sandbox of a pod on a node, with its own addresses, handle and endpoint.
fn succeed(cluster: &mut Cluster, pod: &Pod, node: &str) {
    let holder = Holder { name: pod.name.clone(), ..cluster.holder(node) };
    let info = cluster.nodes.iter().find(|n| n.name == node).expect("the node is known");
    let blocks = info.blocks.clone();
    let addresses: Vec<_> = blocks.iter().map(|block| cluster.take(*block, &holder)).collect();
    cluster.put_endpoint(&holder, addresses);
}

pub(super) fn half(cluster: &mut Cluster) {
    let info = cluster.host();
    let block = cluster.spare_block();
    cluster.claim(block, &info.name);
    let pod = cluster.add_pod(&info.name, &[info.blocks[0], block]);
    let used = pod.address();
    cluster.endpoint_mut(&pod.endpoint).set_addresses(&[used]);
    cluster.expect_detail("leaked-address", pod.addresses[1].0, "pod-has-other-address");
}

pub(super) fn moved(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let other = cluster.victim_node(0).0.name;
    cluster.remove(&pod.endpoint);
    succeed(cluster, &pod, &other);
    cluster.expect_leaked(&pod, "pod-moved");
}

pub(super) fn tunnel_moved(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(1);
    for tunnel in [Tunnel::Ipip, Tunnel::VxlanV6] {
        let block = info.blocks.iter().find(|b| b.addr().is_ipv6() == tunnel.is_v6());
        let Some(block) = block.copied() else { continue };
        let old = cluster.node_mut(&info.name).tunnel(tunnel).expect("the node has the tunnel");
        cluster.add_tunnel(&info.name, tunnel, block);
        cluster.expect_detail("leaked-address", old, "tunnel-moved");
    }
}

pub(super) fn tunnels_off(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    for tunnel in Tunnel::ALL {
        if let Some(address) = cluster.node_mut(&name).tunnel(tunnel) {
            cluster.node_mut(&name).tunnel_mut(tunnel).clear();
            cluster.expect_detail("leaked-address", address, "tunnel-moved");
        }
    }
    // The pools use IP in IP, and the node still has the WireGuard key.
    cluster.expect_detail("tunnel-address-missing", name, "spec.bgp.ipv4IPIPTunnelAddr");
}

pub(super) fn unknown_handle(cluster: &mut Cluster) {
    let id = format!("reserved-by-script-{}", cluster.next_pod);
    cluster.next_pod += 1;
    unknown(cluster, Attribute::bare(&id));
}

pub(super) fn foreign(cluster: &mut Cluster) {
    let node = cluster.host().name;
    let id = format!("cluster.alloc-{}", cluster.next_pod);
    let since = crate::cluster::go_time(cluster.holder(&node).since);
    unknown(cluster, Attribute::new(&id, [("node", node.as_str()), ("timestamp", since.as_str())]));
}

pub(super) fn container(cluster: &mut Cluster) {
    let handle = cluster.holder("nowhere").handle();
    unknown(cluster, Attribute::bare(&handle));
}

pub(super) fn unknown(cluster: &mut Cluster, attribute: Attribute) {
    let block = cluster.host().blocks[0];
    let address = cluster.take_as(block, attribute);
    cluster.expect_detail("leaked-address", address, "unknown-owner");
    cluster.expect_as_in(&Form::ALL, "leaked-address", address, "warning");
}

pub(super) fn legacy(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_legacy_pod(&info.name, &info.blocks);
    cluster.remove(&pod.endpoint);
    cluster.expect_leaked(&pod, "no-owner");
}

pub(super) fn in_disabled_pool(cluster: &mut Cluster) {
    let pod = disabled_pool(cluster);
    cluster.remove(&pod.endpoint);
    cluster.expect_leaked(&pod, "no-owner");
}

/// Adds a disabled pool with a block and a live pod.
pub(super) fn disabled_pool(cluster: &mut Cluster) -> Pod {
    let (name, cidr) = cluster.extra_pool();
    cluster.put_pool(&name, Pool { disabled: true, ..Pool::new(cidr, 28) });
    cluster.victim_in(sub_block(cidr, 2)).1
}

pub(super) fn in_unowned_block(cluster: &mut Cluster) {
    let (node, block, pod) = cluster.victim_block();
    cluster.release_affinity(&node, block);
    cluster.remove(&pod.endpoint);
    cluster.expect_leaked(&pod, "no-owner");
}
