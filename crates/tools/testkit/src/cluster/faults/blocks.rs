//! Blocks in the wrong place, and blocks without an owner.

use ipnet::IpNet;
use serde_json::json;

use super::MISMATCH;
use crate::cluster::layout::part;
use crate::cluster::truth::Text;
use crate::cluster::wire::Block;
use crate::cluster::{Cluster, Pod};

impl Cluster {
    /// Releases the affinity of a pod's block while the address is in use. The block stays, but has neither an owner nor
    /// an affinity.
    pub(super) fn release_affinity(&mut self, pod: &Pod) {
        let stored = self.block_mut(pod.block());
        (stored.affinity, stored.claim_time) = (None, None);
        stored.sequence += 1;
        self.remove(&pod.affinity());
    }
}

pub(super) fn overlapping(cluster: &mut Cluster) {
    let pod = cluster.victim_block();
    let small = part(pod.block(), 28, 3);
    cluster.claim(small, &pod.node);
    expect_overlap(cluster, pod.block(), small);
}

/// Expects findings about a block inside a larger one, which has the size that the pool states.
pub(super) fn expect_overlap(cluster: &mut Cluster, large: IpNet, small: IpNet) {
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
    let block = part(cluster.add_extra_pool(26, &json!({})), 28, 0);
    cluster.victim_in(block);
    cluster.expect("block-size-mismatch", block);
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let node = cluster.missing_node();
    let block = cluster.spare_block();
    cluster.claim(block, &node);
    cluster.expect("block-of-missing-node", block);
    cluster.expect("affinity-of-missing-node", format!("{node}/{block}"));
}

pub(super) fn node_missing_alone(cluster: &mut Cluster) {
    let node = cluster.missing_node();
    let block = cluster.spare_block();
    cluster.put_block(block, Some(format!("host:{node}")));
    cluster.expect("block-of-missing-node", block);
    cluster.expect("block-without-affinity", block);
}

/// Adds a block without an owner, changes it, and expects a finding about it.
pub(super) fn empty_unowned(cluster: &mut Cluster, code: Text, change: impl FnOnce(&mut Block)) {
    let block = cluster.spare_block();
    cluster.put_block(block, None);
    change(cluster.block_mut(block));
    cluster.expect(code, block);
}

pub(super) fn without_affinity(cluster: &mut Cluster) {
    let pod = cluster.victim_block();
    cluster.remove(&pod.affinity());
    cluster.expect("block-without-affinity", pod.block());
}

pub(super) fn virtual_without_affinity(cluster: &mut Cluster) {
    let block = cluster.spare_block();
    cluster.put_block(block, Some("virtual:load-balancer".to_owned()));
    cluster.expect("block-without-affinity", block);
}

/// Adds a block with only the old owner field, which Calico 3 does not read.
pub(super) fn host_affinity_only(cluster: &mut Cluster) {
    let pod = cluster.victim_block();
    let node = &pod.node;
    let block = pod.block();
    let stored = cluster.block_mut(block);
    (stored.affinity, stored.claim_time) = (None, None);
    cluster.put_host_affinity(block, node);
    cluster.expect(MISMATCH, format!("{node}/{block}"));

    let empty = cluster.spare_block();
    cluster.put_block(empty, None);
    cluster.put_host_affinity(empty, node);
    cluster.expect("empty-unowned-block", empty);
}

pub(super) fn unexpected_owner(cluster: &mut Cluster) {
    let pod = cluster.victim_block();
    cluster.block_mut(pod.block()).affinity = Some(format!("rack:{}", pod.node));
    cluster.remove(&pod.affinity());
    cluster.expect("unexpected-block-owner", pod.block());
}

pub(super) fn over_limit(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    for _ in 0..20 {
        let block = cluster.spare_block();
        cluster.claim(block, &name);
    }
    cluster.expect("node-over-block-limit", name);
}
