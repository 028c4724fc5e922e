//! Affinities that disagree with their block, with other affinities or with the nodes.

use ipnet::IpNet;

use crate::cluster::Cluster;
use crate::cluster::wire::key;

fn subject(node: &str, block: IpNet) -> String {
    format!("{node}/{block}")
}

pub(super) fn block_of_other(cluster: &mut Cluster) {
    let (_, block, _) = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    cluster.put_affinity("host", &other, block, "confirmed");
    cluster.expect("affinity-block-mismatch", subject(&other, block));
    cluster.expect("affinity-conflict", block);
}

pub(super) fn block_without_owner(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.release_affinity(&node, block);
    cluster.put_affinity("host", &node, block, "confirmed");
    cluster.expect("affinity-block-mismatch", subject(&node, block));
}

pub(super) fn block_of_other_only(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    cluster.remove(&key::affinity("host", &node, block));
    cluster.put_affinity("host", &other, block, "confirmed");
    cluster.expect("affinity-block-mismatch", subject(&other, block));
    cluster.expect("block-without-affinity", block);
}

pub(super) fn pending_of_other(cluster: &mut Cluster) {
    let (_, block, _) = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    cluster.put_affinity("host", &other, block, "pending");
    cluster.expect("unsettled-affinity", subject(&other, block));
    cluster.expect("affinity-block-mismatch", subject(&other, block));
}

/// Adds a virtual affinity to a node's block. This is not an affinity conflict, since only nodes can be in conflict.
pub(super) fn virtual_of_node(cluster: &mut Cluster) {
    let (_, block, _) = cluster.victim_block();
    cluster.put_affinity("virtual", "load-balancer", block, "confirmed");
    cluster.expect("affinity-block-mismatch", subject("load-balancer", block));
}

fn without(cluster: &mut Cluster, state: &str) -> String {
    let node = cluster.host().name;
    let block = cluster.spare_block();
    cluster.put_affinity("host", &node, block, state);
    subject(&node, block)
}

pub(super) fn without_block(cluster: &mut Cluster) {
    let subject = without(cluster, "confirmed");
    cluster.expect("affinity-without-block", subject);
}

pub(super) fn old_without_block(cluster: &mut Cluster) {
    let node = cluster.host().name;
    for value in ["", "{}"] {
        let block = cluster.spare_block();
        cluster.put_raw(key::affinity("host", &node, block), value);
        cluster.expect("affinity-without-block", subject(&node, block));
    }
}

pub(super) fn pending_without_block(cluster: &mut Cluster) {
    let subject = without(cluster, "pending");
    cluster.expect("unsettled-affinity", subject);
}

pub(super) fn released_without_block(cluster: &mut Cluster) {
    let subject = without(cluster, "pendingDeletion");
    cluster.expect("unsettled-affinity", subject);
}

pub(super) fn pending(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.put_affinity("host", &node, block, "pending");
    cluster.expect("unsettled-affinity", subject(&node, block));
}

pub(super) fn releasing(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.put_affinity("host", &node, block, "pendingDeletion");
    cluster.expect("unsettled-affinity", subject(&node, block));
}

pub(super) fn released(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.release_affinity(&node, block);
    cluster.put_affinity("host", &node, block, "pendingDeletion");
    cluster.expect("unsettled-affinity", subject(&node, block));
    cluster.expect("affinity-block-mismatch", subject(&node, block));
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let (node, block) = (cluster.missing_node(), cluster.spare_block());
    cluster.put_affinity("host", &node, block, "confirmed");
    cluster.expect("affinity-of-missing-node", subject(&node, block));
    cluster.expect("affinity-without-block", subject(&node, block));
}

pub(super) fn unexpected(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    cluster.put_affinity("@", &node, block, "confirmed");
    cluster.expect("unexpected-affinity-type", subject(&node, block));
}

/// Marks an affinity as deleted. Objects are deleted in two steps only in Kubernetes, but the field also exists in
/// etcd.
pub(super) fn half_deleted(cluster: &mut Cluster) {
    let node = cluster.host().name;
    let block = cluster.spare_block();
    let value = r#"{"state":"pendingDeletion","deleted":true}"#;
    cluster.put_raw(key::affinity("host", &node, block), value);
    cluster.expect("half-deleted", subject(&node, block));
}
