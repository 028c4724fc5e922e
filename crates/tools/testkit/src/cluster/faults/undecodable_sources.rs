//! Nodes, endpoints, pools and configuration that cannot be understood, or of which one field cannot.

use crate::cluster::wire::{self, Tunnel, go_json, key};
use crate::cluster::{Cluster, Object};

fn spoil(cluster: &mut Cluster, key: String, value: impl Into<Vec<u8>>) {
    cluster.put_raw(key.as_str(), value);
    cluster.expect("undecodable-object", key);
}

/// The node is not missing, and its tunnel addresses are not leaked.
pub(super) fn node(cluster: &mut Cluster) {
    let (node, _) = cluster.victim_node(1);
    let key = key::node(&cluster.nodes[node].name);
    spoil(cluster, key, r#"{"kind":"Node","spec":"#);
}

pub(super) fn node_field(cluster: &mut Cluster) {
    let (node, _) = cluster.victim_node(1);
    let name = cluster.nodes[node].name.clone();
    cluster.node_mut(&name).tunnel_mut(Tunnel::Vxlan).push_str(".7");
    cluster.expect_detail("undecodable-object", key::node(&name), "spec.ipv4VXLANTunnelAddr");
}

/// It protects the addresses of the pod that its key names.
pub(super) fn endpoint(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let mut value = cluster.remove(&pod.endpoint).value();
    value.truncate(value.len() / 2);
    spoil(cluster, pod.endpoint, value);
}

pub(super) fn endpoint_field(cluster: &mut Cluster) {
    let pod = cluster.victim();
    let networks = &mut cluster.endpoint_mut(&pod.endpoint).spec.ip_networks;
    networks[0] = networks[0].replacen('.', ",", 1);
    cluster.expect_detail("undecodable-object", &pod.endpoint, "spec.ipNetworks");
}

pub(super) fn grace(cluster: &mut Cluster) {
    let key = key::resource("kubecontrollersconfigurations", "default");
    let metadata = cluster.spec.metadata("default", &mut cluster.spec.rng(8));
    cluster.put_raw(key.as_str(), wire::kube_controllers(metadata, "a quarter of an hour"));
    cluster.expect_detail("undecodable-object", key, "spec.controllers.node.leakGracePeriod");
}

pub(super) fn controllers(cluster: &mut Cluster) {
    spoil(cluster, key::resource("kubecontrollersconfigurations", "default"), r#"{"spec":7}"#);
}

pub(super) fn information(cluster: &mut Cluster) {
    spoil(cluster, key::resource("clusterinformations", "default"), "not json");
}

/// Nothing is called outside all pools any more.
pub(super) fn pool(cluster: &mut Cluster) {
    let node = cluster.host();
    let node = cluster.nodes[node].name.clone();
    let block = cluster.foreign_block();
    cluster.claim(block, &node);
    cluster.add_pod(&node, &[block]);
    let value = r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"broken"},"spec":{"cidr":"198.18.0.0"#;
    spoil(cluster, key::pool("broken"), format!("{value}/444\"}}}}"));
}

pub(super) fn reservation(cluster: &mut Cluster) {
    spoil(cluster, key::resource("ipreservations", "infra"), "[]");
}

pub(super) fn reservation_field(cluster: &mut Cluster) {
    let key = key::resource("ipreservations", "infra");
    let metadata = cluster.spec.metadata("infra", &mut cluster.spec.rng(3));
    cluster.put_raw(key.as_str(), wire::reservation(metadata, &["10.244.0.0/33".to_owned()]));
    cluster.expect_detail("undecodable-object", key, "spec.reservedCIDRs");
}

/// Its rules are not checked: neither strict affinity nor a difference to the resource.
pub(super) fn config(cluster: &mut Cluster) {
    cluster.shown.strict_affinity = true;
    cluster.put_settings();
    spoil(cluster, key::IPAM_CONFIG.to_owned(), r#"{"strict_affinity":"yes"}"#);
}

pub(super) fn configuration(cluster: &mut Cluster) {
    let value = Object::Raw(go_json(&"IPAMConfiguration")).value();
    spoil(cluster, key::resource("ipamconfigurations", "default"), value);
}
