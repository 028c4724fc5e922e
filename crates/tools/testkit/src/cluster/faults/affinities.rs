//! Affinities that disagree with their block, with other affinities or with the nodes.

use ipnet::IpNet;

use super::{CONFIRMED, MISMATCH};
use crate::cluster::truth::Text;
use crate::cluster::wire::key;
use crate::cluster::{Cluster, Pod};

/// Stores the value of an affinity, and expects findings about it.
fn put(cluster: &mut Cluster, (kind, holder): (&str, &str), block: IpNet, value: &str, codes: &[Text]) {
    cluster.put_raw(key::affinity(kind, holder, block), value);
    for code in codes {
        cluster.expect(code, format!("{holder}/{block}"));
    }
}

/// Adds the affinity of another node for the block of a node.
pub(super) fn of_other(cluster: &mut Cluster, value: &str, codes: &[Text]) -> Pod {
    let pod = cluster.victim_block();
    let other = cluster.victim_node(0).0.name;
    put(cluster, ("host", &other), pod.block(), value, codes);
    pod
}

pub(super) fn confirmed_of_other(cluster: &mut Cluster) {
    let pod = of_other(cluster, CONFIRMED, &[MISMATCH]);
    cluster.expect("affinity-conflict", pod.block());
}

pub(super) fn of_other_only(cluster: &mut Cluster) {
    let pod = of_other(cluster, CONFIRMED, &[MISMATCH]);
    cluster.remove(&pod.affinity());
    cluster.expect("block-without-affinity", pod.block());
}

/// Adds the affinity of a node for its block, which has no owner.
pub(super) fn of_unowned(cluster: &mut Cluster, value: &str, codes: &[Text]) {
    let pod = cluster.victim_block();
    cluster.release_affinity(&pod);
    put(cluster, ("host", &pod.node), pod.block(), value, codes);
}

/// Adds a virtual affinity to a node's block. This is not an affinity conflict, since only nodes can be in conflict.
pub(super) fn virtual_of_node(cluster: &mut Cluster) {
    let block = cluster.victim_block().block();
    put(
        cluster,
        ("virtual", "load-balancer"),
        block,
        CONFIRMED,
        &[MISMATCH],
    );
}

pub(super) fn without_block(cluster: &mut Cluster, value: &str, code: Text) {
    let node = cluster.host().name;
    let block = cluster.spare_block();
    put(cluster, ("host", &node), block, value, &[code]);
}

pub(super) fn old_without_block(cluster: &mut Cluster) {
    let node = cluster.host().name;
    for value in ["", "{}"] {
        let block = cluster.spare_block();
        put(
            cluster,
            ("host", &node),
            block,
            value,
            &["affinity-without-block"],
        );
    }
}

/// Adds an affinity of a node for its own block, or replaces the one there is.
pub(super) fn of_owner(cluster: &mut Cluster, kind: &str, value: &str, code: Text) {
    let pod = cluster.victim_block();
    put(cluster, (kind, &pod.node), pod.block(), value, &[code]);
}

pub(super) fn node_missing(cluster: &mut Cluster) {
    let node = cluster.missing_node();
    let block = cluster.spare_block();
    let codes = ["affinity-of-missing-node", "affinity-without-block"];
    put(cluster, ("host", &node), block, CONFIRMED, &codes);
}
