//! Affinities that disagree with their block, with other affinities or with the nodes.

use ipnet::IpNet;

use super::MISMATCH;
use crate::cluster::Cluster;
use crate::cluster::wire::key;

/// Stores an affinity, and expects findings about it.
fn put(
    cluster: &mut Cluster,
    (kind, holder): (&str, &str),
    block: IpNet,
    state: &str,
    codes: &[&'static str],
) {
    cluster.put_affinity(kind, holder, block, state);
    for code in codes {
        cluster.expect(code, format!("{holder}/{block}"));
    }
}

/// Adds the affinity of another node for the block of a node.
pub(super) fn of_other(cluster: &mut Cluster, state: &str, codes: &[&'static str]) -> (String, IpNet) {
    let (node, block, _) = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    put(cluster, ("host", &other), block, state, codes);
    (node, block)
}

pub(super) fn confirmed_of_other(cluster: &mut Cluster) {
    let (_, block) = of_other(cluster, "confirmed", &[MISMATCH]);
    cluster.expect("affinity-conflict", block);
}

pub(super) fn of_other_only(cluster: &mut Cluster) {
    let (node, block) = of_other(cluster, "confirmed", &[MISMATCH]);
    cluster.remove(&key::affinity("host", &node, block));
    cluster.expect("block-without-affinity", block);
}

/// Adds the affinity of a node for its block, which has no owner.
pub(super) fn of_unowned(cluster: &mut Cluster, state: &str, codes: &[&'static str]) {
    let (node, block, _) = cluster.victim_block();
    cluster.release_affinity(&node, block);
    put(cluster, ("host", &node), block, state, codes);
}

/// Adds a virtual affinity to a node's block. This is not an affinity conflict, since only nodes can be in conflict.
pub(super) fn virtual_of_node(cluster: &mut Cluster) {
    let (_, block, _) = cluster.victim_block();
    put(cluster, ("virtual", "load-balancer"), block, "confirmed", &[MISMATCH]);
}

pub(super) fn without_block(cluster: &mut Cluster, state: &str, code: &'static str) {
    let (node, block) = (cluster.host().name, cluster.spare_block());
    put(cluster, ("host", &node), block, state, &[code]);
}

pub(super) fn old_without_block(cluster: &mut Cluster) {
    let node = cluster.host().name;
    for value in ["", "{}"] {
        let block = cluster.spare_block();
        cluster.put_raw(key::affinity("host", &node, block), value);
        cluster.expect("affinity-without-block", format!("{node}/{block}"));
    }
}

/// Changes the affinity of a node for its own block.
pub(super) fn unsettled(cluster: &mut Cluster, state: &str) {
    let (node, block, _) = cluster.victim_block();
    put(cluster, ("host", &node), block, state, &["unsettled-affinity"]);
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let (node, block) = (cluster.missing_node(), cluster.spare_block());
    let codes = ["affinity-of-missing-node", "affinity-without-block"];
    put(cluster, ("host", &node), block, "confirmed", &codes);
}

pub(super) fn unexpected(cluster: &mut Cluster) {
    let (node, block, _) = cluster.victim_block();
    put(cluster, ("@", &node), block, "confirmed", &["unexpected-affinity-type"]);
}

/// Marks an affinity as deleted. Objects are deleted in two steps only in Kubernetes, but the field also exists in
/// etcd.
pub(super) fn half_deleted(cluster: &mut Cluster) {
    let (node, block) = (cluster.host().name, cluster.spare_block());
    let value = r#"{"state":"pendingDeletion","deleted":true}"#;
    cluster.put_raw(key::affinity("host", &node, block), value);
    cluster.expect("half-deleted", format!("{node}/{block}"));
}
