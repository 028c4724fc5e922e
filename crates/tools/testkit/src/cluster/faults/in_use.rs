//! Addresses that are in use but not allocated, or that are used twice.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::leaks::disabled_pool;
use crate::cluster::wire::{Tunnel, key};
use crate::cluster::{Cluster, Form, Object, Pod};

pub(super) fn duplicate_pods(cluster: &mut Cluster) {
    let (holder, thief) = (cluster.victim(), cluster.victim());
    cluster.endpoint_mut(&thief.endpoint).add_address(holder.address());
    cluster.expect("duplicate-address", holder.address());
}

pub(super) fn taken_over(cluster: &mut Cluster) {
    let (holder, thief) = (cluster.victim(), cluster.victim());
    let stolen: Vec<IpAddr> = holder.addresses.iter().map(|(a, _)| *a).collect();
    cluster.endpoint_mut(&thief.endpoint).set_addresses(&stolen);
    cluster.expect_for("duplicate-address", &holder);
    cluster.expect_leaked(&thief, "pod-has-other-address");
}

pub(super) fn duplicate_tunnel(cluster: &mut Cluster) {
    let (info, pods) = cluster.victim_node(1);
    let stored = cluster.node_mut(&info.name);
    let old = stored.tunnel(Tunnel::Ipip).expect("the node has the tunnel");
    *stored.tunnel_mut(Tunnel::Ipip) = pods[0].address().to_string();
    cluster.expect("duplicate-address", pods[0].address());
    cluster.expect_detail("leaked-address", old, "tunnel-moved");
}

pub(super) fn duplicate_unrecorded(cluster: &mut Cluster) {
    let pods = [cluster.victim(), cluster.victim()];
    let (_, block, pod) = cluster.victim_block();
    // The last ordinal of a block with one pod.
    let stored = cluster.block_mut(block);
    let address = stored.address(stored.allocations.len() - 1);
    assert_ne!(address, pod.address());
    for pod in pods {
        cluster.endpoint_mut(&pod.endpoint).add_address(address);
    }
    cluster.expect("duplicate-address", address);
    cluster.expect("unallocated-in-use", address);
}

/// Adds overlapping blocks, as Calico itself does after the block size of a pool was reduced (facts 3.4.1).
pub(super) fn in_several_blocks(cluster: &mut Cluster) {
    let (_, large, _) = cluster.victim_block();
    let small = large.subnets(28).expect("a /26").next().expect("it has four parts");
    let (_, second) = cluster.victim_in(small);
    cluster.expect("address-in-several-blocks", second.address());
    cluster.expect("duplicate-address", second.address());
    cluster.expect("overlapping-blocks", large);
    cluster.expect("overlapping-blocks", small);
    cluster.expect("block-size-mismatch", small);
}

pub(super) fn freed(cluster: &mut Cluster) {
    let pod = cluster.victim();
    free_all(cluster, &pod);
}

fn free_all(cluster: &mut Cluster, pod: &Pod) {
    for (address, block) in &pod.addresses {
        cluster.free(*address, *block);
    }
    cluster.expect_for("unallocated-in-use", pod);
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
    let (_, block, _) = cluster.victim_block();
    let free = cluster.block_mut(block).address(40);
    let in_no_block = cluster.spare_block().addr();
    cluster.put_foreign_node();
    for address in [free, in_no_block] {
        let name = format!("hybrid-{}", address.to_string().replace(['.', ':'], "-"));
        cluster.put_running_pod("hybrid", &name, "fargate-1", address);
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
        if let Some(address) = cluster.node_mut(&info.name).tunnel(tunnel) {
            cluster.remove(&key::handle(&tunnel.handle(&info.name)));
            cluster.expect("unallocated-in-use", address);
        }
    }
}

pub(super) fn tunnel_freed(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(1);
    let address = cluster.node_mut(&info.name).tunnel(Tunnel::Vxlan).expect("the node has the tunnel");
    cluster.free(address, info.blocks[0]);
    cluster.expect("unallocated-in-use", address);
}

pub(super) fn freed_in_disabled_pool(cluster: &mut Cluster) {
    let pod = disabled_pool(cluster);
    free_all(cluster, &pod);
}

pub(super) fn outside_pools(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let address = cluster.foreign_block().addr();
    cluster.endpoint_mut(&pod.endpoint).add_address(address);
    cluster.expect("in-use-outside-pools", address);
}

/// Adds a block that a deleted pool has left behind. The block has no owner, and a live pod uses one of its addresses.
pub(super) fn outside_pools_recorded(cluster: &mut Cluster) {
    let block = cluster.foreign_block();
    let (node, pod) = cluster.victim_in(block);
    cluster.release_affinity(&node, block);
    cluster.expect("block-outside-pools", block);
    cluster.expect_for("in-use-outside-pools", &pod);
}

pub(super) fn outside_pools_tunnel(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let block = cluster.foreign_block();
    cluster.claim(block, &info.name);
    let old = cluster.node_mut(&info.name).tunnel(Tunnel::Wireguard).expect("the node has the tunnel");
    cluster.free(old, info.blocks[0]);
    let address = cluster.add_tunnel(&info.name, Tunnel::Wireguard, block);
    cluster.expect("block-outside-pools", block);
    cluster.expect("in-use-outside-pools", address);
}

/// Removes all blocks. Handles and affinities remain, so every check still applies.
pub(super) fn all_blocks_lost(cluster: &mut Cluster) {
    let used: Vec<String> = cluster.entries.values().flat_map(addresses_in_use).collect();
    let blocks = "/calico/ipam/v2/assignment/";
    cluster.remove_prefix(blocks);
    let mut seen = BTreeSet::new();
    for address in used {
        cluster.expect("unallocated-in-use", &address);
        // Without records, only the pods show that two endpoints belong to one virtual machine.
        if !seen.insert(address.clone()) {
            cluster.expect_in(&[Form::Etcd], "duplicate-address", address);
        }
    }
    for address in cluster.service_addresses() {
        cluster.expect_in(&Form::WITH_PODS, "unallocated-in-use", address);
    }
    let keys: Vec<String> = cluster.keys().map(|k| String::from_utf8_lossy(k).into_owned()).collect();
    for key in keys {
        if let Some(handle) = key.strip_prefix("/calico/ipam/v2/handle/") {
            cluster.expect("orphan-handle", handle);
        }
        let affinity = ["host", "virtual"].iter().find_map(|kind| {
            let (holder, rest) = key.strip_prefix(&format!("/calico/ipam/v2/{kind}/"))?.split_once('/')?;
            let (_, cidr) = rest.split_once("/block/")?;
            Some(format!("{holder}/{}", cidr.replacen('-', "/", 1)))
        });
        if let Some(affinity) = affinity {
            cluster.expect("affinity-without-block", affinity);
        }
    }
}

fn addresses_in_use(object: &Object) -> Vec<String> {
    let bare = |text: &String| text.split('/').next().unwrap_or_default().to_owned();
    match object {
        Object::Endpoint(endpoint) => endpoint.spec.ip_networks.iter().map(bare).collect(),
        Object::Node(node) => {
            Tunnel::ALL.iter().filter_map(|t| node.tunnel(*t)).map(|a| a.to_string()).collect()
        }
        _ => Vec::new(),
    }
}
