//! Blocks in the wrong place, and blocks without an owner.

use ipnet::IpNet;

use crate::cluster::build::sub_block;
use crate::cluster::wire::{Pool, key};
use crate::cluster::{Cluster, Object};

impl Cluster {
    /// Releases an affinity while addresses of the block are in use. The block stays, but has neither an owner nor an
    /// affinity.
    pub(super) fn release_affinity(&mut self, node: &str, block: IpNet) {
        let stored = self.block_mut(block);
        (stored.affinity, stored.claim_time) = (None, None);
        stored.sequence += 1;
        self.remove(&key::affinity("host", node, block));
    }
}

pub(super) fn overlapping(cluster: &mut Cluster) {
    let (node, large, _) = cluster.victim_block();
    let small = large.subnets(28).expect("a /26").nth(3).expect("it has four parts");
    cluster.claim(small, &node);
    cluster.expect("overlapping-blocks", large);
    cluster.expect("overlapping-blocks", small);
    cluster.expect("block-size-mismatch", small);
}

pub(super) fn outside_pools(cluster: &mut Cluster) {
    let node = cluster.host().name;
    let block = cluster.foreign_block();
    cluster.claim(block, &node);
    cluster.expect("block-outside-pools", block);
}

pub(super) fn size_mismatch(cluster: &mut Cluster) {
    let (name, cidr) = cluster.extra_pool();
    cluster.put_pool(&name, Pool::new(cidr, 26));
    let block = sub_block(cidr, 0);
    cluster.victim_in(block);
    cluster.expect("block-size-mismatch", block);
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let (node, block) = (cluster.missing_node(), cluster.spare_block());
    cluster.claim(block, &node);
    cluster.expect("block-of-missing-node", block);
    cluster.expect("affinity-of-missing-node", format!("{node}/{block}"));
}

pub(super) fn node_missing_alone(cluster: &mut Cluster) {
    let (node, block) = (cluster.missing_node(), cluster.spare_block());
    cluster.put_block(block, Some(format!("host:{node}")));
    cluster.expect("block-of-missing-node", block);
    cluster.expect("block-without-affinity", block);
}

pub(super) fn empty_unowned(cluster: &mut Cluster) {
    let block = cluster.spare_block();
    cluster.put_block(block, None);
    cluster.expect("empty-unowned-block", block);
}

pub(super) fn empty_unowned_windows(cluster: &mut Cluster) {
    let block = cluster.spare_block();
    cluster.put_block(block, None);
    cluster.block_mut(block).reserve_for_windows();
    cluster.expect("empty-unowned-block", block);
}

pub(super) fn without_affinity(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.remove(&key::affinity("host", &node, block));
    cluster.expect("block-without-affinity", block);
}

pub(super) fn virtual_without_affinity(cluster: &mut Cluster) {
    let block = cluster.spare_block();
    cluster.put_block(block, Some("virtual:load-balancer".to_owned()));
    cluster.expect("block-without-affinity", block);
}

/// Adds a block with only the old owner field, which Calico 3 does not read.
pub(super) fn host_affinity_only(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    let stored = cluster.block_mut(block);
    (stored.affinity, stored.claim_time) = (None, None);
    cluster.put_host_affinity(block, &node);
    cluster.expect("affinity-block-mismatch", format!("{node}/{block}"));

    let empty = cluster.spare_block();
    cluster.put_block(empty, None);
    cluster.put_host_affinity(empty, &node);
    cluster.expect("empty-unowned-block", empty);
}

pub(super) fn unexpected_owner(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.block_mut(block).affinity = Some(format!("rack:{node}"));
    cluster.remove(&key::affinity("host", &node, block));
    cluster.expect("unexpected-block-owner", block);
}

pub(super) fn over_limit(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    for _ in 0..20 {
        let block = cluster.spare_block();
        cluster.claim(block, &name);
    }
    cluster.expect("node-over-block-limit", name);
}

/// Marks a block as deleted. Objects are deleted in two steps only in Kubernetes, but the field also exists in etcd.
pub(super) fn half_deleted(cluster: &mut Cluster) {
    let block = cluster.spare_block();
    cluster.put_block(block, None);
    let Object::Block(stored) = cluster.remove(&key::block(block)) else { panic!("{block} is no block") };
    let value = String::from_utf8(stored.value()).expect("JSON is text");
    cluster.put_raw(key::block(block), value.replace(r#""deleted":false"#, r#""deleted":true"#));
    cluster.expect("half-deleted", block);
}
