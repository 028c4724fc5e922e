//! Allocated addresses that are not in use.

use jiff::SignedDuration;
use serde_json::json;

use crate::cluster::build::Holder;
use crate::cluster::layout::{go_time, part};
use crate::cluster::wire::{Attribute, Tunnel};
use crate::cluster::{Cluster, Form, Pod};

/// Ends a new pod without releasing its addresses.
pub(super) fn end(cluster: &mut Cluster, start: impl FnOnce(&mut Cluster) -> Pod) -> Pod {
    let pod = start(cluster);
    cluster.remove(&pod.endpoint);
    cluster.expect_leaked(&pod, "no-owner");
    pod
}

/// Leaks the addresses of a pod, whose records have no time or another one.
pub(super) fn recorded_at(cluster: &mut Cluster, time: Option<String>) {
    for (address, block) in end(cluster, Cluster::victim).addresses {
        let entries = cluster.record_mut(address, block).owner.get_or_insert_default();
        entries.remove("timestamp");
        entries.extend(time.clone().map(|time| ("timestamp".to_owned(), time)));
    }
}

/// Leaks addresses whose recorded time is ten years ahead, which is in the future for any test.
pub(super) fn future(cluster: &mut Cluster) {
    let later = cluster
        .spec
        .now
        .saturating_add(SignedDuration::from_hours(10 * 366 * 24));
    recorded_at(cluster, Some(go_time(later.expect("a time in this era"))));
}

pub(super) fn new_sandbox(cluster: &mut Cluster) {
    let pod = cluster.victim();
    succeed(cluster, &pod, &pod.node);
    cluster.expect_leaked(&pod, "pod-has-other-address");
}

/// Starts a new sandbox of a pod on a node, with its own addresses, handle and endpoint.
fn succeed(cluster: &mut Cluster, pod: &Pod, node: &str) {
    let holder = Holder {
        name: pod.name.clone(),
        ..cluster.holder(node)
    };
    let blocks = cluster.blocks_of(node);
    cluster.start(&holder, &holder.attribute(), &blocks);
}

pub(super) fn half(cluster: &mut Cluster) {
    let info = cluster.host();
    let block = cluster.spare_block();
    cluster.claim(block, &info.name);
    let pod = cluster.add_pod(&info.name, &[info.blocks[0], block]);
    cluster.set_addresses(&pod.endpoint, &[pod.address()]);
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
        let Some(block) = info.block_for(tunnel) else {
            continue;
        };
        let old = cluster
            .tunnel(&info.name, tunnel)
            .expect("the node has the tunnel");
        cluster.add_tunnel(&info.name, tunnel, block);
        cluster.expect_detail("leaked-address", old, "tunnel-moved");
    }
}

pub(super) fn tunnels_off(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    for tunnel in Tunnel::ALL {
        if let Some(address) = cluster.tunnel(&name, tunnel) {
            cluster.set_tunnel(&name, tunnel, "");
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
    let attribute = cluster.holder(&node).attribute_of(&id);
    unknown(cluster, attribute);
}

pub(super) fn container(cluster: &mut Cluster) {
    let handle = cluster.holder("nowhere").handle();
    unknown(cluster, Attribute::bare(&handle));
}

pub(super) fn unknown(cluster: &mut Cluster, attribute: Attribute) {
    let block = cluster.host().blocks[0];
    let address = cluster.take_as(block, attribute);
    cluster.expect_detail("leaked-address", address, "unknown-owner");
    cluster.expect_as(&Form::ALL, "leaked-address", address, "warning");
}

pub(super) fn legacy(cluster: &mut Cluster) {
    let info = cluster.host();
    end(cluster, |cluster| {
        cluster.add_legacy_pod(&info.name, &info.blocks)
    });
}

/// Adds a disabled pool with a block and a live pod.
pub(super) fn disabled_pool(cluster: &mut Cluster) -> Pod {
    let cidr = cluster.add_extra_pool(28, &json!({"disabled": true}));
    cluster.victim_in(part(cidr, 28, 2))
}

pub(super) fn in_unowned_block(cluster: &mut Cluster) {
    let pod = end(cluster, Cluster::victim_block);
    cluster.release_affinity(&pod);
}
