//! IPAM keys and values that do not decode. A check skips everything that depends on them.

use ipnet::IpNet;

use crate::cluster::Cluster;
use crate::cluster::wire::key;

/// Stores a value under a key. A check must report the key as undecodable.
pub(super) fn make_undecodable(cluster: &mut Cluster, key: String, value: impl Into<Vec<u8>>) {
    cluster.put_raw(key.as_str(), value);
    cluster.expect("undecodable-object", key);
}

/// Stores a value under the key of a resource, given by its plural and its name.
pub(super) fn resource(cluster: &mut Cluster, place: &str, value: &str) {
    let (plural, name) = place.split_once('/').expect("a plural and a name");
    make_undecodable(cluster, key::resource(plural, name), value);
}

/// Changes the JSON of a block that has a pod.
fn garble_block(cluster: &mut Cluster, harm: impl FnOnce(String) -> String) {
    let (_, net, _) = cluster.victim_block();
    let value = String::from_utf8(cluster.block_mut(net).value()).expect("JSON is text");
    make_undecodable(cluster, key::block(net), harm(value));
}

pub(super) fn block(cluster: &mut Cluster) {
    garble_block(cluster, |value| value[..value.len() / 2].to_owned());
}

/// Replaces a part of a block, which must be there.
pub(super) fn block_field(cluster: &mut Cluster, from: &str, to: &str) {
    garble_block(cluster, |value| {
        assert!(value.contains(from), "{value}");
        value.replace(from, to)
    });
}

/// Stores a block under a key with a part replaced.
pub(super) fn block_key(cluster: &mut Cluster, from: &str, to: &str) {
    let net = cluster.spare_block();
    make_undecodable(cluster, key::block(net).replace(from, to), format!(r#"{{"cidr":"{net}"}}"#));
}

/// Returns a block's key with another address of the block instead of the first one.
fn unmask(key: &str, block: IpNet) -> String {
    let first = block.addr().to_string();
    let (head, last) = first.rsplit_once('.').expect("an IPv4 address");
    let other = format!("{head}.{}", last.parse::<u8>().expect("a number") + 5);
    key.replace(&format!("{first}-"), &format!("{other}-"))
}

/// Stores a block under a wrong key. A check skips both its records and its affinity.
pub(super) fn unmasked_block(cluster: &mut Cluster) {
    let (_, net, _) = cluster.victim_block();
    let stored = cluster.remove(&key::block(net));
    make_undecodable(cluster, unmask(&key::block(net), net), stored.value());
}

/// Stores a block under a key with capital letters. Only IPv6 addresses have letters.
pub(super) fn uppercase_block(cluster: &mut Cluster) {
    if !cluster.spec.dual_stack {
        return;
    }
    let info = cluster.host();
    cluster.next_spare += 1;
    let net = cluster.spec.block_v6(info.number, cluster.next_spare);
    cluster.claim(net, &info.name);
    cluster.add_pod(&info.name, &[net]);
    let (canonical, address) = (key::block(net), net.addr().to_string());
    let stored = cluster.remove(&canonical);
    make_undecodable(cluster, canonical.replace(&address, &address.to_uppercase()), stored.value());
}

pub(super) fn unmasked_affinity(cluster: &mut Cluster) {
    let (node, net, _) = cluster.victim_block();
    let stored = cluster.remove(&key::affinity("host", &node, net));
    make_undecodable(cluster, unmask(&key::affinity("host", &node, net), net), stored.value());
}

pub(super) fn affinity(cluster: &mut Cluster, kind: &str, value: &str) {
    let (node, net, _) = cluster.victim_block();
    make_undecodable(cluster, key::affinity(kind, &node, net), value);
}

/// Breaks the counts of a handle.
pub(super) fn handle(cluster: &mut Cluster, counts: &str) {
    let pod = cluster.victim();
    make_undecodable(cluster, key::handle(&pod.handle), format!(r#"{{"block":{counts},"deleted":false}}"#));
}

pub(super) fn handle_key(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let key = format!("{}/eth0", key::handle(&pod.handle));
    make_undecodable(cluster, key, r#"{"block":{},"deleted":false}"#);
}

pub(super) fn unknown_key(cluster: &mut Cluster) {
    let number = cluster.next_pod;
    cluster.next_pod += 1;
    make_undecodable(cluster, format!("/calico/ipam/v2/lease/{number}"), "{}");
}

pub(super) fn bytes(cluster: &mut Cluster) {
    let number = cluster.next_pod;
    cluster.next_pod += 1;
    let mut key = format!("/calico/ipam/v2/handle/{number}").into_bytes();
    key.extend([0xff, 0xfe]);
    let subject = String::from_utf8_lossy(&key).into_owned();
    cluster.put_raw(key, r#"{"block":{},"deleted":false}"#);
    cluster.expect("undecodable-object", subject);
}
