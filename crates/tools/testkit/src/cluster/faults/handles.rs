//! Handles that disagree with the blocks.

use crate::cluster::build::Holder;
use crate::cluster::wire::{Attribute, Handle, Tunnel, go_json, key};
use crate::cluster::{Cluster, Form, Object, Pod};

pub(super) fn orphan(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let id = cluster.holder(&pod.node).handle();
    cluster.count(&id, pod.block(), 1);
    cluster.expect("orphan-handle", id);
}

pub(super) fn orphan_no_block(cluster: &mut Cluster) {
    let (id, block) = (cluster.holder("nowhere").handle(), cluster.spare_block());
    cluster.count(&id, block, 1);
    cluster.expect("orphan-handle", id);
}

pub(super) fn orphan_empty(cluster: &mut Cluster) {
    for value in [r#"{"block":{},"deleted":false}"#, r#"{"block":null,"deleted":false}"#] {
        let id = cluster.holder("nowhere").handle();
        cluster.put_raw(key::handle(&id), value);
        cluster.expect("orphan-handle", id);
    }
}

pub(super) fn missing(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.remove(&key::handle(&pod.handle));
    cluster.expect("missing-handle", pod.handle);
}

pub(super) fn missing_tunnel(cluster: &mut Cluster) {
    let id = Tunnel::Ipip.handle(&cluster.victim_node(0).0.name);
    cluster.remove(&key::handle(&id));
    cluster.expect("missing-handle", id);
}

/// Adds a pod with two addresses from one block.
fn pair(cluster: &mut Cluster) -> Pod {
    let info = cluster.host();
    cluster.add_pod(&info.name, &[info.blocks[0], info.blocks[0]])
}

pub(super) fn count_low(cluster: &mut Cluster) {
    let pod = pair(cluster);
    cluster.handle_mut(&pod.handle).add(pod.block(), -1);
    cluster.expect("handle-count", pod.handle);
}

pub(super) fn count_no_entry(cluster: &mut Cluster) {
    let pod = in_two_blocks(cluster);
    cluster.handle_mut(&pod.handle).add(pod.addresses[1].1, -1);
    cluster.expect("handle-count", pod.handle);
}

/// Adds a pod with addresses from two blocks.
fn in_two_blocks(cluster: &mut Cluster) -> Pod {
    let (node, block, _) = cluster.victim_block();
    let info = cluster.nodes.iter().find(|n| n.name == node).expect("the node is known");
    let blocks = [info.blocks[0], block];
    cluster.add_pod(&node, &blocks)
}

pub(super) fn count_high(cluster: &mut Cluster) {
    let pod = cluster.victim();
    cluster.handle_mut(&pod.handle).add(pod.block(), 2);
    cluster.expect_as_in(&Form::ALL, "handle-count", pod.handle, "info");
}

pub(super) fn count_gone_block(cluster: &mut Cluster) {
    let (pod, block) = (cluster.victim(), cluster.spare_block());
    cluster.handle_mut(&pod.handle).add(block, 1);
    cluster.expect_as_in(&Form::ALL, "handle-count", pod.handle, "info");
}

pub(super) fn count_both(cluster: &mut Cluster) {
    let pod = in_two_blocks(cluster);
    let handle = cluster.handle_mut(&pod.handle);
    handle.add(pod.block(), 1);
    handle.add(pod.addresses[1].1, -1);
    cluster.expect("handle-count", pod.handle);
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
    let object = cluster.get(&key::handle(&pod.handle)).expect("the pod has a handle").clone();
    cluster.put(key::handle(&format!("{}{JUNK}", pod.handle)), object);
    cluster.expect("handle-carriage-return", pod.handle);
}

pub(super) fn shared_legacy(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_legacy_pod(&info.name, &info.blocks[..1]);
    let second = more(cluster, &pod);
    cluster.endpoint_mut(&pod.endpoint).add_address(second);
    cluster.expect("shared-legacy-handle", pod.handle);
}

/// Assigns one more address under the handle of an old pod.
fn more(cluster: &mut Cluster, pod: &Pod) -> std::net::IpAddr {
    cluster.take_as(pod.block(), Attribute::bare(&pod.handle))
}

/// Replaces a stateful pod with its successor, which has the same name, and therefore the same old handle.
pub(super) fn shared_legacy_successor(cluster: &mut Cluster) {
    let info = cluster.host();
    let pod = cluster.add_legacy_pod(&info.name, &info.blocks[..1]);
    let second = more(cluster, &pod);
    let holder = Holder { name: pod.name.clone(), ..cluster.holder(&info.name) };
    cluster.put_endpoint(&holder, [second]);
    cluster.expect("shared-legacy-handle", &pod.handle);
    cluster.expect_leaked(&pod, "pod-has-other-address");
}

/// Marks a handle as deleted. Objects are deleted in two steps only in Kubernetes, but the field also exists in etcd.
pub(super) fn half_deleted(cluster: &mut Cluster) {
    let id = cluster.holder("nowhere").handle();
    let value = go_json(&Handle { deleted: true, ..Handle::default() });
    cluster.put(key::handle(&id), Object::Raw(value));
    cluster.expect("half-deleted", id);
}
