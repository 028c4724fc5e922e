//! Overlapping pools, full pools, nodes without addresses, and settings of the cluster.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::cluster::layout::part;
use crate::cluster::wire::{Block, key};
use crate::cluster::{Cluster, Form};

/// Adds a pool inside another pool.
pub(super) fn overlapping(cluster: &mut Cluster) {
    add_inner(cluster, 0, &json!({}), &Form::ALL);
}

/// Adds a pool and a second one in one of its halves. Expects the overlap in some forms. Returns the name of the inner
/// pool.
fn add_inner(cluster: &mut Cluster, half: usize, change: &Value, forms: &[Form]) -> String {
    let (name, cidr) = cluster.extra_pool();
    let second = format!("{name}-half");
    let inner = part(cidr, 25, half);
    cluster.put_pool(&name, cidr, 28, &json!({}));
    cluster.put_pool(&second, inner, 28, change);
    for pool in [cidr, inner] {
        cluster.expect_in(forms, "overlapping-pools", pool);
    }
    second
}

/// Adds a pool with one address, which is the address of a node.
pub(super) fn over_nodes(cluster: &mut Cluster) {
    let node = cluster.victim_node(0).0.name;
    let (name, _) = cluster.extra_pool();
    let addresses = &cluster.json(&key::node(&node))["spec"]["addresses"];
    let address: IpAddr = addresses[1]["address"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("an address");
    let cidr = IpNet::from(address);
    cluster.put_pool(&name, cidr, 32, &json!({}));
    cluster.expect("pool-overlaps-nodes", cidr);
}

/// Adds a pool inside another pool. The native group allows the overlap if the inner pool is disabled, or for a reason
/// that the caller adds. Returns the key of the inner pool.
pub(super) fn pool_and_half(cluster: &mut Cluster, disabled: bool) -> String {
    let change = if disabled {
        json!({"disabled": true})
    } else {
        json!({})
    };
    key::pool(&add_inner(cluster, 1, &change, &Form::WITHOUT_POOL_CONTROLLER))
}

/// Adds a pool inside another pool. The inner pool is being deleted, so the native group allows the overlap.
pub(super) fn overlapping_deleted(cluster: &mut Cluster) {
    let deleted = json!({"metadata": {"deletionTimestamp": cluster.spec.seconds_ago(7200),
        "deletionGracePeriodSeconds": 0, "finalizers": ["projectcalico.org/ippool-finalizer"]}});
    let second = pool_and_half(cluster, false);
    cluster.patch_object(&second, deleted);
}

/// Adds a pool inside another pool. Calico's pool controller has marked the inner pool as overlapping, so the native
/// group allows the overlap.
pub(super) fn overlapping_refused(cluster: &mut Cluster) {
    let refused = json!({"type": "Allocatable", "status": "False", "reason": "CIDROverlap",
        "message": "it overlaps another pool", "lastTransitionTime": cluster.spec.seconds_ago(7200)});
    let second = pool_and_half(cluster, false);
    cluster.patch_object(&second, json!({"status": {"conditions": [refused]}}));
}

/// Adds two pools with the same CIDR, so that their findings have the same subject.
pub(super) fn twins(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    cluster.put_pool(&name, cidr, 28, &json!({}));
    cluster.put_pool(&format!("{name}-again"), cidr, 28, &json!({"disabled": true}));
    cluster.expect_in(&Form::WITHOUT_POOL_CONTROLLER, "overlapping-pools", cidr);
}

/// Adds a pool with an invalid selector. Calico then assigns addresses of the pool's family only to requests that name
/// a pool.
pub(super) fn invalid_selector(cluster: &mut Cluster) {
    let cidr = cluster.add_extra_pool(28, &json!({"nodeSelector": "zone =="}));
    cluster.expect("invalid-pool-selector", cidr);
    cluster.expect_as(
        &Form::ALL,
        "node-without-addresses",
        "ipv4/broken-selector",
        "critical",
    );
}

/// Adds a pool into which none of its blocks fits.
pub(super) fn smaller_than_block(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    let cidr = part(cidr, 28, 0);
    cluster.put_pool(&name, cidr, 26, &json!({}));
    cluster.expect("pool-smaller-than-block", cidr);
}

/// Adds a pool with a single block, which a node owns.
fn tiny(cluster: &mut Cluster) -> (String, IpNet) {
    let node = cluster.host().name;
    let (name, cidr) = cluster.extra_pool();
    let cidr = part(cidr, 28, 0);
    cluster.put_pool(&name, cidr, 28, &json!({}));
    cluster.claim(cidr, &node);
    (node, cidr)
}

pub(super) fn nearly_full(cluster: &mut Cluster) {
    let (node, cidr) = tiny(cluster);
    for _ in 0..15 {
        cluster.add_pod(&node, &[cidr]);
    }
    cluster.expect("pool-nearly-full", cidr);
}

/// Fills a pool. Half of the addresses are reserved. In the other half, one address is cooling and all others are in
/// use.
pub(super) fn nearly_full_reserved(cluster: &mut Cluster) {
    let (node, cidr) = tiny(cluster);
    let pods: Vec<_> = (0..8).map(|_| cluster.add_pod(&node, &[cidr])).collect();
    let reserved = part(cidr, 29, 1).to_string();
    cluster.put_reservation(&format!("half-{}", cidr.addr()), 7, &[reserved]);
    let gone = &pods[0];
    cluster.remove(&gone.endpoint);
    let released = cluster.spec.seconds_ago(20);
    cluster.block_mut(cidr).cool(&[gone.address()], &released);
    cluster.count(&gone.handle, cidr, -1);
    cluster.expect_as(&Form::ALL, "pool-nearly-full", cidr, "error");
}

/// Fills the maximum number of blocks on a node.
pub(super) fn stranded_by_limit(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let selector = format!("kubernetes.io/hostname == '{}'", info.name);
    let cidr = cluster.add_extra_pool(30, &json!({"nodeSelector": selector}));
    let blocks: Vec<IpNet> = cidr.subnets(30).expect("a /24").take(19).collect();
    for block in &blocks {
        cluster.claim(*block, &info.name);
    }
    for block in info.blocks[..1].iter().chain(&blocks) {
        fill(cluster, *block, &info.name);
    }
    cluster.expect("node-without-addresses", info.name);
}

/// Assigns all free addresses of a block to pods on a node.
fn fill(cluster: &mut Cluster, block: IpNet, node: &str) {
    while !cluster.block_mut(block).unallocated.is_empty() {
        cluster.add_pod(node, &[block]);
    }
}

/// Fills a node's only block under strict affinity, so that the node needs another block. The only block left is empty
/// and belongs to another node. Only Calico 3.32 and later takes it from that node.
pub(super) fn stranded_before_332(cluster: &mut Cluster) {
    let names = [(); 2].map(|()| cluster.victim_node(0).0.name);

    let hostname = "kubernetes.io/hostname";
    let selector = format!("{hostname} != '{}'", names[0]);
    let default = cluster.spec.pool_v4();
    cluster.put_pool(
        "default-ipv4-ippool",
        default,
        26,
        &json!({"nodeSelector": selector}),
    );
    // This pool would serve the node in some namespaces.
    cluster.remove_prefix(&key::pool("team-ippool"));
    let (name, cidr) = cluster.extra_pool();
    let cidr = part(cidr, 27, 0);
    let selector = format!("{hostname} in {{'{}', '{}'}}", names[0], names[1]);
    cluster.put_pool(&name, cidr, 28, &json!({"nodeSelector": selector}));

    for (name, number) in names.iter().zip(0..) {
        cluster.claim(part(cidr, 28, number), name);
    }
    fill(cluster, part(cidr, 28, 0), &names[0]);

    cluster.set_information("calicoVersion", "v3.31.7");
    strict(cluster);
    cluster.expect("node-without-addresses", &names[0]);
}

pub(super) fn locked(cluster: &mut Cluster) {
    cluster.set_information("datastoreReady", false);
    cluster.expect("datastore-locked", "default");
    for pod in cluster.waiting.clone() {
        cluster.expect_in(&Form::WITH_PODS, "pod-without-address", pod);
    }
}

/// Removes the cluster information, which Calico's plugin reads first.
pub(super) fn no_information(cluster: &mut Cluster) {
    cluster.remove(&key::resource("clusterinformations", "default"));
    cluster.expect("no-cluster-information", "default");
    for pod in cluster.waiting.clone() {
        cluster.expect_in(&Form::WITH_PODS, "pod-without-address", pod);
    }
}

pub(super) fn auto_allocation_off(cluster: &mut Cluster) {
    cluster.change_settings(&json!({"autoAllocateBlocks": false}));
    cluster.expect("auto-allocation-off", "default");
}

/// Empties the allocator's configuration. A field that is absent from an existing value is false in etcd (facts 1.6).
pub(super) fn empty_settings(cluster: &mut Cluster) {
    auto_allocation_off(cluster);
    cluster.change_settings(&json!({"ipCooldownSeconds": null}));
    cluster.put_json(key::IPAM_CONFIG, json!({}));
}

pub(super) fn settings_mismatch(cluster: &mut Cluster) {
    let cooldown = cluster.spec.cooldown_seconds + 30;
    cluster.mirrored_settings()["spec"]["ipCooldownSeconds"] = cooldown.into();
    // In Kubernetes, the two settings are one object.
    cluster.expect_in(&Form::IN_ETCD, "configuration-mismatch", "default");
}

/// Turns on strict affinity. Expects a finding for every address that is used on a node other than the block's owner.
pub(super) fn strict(cluster: &mut Cluster) {
    cluster.change_settings(&json!({"strictAffinity": true}));
    let borrowed: Vec<IpAddr> = cluster.blocks().flat_map(borrowed).collect();
    for address in borrowed {
        cluster.expect("borrowed-under-strict-affinity", address);
    }
}

fn borrowed(block: &Block) -> Vec<IpAddr> {
    let Some(host) = block.affinity.as_deref().and_then(|a| a.strip_prefix("host:")) else {
        return Vec::new();
    };
    // A machine keeps its address when it migrates.
    let elsewhere = block.records().filter(|(_, record)| {
        record.get("node").is_some_and(|node| node != host) && record.get("vmi-name").is_none()
    });
    elsewhere.map(|(address, _)| address).collect()
}
