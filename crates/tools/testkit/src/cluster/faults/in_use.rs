//! Addresses that are in use but not allocated, or that are used twice.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::blocks::expect_overlap;
use crate::cluster::layout::part;
use crate::cluster::wire::{Tunnel, key};
use crate::cluster::{Cluster, Form, Object, Pod};

pub(super) fn duplicate_pods(cluster: &mut Cluster) {
    let holder = cluster.victim();
    let thief = cluster.victim();
    cluster.add_address(&thief.endpoint, holder.address());
    cluster.expect("duplicate-address", holder.address());
}

pub(super) fn taken_over(cluster: &mut Cluster) {
    let holder = cluster.victim();
    let thief = cluster.victim();
    cluster.set_addresses(&thief.endpoint, &holder.all_addresses());
    cluster.expect_for("duplicate-address", &holder);
    cluster.expect_leaked(&thief, "pod-has-other-address");
}

pub(super) fn duplicate_tunnel(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(1);
    let old = cluster
        .tunnel(&info.name, Tunnel::Ipip)
        .expect("the node has the tunnel");
    cluster.set_tunnel(&info.name, Tunnel::Ipip, &pods[0].address().to_string());
    cluster.expect("duplicate-address", pods[0].address());
    cluster.expect_detail("leaked-address", old, "tunnel-moved");
}

pub(super) fn duplicate_unrecorded(cluster: &mut Cluster) {
    let pods = [cluster.victim(), cluster.victim()];
    let only = cluster.victim_block();
    // The last ordinal of a block with one pod.
    let stored = cluster.block_mut(only.block());
    let address = stored.address(stored.allocations.len() - 1);
    assert_ne!(address, only.address());
    for pod in pods {
        cluster.add_address(&pod.endpoint, address);
    }
    cluster.expect("duplicate-address", address);
    cluster.expect("unallocated-in-use", address);
}

/// Adds overlapping blocks, as Calico itself does after the block size of a pool was reduced (facts 3.4.1).
pub(super) fn in_several_blocks(cluster: &mut Cluster) {
    let large = cluster.victim_block().block();
    let second = cluster.victim_in(part(large, 28, 0));
    cluster.expect("address-in-several-blocks", second.address());
    cluster.expect("duplicate-address", second.address());
    expect_overlap(cluster, large, second.block());
}

/// Frees the addresses of a new pod, which lives on.
pub(super) fn freed(cluster: &mut Cluster, start: fn(&mut Cluster) -> Pod) {
    let pod = start(cluster);
    cluster.free_pod(&pod);
    cluster.expect_for("unallocated-in-use", &pod);
}

/// Frees the address of a container whose ID is not hexadecimal.
pub(super) fn foreign_freed(cluster: &mut Cluster) {
    let info = cluster.host();
    let container = format!("alloc-{:06}-of-nomad", cluster.next_pod);
    let address = cluster.add_container("lb-nomad", &container, &info.name, info.blocks[0]);
    cluster.free(address, info.blocks[0]);
    cluster.expect("unallocated-in-use", address);
}

/// Adds a pod whose address bypasses IPAM. Only the pod object shows the bypass.
pub(super) fn bypassing(cluster: &mut Cluster) {
    let address = cluster.add_bypassing_pod();
    cluster.expect_in(&[Form::Etcd], "unallocated-in-use", address);
    cluster.expect_in(&Form::WITH_PODS, "unrecorded-address", address);
}

/// Adds two pods on a node without Calico. Their addresses are in a pool. One is a free address of a block, and the
/// other belongs to no block.
pub(super) fn of_other_plugin(cluster: &mut Cluster) {
    let block = cluster.victim_block().block();
    let free = cluster.block_mut(block).address(40);
    let in_no_block = cluster.spare_block().addr();
    cluster.put_foreign_node();
    for address in [free, in_no_block] {
        let path = format!(
            "pods/hybrid/hybrid-{}",
            address.to_string().replace(['.', ':'], "-")
        );
        cluster.put_running_pod(&path, "fargate-1", address);
        cluster.expect_in(&Form::WITH_PODS, "unrecorded-address", address);
    }
}

