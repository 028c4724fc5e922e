//! Nodes, endpoints, pools and configuration that do not decode, completely or in one field.

use super::undecodable::make_undecodable;
use crate::cluster::Cluster;
use crate::cluster::wire::{self, Tunnel, key};

/// Truncates a node. The node is not reported as missing, and its tunnel addresses are not reported as leaked.
pub(super) fn node(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    make_undecodable(cluster, key::node(&name), r#"{"kind":"Node","spec":"#);
}

pub(super) fn node_field(cluster: &mut Cluster) {
    let name = cluster.victim_node(1).0.name;
    cluster.node_mut(&name).tunnel_mut(Tunnel::Vxlan).push_str(".7");
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

/// Adds an undecodable pool. While there is one, no address is reported as outside all pools.
pub(super) fn pool(cluster: &mut Cluster) {
    let block = cluster.foreign_block();
    cluster.victim_in(block);
    let value = r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"broken"},"spec":{"cidr":"198.18.0.0"#;
    make_undecodable(cluster, key::pool("broken"), format!("{value}/444\"}}}}"));
}

pub(super) fn reservation_field(cluster: &mut Cluster) {
    let key = key::resource("ipreservations", "infra");
    let metadata = cluster.spec.metadata("infra", &mut cluster.spec.rng(3));
    cluster.put_raw(key.as_str(), wire::reservation(metadata, &["10.244.0.0/33".to_owned()]));
    cluster.expect_detail("undecodable-object", key, "spec.reservedCIDRs");
}

/// Breaks the allocator's configuration. The rules about settings are skipped: neither strict affinity nor a difference
/// from the resource is reported.
pub(super) fn config(cluster: &mut Cluster) {
    cluster.mirrored.strict_affinity = true;
    cluster.put_settings();
    make_undecodable(cluster, key::IPAM_CONFIG.to_owned(), r#"{"strict_affinity":"yes"}"#);
}
