//! Blocks with a broken structure. A check reports only the blocks' keys, and no findings about their contents.

use crate::cluster::Cluster;
use crate::cluster::truth::Text;
use crate::cluster::wire::{Attribute, Block, key};

/// Breaks a block that has a pod.
pub(super) fn block(cluster: &mut Cluster, problems: &[Text], harm: impl FnOnce(&mut Block)) {
    let net = cluster.victim_block().block();
    let broken = cluster.block_mut(net);
    harm(broken);
    // Stored as bytes, the block is no longer among the intact ones.
    let value = broken.value();
    cluster.put_raw(key::block(net), value);
    cluster.expect("corrupt-block", net);
    for problem in problems {
        cluster.expect_detail("corrupt-block", net, problem);
    }
}

pub(super) fn null(cluster: &mut Cluster) {
    let net = cluster.victim_block().block();
    cluster.json_mut(&key::block(net))["allocations"].take();
    cluster.expect_detail("corrupt-block", net, "array-length");
}

/// Gives an ordinal an index that no record has.
pub(super) fn index(cluster: &mut Cluster, ordinal: usize, index: i64) {
    block(cluster, &["attribute-index"], |b| {
        b.allocations[ordinal] = Some(index);
        b.unallocated.retain(|o| *o != ordinal as i64);
    });
}

pub(super) fn unreferenced(cluster: &mut Cluster) {
    block(cluster, &["unreferenced-attribute"], |b| {
        b.attributes.push(Attribute::bare("left-behind"))
    });
}

pub(super) fn future(cluster: &mut Cluster) {
    // Ten years ahead is in the future for any test.
    let later = cluster.spec.seconds_ago(-10 * 366 * 86_400);
    block(cluster, &["released-in-future"], |b| {
        let gone = b.take(1, Attribute::bare("short-lived"));
        b.cool(&gone, &later);
    });
}

pub(super) fn key(cluster: &mut Cluster) {
    let other = cluster.spare_block();
    block(cluster, &["key-mismatch"], |b| b.cidr = other);
}

pub(super) fn several_ways(cluster: &mut Cluster) {
    let problems = [
        "attribute-index",
        "unreferenced-attribute",
        "free-list-duplicate",
        "free-list-incomplete",
    ];
    block(cluster, &problems, |b| {
        b.allocations[0] = Some(7);
        b.unallocated[3] = b.unallocated[4];
    });
}