pub(super) fn cooling(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let released = cluster.spec.seconds_ago(15);
    for (address, block) in pod.addresses.clone() {
        cluster.block_mut(block).cool(&[address], &released);
        cluster.count(&pod.handle, block, -1);
    }
    cluster.expect_for("unallocated-in-use", &pod);
}

pub(super) fn no_block(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(2);
    for block in &info.blocks {
        cluster.remove(&key::block(*block));
        cluster.remove(&key::affinity("host", &info.name, *block));
    }
    for pod in &pods {
        cluster.remove(&key::handle(&pod.handle));
        cluster.expect_for("unallocated-in-use", pod);
    }
    for tunnel in Tunnel::ALL {
        if let Some(address) = cluster.tunnel(&info.name, tunnel) {
            cluster.remove(&key::handle(&tunnel.handle(&info.name)));
            cluster.expect("unallocated-in-use", address);
        }
    }
}

pub(super) fn tunnel_freed(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(1);
    let address = cluster
        .tunnel(&info.name, Tunnel::Vxlan)
        .expect("the node has the tunnel");
    cluster.free(address, info.blocks[0]);
    cluster.expect("unallocated-in-use", address);
}

pub(super) fn outside_pools(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let address = cluster.foreign_block().addr();
    cluster.add_address(&pod.endpoint, address);
    cluster.expect("in-use-outside-pools", address);
}

/// Adds a block that a deleted pool has left behind. The block has no owner, and a live pod uses one of its addresses.
pub(super) fn outside_pools_recorded(cluster: &mut Cluster) {
    let block = cluster.foreign_block();
    let pod = cluster.victim_in(block);
    cluster.release_affinity(&pod);
    cluster.expect("block-outside-pools", block);
    cluster.expect_for("in-use-outside-pools", &pod);
}

pub(super) fn outside_pools_tunnel(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let block = cluster.foreign_block();
    cluster.claim(block, &info.name);
    let old = cluster
        .tunnel(&info.name, Tunnel::Wireguard)
        .expect("the node has the tunnel");
    cluster.free(old, info.blocks[0]);
    let address = cluster.add_tunnel(&info.name, Tunnel::Wireguard, block);
    cluster.expect("block-outside-pools", block);
    cluster.expect("in-use-outside-pools", address);
}

/// Removes all blocks. Handles and affinities remain, so every check still applies.
pub(super) fn all_blocks_lost(cluster: &mut Cluster) {
    cluster.remove_prefix("/calico/ipam/v2/assignment/");
    let mut seen = BTreeSet::new();
    for address in addresses_in_use(cluster) {
        cluster.expect("unallocated-in-use", address);
        // Without records, only the pods show that two endpoints belong to one virtual machine.
        if !seen.insert(address) {
            cluster.expect_in(&[Form::Etcd], "duplicate-address", address);
        }
    }
    for address in cluster.service_addresses() {
        cluster.expect_in(&Form::WITH_PODS, "unallocated-in-use", address);
    }
    let keys: Vec<String> = cluster
        .keys()
        .map(|k| String::from_utf8_lossy(k).into_owned())
        .collect();
    for key in keys {
        let parts: Vec<&str> = key
            .strip_prefix("/calico/ipam/v2/")
            .unwrap_or_default()
            .split('/')
            .collect();
        match parts[..] {
            ["handle", id] => cluster.expect("orphan-handle", id),
            ["host" | "virtual", holder, _, "block", cidr] => {
                let cidr = cidr.replacen('-', "/", 1);
                cluster.expect("affinity-without-block", format!("{holder}/{cidr}"));
            }
            _ => {}
        }
    }
}

/// The addresses of all endpoints and tunnels. Addresses that several of them use occur several times.
fn addresses_in_use(cluster: &Cluster) -> Vec<IpAddr> {
    let resources = cluster.entries.values().filter_map(|object| match object {
        Object::Json(value) => Some(value),
        _ => None,
    });
    let networks = resources.flat_map(|value| {
        let tunnels = Tunnel::ALL.map(|tunnel| value.pointer(&tunnel.field()));
        let own = value.pointer("/spec/ipNetworks").and_then(Value::as_array);
        own.into_iter().flatten().chain(tunnels.into_iter().flatten())
    });
    let address = |network: &Value| network.as_str()?.split('/').next()?.parse().ok();
    networks.filter_map(address).collect()
}
