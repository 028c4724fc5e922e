//! Overlapping pools, full pools, and nodes without addresses.

use ipnet::IpNet;
use serde_json::json;

use crate::cluster::wire::{self, Pool, key};
use crate::cluster::{Cluster, Form};

pub(super) fn overlapping(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    let inner = cidr.subnets(25).expect("a /24").next().expect("it has two halves");
    cluster.put_pool(&name, Pool::new(cidr, 28));
    cluster.put_pool(&format!("{name}-half"), Pool::new(inner, 28));
    cluster.expect("overlapping-pools", cidr);
    cluster.expect("overlapping-pools", inner);
}

/// Adds a pool with one address, which is the address of a node.
pub(super) fn over_nodes(cluster: &mut Cluster) {
    let node = cluster.victim_node(0).0.name;
    let (name, _) = cluster.extra_pool();
    let address = cluster.node_mut(&node).spec.addresses[1].address.parse().expect("an address");
    let cidr = IpNet::new(address, 32).expect("a prefix of IPv4");
    cluster.put_pool(&name, Pool::new(cidr, 32));
    cluster.expect("pool-overlaps-nodes", cidr);
}

/// Adds a pool inside another pool. The native group allows the overlap if the inner pool is disabled, or for a reason
/// that the caller adds. Returns the name of the inner pool.
pub(super) fn pool_and_half(cluster: &mut Cluster, disabled: bool) -> String {
    let (name, cidr) = cluster.extra_pool();
    let inner = cidr.subnets(25).expect("a /24").nth(1).expect("it has two halves");
    cluster.put_pool(&name, Pool::new(cidr, 28));
    let second = format!("{name}-half");
    cluster.put_pool(&second, Pool { disabled, ..Pool::new(inner, 28) });
    for pool in [cidr, inner] {
        cluster.expect_in(&Form::WITHOUT_POOL_CONTROLLER, "overlapping-pools", pool);
    }
    second
}

/// Adds a pool inside another pool. The inner pool is being deleted, so the native group allows the overlap.
pub(super) fn overlapping_deleted(cluster: &mut Cluster) {
    let deleted = json!({"metadata": {"deletionTimestamp": cluster.spec.seconds_ago(7200),
        "deletionGracePeriodSeconds": 0, "finalizers": ["projectcalico.org/ippool-finalizer"]}});
    let second = pool_and_half(cluster, false);
    cluster.patch_object(&key::pool(&second), deleted);
}

/// Adds a pool inside another pool. Calico's pool controller has marked the inner pool as overlapping, so the native
/// group allows the overlap.
pub(super) fn overlapping_refused(cluster: &mut Cluster) {
    let refused = json!({"type": "Allocatable", "status": "False", "reason": "CIDROverlap",
        "message": "it overlaps another pool", "lastTransitionTime": cluster.spec.seconds_ago(7200)});
    let second = pool_and_half(cluster, false);
    cluster.patch_object(&key::pool(&second), json!({"status": {"conditions": [refused]}}));
}

/// Adds two pools with the same CIDR, so that their findings have the same subject.
pub(super) fn twins(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    cluster.put_pool(&name, Pool::new(cidr, 28));
    cluster.put_pool(&format!("{name}-again"), Pool { disabled: true, ..Pool::new(cidr, 28) });
    cluster.expect_in(&Form::WITHOUT_POOL_CONTROLLER, "overlapping-pools", cidr);
}

/// Adds a pool with an invalid selector. Calico then assigns addresses of the pool's family only to requests that name
/// a pool.
pub(super) fn invalid_selector(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    cluster.put_pool(&name, Pool { node_selector: "zone ==".to_owned(), ..Pool::new(cidr, 28) });
    cluster.expect("invalid-pool-selector", cidr);
}

/// Adds a pool with a single block, which a node owns.
fn tiny(cluster: &mut Cluster) -> (String, IpNet) {
    let node = cluster.host().name;
    let (name, cidr) = cluster.extra_pool();
    let cidr = cidr.subnets(28).expect("a /24").next().expect("it has 16 parts");
    cluster.put_pool(&name, Pool::new(cidr, 28));
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
    let reserved = cidr.subnets(29).expect("a /28").nth(1).expect("it has two halves");
    let metadata = cluster.spec.metadata("half", &mut cluster.spec.rng(7));
    let name = format!("half-{}", cidr.addr());
    cluster.put_raw(
        key::resource("ipreservations", &name),
        wire::reservation(wire::Metadata { name: name.clone(), ..metadata }, &[reserved.to_string()]),
    );
    let gone = &pods[0];
    cluster.remove(&gone.endpoint);
    let released = cluster.spec.seconds_ago(20);
    cluster.block_mut(cidr).cool(&[gone.address()], &released);
    cluster.count(&gone.handle, cidr, -1);
    cluster.expect_as_in(&Form::ALL, "pool-nearly-full", cidr, "error");
}

/// Fills the maximum number of blocks on a node.
pub(super) fn stranded_by_limit(cluster: &mut Cluster) {
    let (info, _) = cluster.victim_node(0);
    let (name, cidr) = cluster.extra_pool();
    let selector = format!("kubernetes.io/hostname == '{}'", info.name);
    cluster.put_pool(&name, Pool { node_selector: selector, ..Pool::new(cidr, 30) });
    let blocks: Vec<IpNet> = cidr.subnets(30).expect("a /24").take(19).collect();
    for block in &blocks {
        cluster.claim(*block, &info.name);
    }
    for block in info.blocks[..1].iter().chain(&blocks) {
        while !cluster.block_mut(*block).unallocated.is_empty() {
            cluster.add_pod(&info.name, &[*block]);
        }
    }
    cluster.expect("node-without-addresses", info.name);
}

/// Fills a node's only block under strict affinity, so that the node needs another block. The only block left is empty
/// and belongs to another node. Only Calico 3.32 and later takes it from that node.
pub(super) fn stranded_before_332(cluster: &mut Cluster) {
    let names = [(); 2].map(|()| cluster.victim_node(0).0.name);

    let hostname = "kubernetes.io/hostname";
    let default = Pool {
        node_selector: format!("{hostname} != '{}'", names[0]),
        ..Pool::new(cluster.spec.pool_v4(), 26)
    };
    cluster.put_pool("default-ipv4-ippool", default);
    // This pool would serve the node in some namespaces.
    cluster.remove_prefix(&key::pool("team-ippool"));
    let (name, cidr) = cluster.extra_pool();
    let cidr = cidr.subnets(27).expect("a /24").next().expect("it has eight parts");
    let selector = format!("{hostname} in {{'{}', '{}'}}", names[0], names[1]);
    cluster.put_pool(&name, Pool { node_selector: selector, ..Pool::new(cidr, 28) });

    for (name, block) in names.iter().zip(cidr.subnets(28).expect("a /27")) {
        cluster.claim(block, name);
    }
    let full = cidr.subnets(28).expect("a /27").next().expect("it has two halves");
    while !cluster.block_mut(full).unallocated.is_empty() {
        cluster.add_pod(&names[0], &[full]);
    }

    cluster.put_version("v3.31.7");
    super::settings::strict(cluster);
    cluster.expect("node-without-addresses", &names[0]);
}
