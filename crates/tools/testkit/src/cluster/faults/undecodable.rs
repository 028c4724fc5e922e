//! Keys and values that do not decode, completely or in one field. A check skips everything that depends on them.

use crate::cluster::wire::{self, Tunnel, key};
use crate::cluster::{Cluster, Form, Pod};

/// Stores a value under a key. A check must report the key as undecodable.
fn make_undecodable(cluster: &mut Cluster, key: String, value: impl Into<Vec<u8>>) {
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
    let net = cluster.victim_block().block();
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
    make_undecodable(
        cluster,
        key::block(net).replace(from, to),
        format!(r#"{{"cidr":"{net}"}}"#),
    );
}

/// Moves the value of a key to one that differs from it in the address of the block. A check skips both a moved block
/// and its affinity.
fn rename_key(cluster: &mut Cluster, key: &str, from: &str, to: &str) {
    let stored = cluster.remove(key);
    make_undecodable(
        cluster,
        key.replace(&format!("{from}-"), &format!("{to}-")),
        stored.value(),
    );
}

/// Stores an object of a block under a key with another address of the block instead of the first one.
pub(super) fn unmasked(cluster: &mut Cluster, key: fn(&Pod) -> String) {
    let pod = cluster.victim_block();
    let first = pod.block().addr().to_string();
    let (head, last) = first.rsplit_once('.').expect("an IPv4 address");
    let other = format!("{head}.{}", last.parse::<u8>().expect("a number") + 5);
    rename_key(cluster, &key(&pod), &first, &other);
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
    let address = net.addr().to_string();
    rename_key(cluster, &key::block(net), &address, &address.to_uppercase());
}

pub(super) fn affinity(cluster: &mut Cluster, kind: &str, value: &str) {
    let pod = cluster.victim_block();
    make_undecodable(cluster, key::affinity(kind, &pod.node, pod.block()), value);
}

/// Breaks the counts of a handle.
pub(super) fn handle(cluster: &mut Cluster, counts: &str) {
    let pod = cluster.victim();
    make_undecodable(
        cluster,
        key::handle(&pod.handle),
        format!(r#"{{"block":{counts},"deleted":false}}"#),
    );
}

pub(super) fn handle_key(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let key = format!("{}/eth0", key::handle(&pod.handle));
    make_undecodable(cluster, key, r#"{"block":{},"deleted":false}"#);
}

pub(super) fn unknown_key(cluster: &mut Cluster) {
    make_undecodable(
        cluster,
        format!("/calico/ipam/v2/lease/{}", cluster.next_pod),
        "{}",
    );
    cluster.next_pod += 1;
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

/// Truncates a node. The node is not reported as missing, and its tunnel addresses are not reported as leaked.
pub(super) fn node(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    make_undecodable(cluster, key::node(&name), r#"{"kind":"Node","spec":"#);
}

pub(super) fn node_field(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    let address = cluster
        .tunnel(&name, Tunnel::Vxlan)
        .expect("the node has the tunnel");
    cluster.set_tunnel(&name, Tunnel::Vxlan, &format!("{address}.7"));
    cluster.expect_detail("undecodable-object", key::node(&name), "spec.ipv4VXLANTunnelAddr");
}

/// Truncates an endpoint. Its key still protects the addresses of the pod.
pub(super) fn endpoint(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let mut value = cluster.remove(&pod.endpoint).value();
    value.truncate(value.len() / 2);
    make_undecodable(cluster, pod.endpoint, value);
}

pub(super) fn endpoint_field(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let network = pod.address().to_string().replacen('.', ",", 1);
    cluster.json_mut(&pod.endpoint)["spec"]["ipNetworks"][0] = format!("{network}/32").into();
    cluster.expect_detail("undecodable-object", &pod.endpoint, "spec.ipNetworks");
}

pub(super) fn grace(cluster: &mut Cluster) {
    let key = key::resource("kubecontrollersconfigurations", "default");
    let metadata = cluster.spec.metadata("default", &mut cluster.spec.rng(8));
    cluster.put_raw(
        key.as_str(),
        wire::kube_controllers(&metadata, "a quarter of an hour"),
    );
    cluster.expect_detail("undecodable-object", key, "spec.controllers.node.leakGracePeriod");
}

/// Adds an undecodable pool. While there is one, no address is reported as outside all pools.
pub(super) fn pool(cluster: &mut Cluster) {
    let block = cluster.foreign_block();
    cluster.victim_in(block);
    let value = r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"broken"},"spec":{"cidr":"198.18.0.0"#;
    make_undecodable(cluster, key::pool("broken"), format!("{value}/444\"}}}}"));
}

/// Adds a reservation with an entry that is no CIDR, at which Calico before 3.34 dies.
pub(super) fn reservation_field(cluster: &mut Cluster) {
    cluster.put_reservation("infra", 3, &["10.244.0.0/33".to_owned()]);
    let key = key::resource("ipreservations", "infra");
    cluster.expect_detail("undecodable-object", key, "spec.reservedCIDRs");
    refuses_every_pod(cluster, "malformed-reservation");
}

/// Breaks the allocator's configuration, so that no pod gets an address. Neither strict affinity nor a difference
/// from the resource is reported.
pub(super) fn config(cluster: &mut Cluster) {
    cluster.mirrored_settings()["spec"]["strictAffinity"] = true.into();
    make_undecodable(
        cluster,
        key::IPAM_CONFIG.to_owned(),
        r#"{"strict_affinity":"yes"}"#,
    );
    refuses_every_pod(cluster, "broken-configuration");
}

/// No pod gets an address any more, for this reason.
fn refuses_every_pod(cluster: &mut Cluster, reason: &str) {
    let families = if cluster.spec.dual_stack {
        &["ipv4", "ipv6"][..]
    } else {
        &["ipv4"]
    };
    for family in families {
        cluster.expect_as(
            &Form::ALL,
            "node-without-addresses",
            format!("{family}/{reason}"),
            "critical",
        );
    }
    for pod in cluster.waiting.clone() {
        cluster.expect_in(&Form::WITH_PODS, "pod-without-address", pod);
    }
}
