//! Affinities that disagree with their block, with other affinities or with the nodes.

use ipnet::IpNet;

use super::MISMATCH;
use super::expected::Text;
use crate::cluster::wire::key;
use crate::cluster::{Cluster, Pod};

/// Stores an affinity, and expects findings about it.
fn put(cluster: &mut Cluster, (kind, holder): (&str, &str), block: IpNet, state: &str, codes: &[Text]) {
    cluster.put_affinity(kind, holder, block, state);
    for code in codes {
        cluster.expect(code, format!("{holder}/{block}"));
    }
}

/// Adds the affinity of another node for the block of a node.
pub(super) fn of_other(cluster: &mut Cluster, state: &str, codes: &[Text]) -> Pod {
    let pod = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    put(cluster, ("host", &other), pod.block(), state, codes);
    pod
}

pub(super) fn confirmed_of_other(cluster: &mut Cluster) {
    let pod = of_other(cluster, "confirmed", &[MISMATCH]);
    cluster.expect("affinity-conflict", pod.block());
}

pub(super) fn of_other_only(cluster: &mut Cluster) {
    let pod = of_other(cluster, "confirmed", &[MISMATCH]);
    cluster.remove(&pod.affinity());
    cluster.expect("block-without-affinity", pod.block());
}

/// Adds the affinity of a node for its block, which has no owner.
pub(super) fn of_unowned(cluster: &mut Cluster, state: &str, codes: &[Text]) {
    let pod = cluster.victim_block();
    cluster.release_affinity(&pod);
    put(cluster, ("host", &pod.node), pod.block(), state, codes);
}

/// Adds a virtual affinity to a node's block. This is not an affinity conflict, since only nodes can be in conflict.
pub(super) fn virtual_of_node(cluster: &mut Cluster) {
    let block = cluster.victim_block().block();
    put(cluster, ("virtual", "load-balancer"), block, "confirmed", &[MISMATCH]);
}

pub(super) fn without_block(cluster: &mut Cluster, state: &str, code: Text) {
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

/// Adds an affinity of a node for its own block, or replaces the one there is.
pub(super) fn of_owner(cluster: &mut Cluster, kind: &str, state: &str, code: Text) {
    let pod = cluster.victim_block();
    put(cluster, (kind, &pod.node), pod.block(), state, &[code]);
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let (node, block) = (cluster.missing_node(), cluster.spare_block());
    let codes = ["affinity-of-missing-node", "affinity-without-block"];
    put(cluster, ("host", &node), block, "confirmed", &codes);
}

/// Marks an affinity as deleted. Objects are deleted in two steps only in Kubernetes, but the field also exists in
/// etcd.
pub(super) fn half_deleted(cluster: &mut Cluster) {
    let (node, block) = (cluster.host().name, cluster.spare_block());
    let value = r#"{"state":"pendingDeletion","deleted":true}"#;
    cluster.put_raw(key::affinity("host", &node, block), value);
    cluster.expect("half-deleted", format!("{node}/{block}"));
}
