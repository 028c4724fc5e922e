//! The nodes, and the differences between the nodes in Calico and in Kubernetes.

use std::net::IpAddr;

use calipam_model::node::Node;
use calipam_model::snapshot::{Snapshot, Versioned};
use calipam_model::text::{Text, TextRef};

use super::Index;
use crate::{FastMap, FastSet};

impl<'s> Index<'s> {
    /// Returns Calico's object for a node, if it was read. The node may no longer exist in Kubernetes.
    pub fn node(&self, name: &str) -> Option<&'s Node> {
        self.stored_node(name).map(|stored| &stored.value)
    }

    /// Returns Calico's object for a node, with its revision.
    pub fn stored_node(&self, name: &str) -> Option<&'s Versioned<Node>> {
        self.nodes
            .get(name)
            .map(|position| &self.snapshot.nodes[*position as usize])
    }

    /// Returns Calico's name of a Kubernetes node. On etcd, the two names can differ.
    pub fn calico_node(&self, name: TextRef<'_>) -> String {
        let name = name.to_string();
        if self.node_exists(&name) {
            return name;
        }
        match self.calico_nodes.get(name.as_str()) {
            Some(calico_name) => (*calico_name).to_owned(),
            None => name,
        }
    }

    /// Returns true if the node exists, even if its object cannot be decoded. If Kubernetes was read together with
    /// etcd, the nodes in Kubernetes decide, as in Calico's collector.
    pub fn node_exists(&self, name: &str) -> bool {
        self.has_object(name) && !self.departed_nodes.contains(name) || self.lacks_object(name)
    }

    /// Returns true for a Kubernetes node without a Calico object.
    pub fn lacks_object(&self, name: &str) -> bool {
        !self.has_object(name)
            && self.kubernetes_nodes.contains(name)
            && !self.calico_nodes.contains_key(name)
    }

    /// Returns true if the node's object cannot be decoded.
    pub fn node_is_broken(&self, name: &str) -> bool {
        self.broken_nodes.contains(name)
    }

    /// Returns true if an endpoint or unfinished pod names the node. Such a node could be alive even if its object is
    /// gone.
    pub fn workloads_name_node(&self, name: &str) -> bool {
        if self.nodes_of_workloads.contains(&Text::new(name).as_ref()) {
            return true;
        }
        let mut keys = self
            .broken_workloads
            .iter()
            .filter_map(|broken| broken.name.as_ref());
        keys.any(|key| key.node == name)
    }

    fn has_object(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.broken_nodes.contains(name)
    }

    /// Returns the node whose own address this is, if the address is in a pool.
    pub(crate) fn node_of_own_address(&self, address: IpAddr) -> Option<&'s Node> {
        let position = *self.nodes_in_pools.get(&address)?;
        Some(&self.snapshot.nodes[position as usize].value)
    }
}

/// Returns the Calico names of nodes that no longer exist in Kubernetes. Leaves out nodes that refer to no Kubernetes
/// node, since they belong to another orchestrator.
pub(super) fn departed_nodes<'s>(snapshot: &'s Snapshot, kubernetes: &FastSet<&str>) -> FastSet<&'s str> {
    let mut departed = FastSet::default();
    if kubernetes.is_empty() {
        // Kubernetes nodes were not read.
        return departed;
    }
    for node in snapshot.nodes.iter().map(|node| &node.value) {
        if let Some(name) = node.kubernetes_name.as_deref()
            && !kubernetes.contains(name)
        {
            departed.insert(node.name.as_str());
        }
    }
    departed
}

/// Returns the nodes' own addresses that are in pools, with the positions of the nodes. Pods could get the same
/// addresses.
pub(super) fn nodes_in_pools(snapshot: &Snapshot, departed: &FastSet<&str>) -> FastMap<IpAddr, u32> {
    let is_in_pool = |address: &IpAddr| {
        let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
        pools.any(|pool| pool.cidr.contains(address))
    };
    let mut in_pools = FastMap::default();
    for (position, node) in (0..).zip(&snapshot.nodes) {
        if departed.contains(node.value.name.as_str()) {
            continue;
        }
        for address in &node.value.addresses {
            if is_in_pool(address) {
                in_pools.insert(*address, position);
            }
        }
    }
    in_pools
}
