//! Differences between Calico's nodes and those of Kubernetes.

use std::net::IpAddr;

use calipam_model::node::Node;
use calipam_model::snapshot::Snapshot;

use crate::{FastMap, FastSet};

/// Returns the Calico names of nodes that are gone from Kubernetes. Nodes that refer to no Kubernetes node belong to
/// another orchestrator.
pub(super) fn left_nodes<'s>(snapshot: &'s Snapshot, kubernetes: &FastSet<&str>) -> FastSet<&'s str> {
    // If there is no Kubernetes node at all, they were not read.
    let nodes = snapshot.nodes.iter().map(|node| &node.value).filter(|_| !kubernetes.is_empty());
    let is_left =
        |node: &&Node| node.kubernetes_name.as_deref().is_some_and(|name| !kubernetes.contains(name));
    nodes.filter(is_left).map(|node| node.name.as_str()).collect()
}

/// Returns the node addresses in pools, where pods could get the same address, with the positions of the nodes.
pub(super) fn nodes_in_pools(snapshot: &Snapshot, left: &FastSet<&str>) -> FastMap<IpAddr, u32> {
    let addresses = (0..)
        .zip(&snapshot.nodes)
        .filter(|(_, node)| !left.contains(node.value.name.as_str()))
        .flat_map(|(position, node)| node.value.addresses.iter().map(move |address| (*address, position)));
    let is_in_pool = |address: &IpAddr| snapshot.pools.iter().any(|pool| pool.value.cidr.contains(address));
    addresses.filter(|(address, _)| is_in_pool(address)).collect()
}
