//! Handles that disagree with the blocks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::cluster::build::Holder;
use crate::cluster::truth::Text;
use crate::cluster::wire::{Attribute, key};
use crate::cluster::{Cluster, Form, Pod};

/// Adds a handle that counts an address of a block, which may exist or not.
pub(super) fn orphan(cluster: &mut Cluster, block: impl FnOnce(&mut Cluster) -> IpNet) {
    let block = block(cluster);
    let id = cluster.holder("nowhere").handle();
    cluster.count(&id, block, 1);
    cluster.expect("orphan-handle", id);
}

/// Stores a handle that names no block.
pub(super) fn empty(cluster: &mut Cluster, value: &str, code: Text) {
    let id = cluster.holder("nowhere").handle();
    cluster.put_raw(key::handle(&id), value);
    cluster.expect(code, id);
}

pub(super) fn orphan_empty(cluster: &mut Cluster) {
    for value in [
        r#"{"block":{},"deleted":false}"#,
        r#"{"block":null,"deleted":false}"#,
    ] {
        empty(cluster, value, "orphan-handle");
    }
}

/// Removes a handle.
pub(super) fn missing(cluster: &mut Cluster, id: impl FnOnce(&mut Cluster) -> String) {
    let id = id(cluster);
    cluster.remove(&key::handle(&id));
    cluster.expect("missing-handle", id);
}

/// Adds a pod with two addresses from one block.
pub(super) fn pair(cluster: &mut Cluster) -> Pod {
    let info = cluster.host();
    cluster.add_pod(&info.name, &[info.blocks[0], info.blocks[0]])
}

/// Adds a pod with addresses from two blocks.
pub(super) fn in_two_blocks(cluster: &mut Cluster) -> Pod {
    let pod = cluster.victim_block();
    let blocks = [cluster.blocks_of(&pod.node)[0], pod.block()];
    cluster.add_pod(&pod.node, &blocks)
}

/// Changes the counts of a pod's handle for the blocks of its addresses. Only a count that is too low is more than a
/// note.
pub(super) fn miscount(cluster: &mut Cluster, start: fn(&mut Cluster) -> Pod, changes: &[i64]) {
    let pod = start(cluster);
    for ((_, block), by) in pod.addresses.iter().zip(changes) {
        cluster.count(&pod.handle, *block, *by);
    }
    if changes.iter().any(|by| *by < 0) {
        cluster.expect("handle-count", pod.handle)
    } else {
        cluster.expect_as(&Form::ALL, "handle-count", pod.handle, "info")
    }
}

pub(super) fn count_gone_block(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let block = cluster.spare_block();
    cluster.count(&pod.handle, block, 1);
    cluster.expect_as(&Form::ALL, "handle-count", pod.handle, "info");
}

/// The bytes that an upgrade from host-local leaves after the ID (facts 3.13).
const JUNK: &str = "\r\neth0";

fn add_junk_to_records(cluster: &mut Cluster, pod: &Pod) -> String {
    let id = format!("{}{JUNK}", pod.handle);
    for (address, block) in &pod.addresses {
        cluster.record_mut(*address, *block).handle = Some(id.clone());
    }
    cluster.expect("handle-carriage-return", &pod.handle);
    id
}

pub(super) fn carriage_return(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let id = add_junk_to_records(cluster, &pod);
    let object = cluster.remove(&key::handle(&pod.handle));
    cluster.put(key::handle(&id), object);
}

pub(super) fn carriage_return_record(cluster: &mut Cluster) {
    let pod = cluster.victim();
    add_junk_to_records(cluster, &pod);
}

pub(super) fn carriage_return_key(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let object = cluster
        .get(&key::handle(&pod.handle))
        .expect("the pod has a handle")
        .clone();
    cluster.put(key::handle(&format!("{}{JUNK}", pod.handle)), object);
    cluster.expect("handle-carriage-return", pod.handle);
}

/// Adds an old pod, and one more address under its handle.
fn shared(cluster: &mut Cluster) -> (Pod, IpAddr) {
    let pod = cluster.legacy_victim();
    let second = cluster.take_as(pod.block(), Attribute::bare(&pod.handle));
    cluster.expect("shared-legacy-handle", &pod.handle);
    (pod, second)
}

pub(super) fn shared_legacy(cluster: &mut Cluster) {
    let (pod, second) = shared(cluster);
    cluster.add_address(&pod.endpoint, second);
}

/// Replaces a stateful pod with its successor, which has the same name, and therefore the same old handle.
pub(super) fn shared_legacy_successor(cluster: &mut Cluster) {
    let (pod, second) = shared(cluster);
    let holder = Holder {
        name: pod.name.clone(),
        ..cluster.holder(&pod.node)
    };
    cluster.put_endpoint(&holder, &[second]);
    cluster.expect_leaked(&pod, "pod-has-other-address");
}
