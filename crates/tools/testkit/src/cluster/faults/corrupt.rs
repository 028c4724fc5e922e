//! Blocks with a broken structure. A check reports only the blocks' keys, and no findings about their contents.

use crate::cluster::wire::{Attribute, Block, key};
use crate::cluster::{Cluster, Object};

/// Breaks a block that has a pod.
fn break_block(cluster: &mut Cluster, problems: &[&'static str], harm: impl FnOnce(&mut Block)) {
    let (_, net, _) = cluster.victim_block();
    let Object::Block(mut block) = cluster.remove(&key::block(net)) else { panic!("{net} is no block") };
    harm(&mut block);
    cluster.put_raw(key::block(net), block.value());
    cluster.expect("corrupt-block", net);
    for problem in problems {
        cluster.expect_detail("corrupt-block", net, problem);
    }
}

pub(super) fn short(cluster: &mut Cluster) {
    break_block(cluster, &["array-length"], |b| b.allocations.truncate(60));
}

pub(super) fn long(cluster: &mut Cluster) {
    break_block(cluster, &["array-length"], |b| b.allocations.extend([None, Some(0)]));
}

pub(super) fn null(cluster: &mut Cluster) {
    let (_, net, _) = cluster.victim_block();
    let value = String::from_utf8(cluster.block_mut(net).value()).expect("JSON is text");
    let from = value.find(r#""allocations":["#).expect("it has the field") + 14;
    let to = from + value[from..].find(']').expect("it ends") + 1;
    let value = format!("{}null{}", &value[..from], &value[to..]);
    cluster.put_raw(key::block(net), value);
    cluster.expect_detail("corrupt-block", net, "array-length");
}

pub(super) fn index_negative(cluster: &mut Cluster) {
    break_block(cluster, &["attribute-index"], |b| {
        b.allocations[5] = Some(-1);
        b.unallocated.retain(|o| *o != 5);
    });
}

pub(super) fn index_huge(cluster: &mut Cluster) {
    break_block(cluster, &["attribute-index"], |b| {
        b.allocations[63] = Some(1_000_000_000);
        b.unallocated.retain(|o| *o != 63);
    });
}

pub(super) fn unreferenced(cluster: &mut Cluster) {
    break_block(cluster, &["unreferenced-attribute"], |b| b.attributes.push(Attribute::bare("left-behind")));
}

pub(super) fn free_twice(cluster: &mut Cluster) {
    break_block(cluster, &["free-list-duplicate"], |b| b.unallocated.push(40));
}

pub(super) fn free_out_of_range(cluster: &mut Cluster) {
    break_block(cluster, &["free-list-out-of-range"], |b| b.unallocated.push(64));
}

pub(super) fn free_allocated(cluster: &mut Cluster) {
    break_block(cluster, &["free-list-allocated"], |b| b.unallocated.push(0));
}

pub(super) fn free_incomplete(cluster: &mut Cluster) {
    break_block(cluster, &["free-list-incomplete"], |b| b.unallocated.retain(|o| *o != 7));
}

pub(super) fn future(cluster: &mut Cluster) {
    // Ten years ahead is in the future for any test.
    let later = cluster.spec.seconds_ago(-10 * 366 * 86_400);
    break_block(cluster, &["released-in-future"], |b| {
        let gone = b.take(1, Attribute::bare("short-lived"));
        b.cool(&gone, &later);
    });
}

pub(super) fn key(cluster: &mut Cluster) {
    let other = cluster.spare_block();
    break_block(cluster, &["key-mismatch"], |b| b.cidr = other);
}

pub(super) fn several_ways(cluster: &mut Cluster) {
    let problems =
        ["attribute-index", "unreferenced-attribute", "free-list-duplicate", "free-list-incomplete"];
    break_block(cluster, &problems, |b| {
        b.allocations[0] = Some(7);
        b.unallocated[3] = b.unallocated[4];
    });
}
