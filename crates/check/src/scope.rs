//! The part of a cluster that a caller selects.

use std::collections::BTreeSet;

use calipam_model::block::BlockOwner;
use calipam_model::{IpNet, cidr};

use crate::finding::Finding;
use crate::{Evidence, Subject};

/// Nodes, networks and a namespace. An empty field selects everything, and each other field narrows the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub nodes: BTreeSet<String>,
    /// Pools, blocks and addresses, as CIDRs.
    pub networks: Vec<IpNet>,
    /// The namespace of users or recorded owners.
    pub namespace: Option<String>,
}

impl Scope {
    pub fn of_nodes(nodes: impl IntoIterator<Item = String>) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            ..Self::default()
        }
    }

    pub fn of_networks(networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self {
            networks: networks.into_iter().collect(),
            ..Self::default()
        }
    }

    pub fn is_everything(&self) -> bool {
        self.nodes.is_empty() && self.networks.is_empty() && self.namespace.is_none()
    }

    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(name)
    }

    /// Returns true for a network that overlaps one in the scope, or if the scope has no networks.
    pub fn has_network(&self, network: IpNet) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|own| cidr::overlap(*own, network))
    }

    pub fn has_owner(&self, owner: Option<&BlockOwner>) -> bool {
        match owner.and_then(BlockOwner::host) {
            Some(host) => self.has_node(host),
            None => self.nodes.is_empty(),
        }
    }

    /// True if a finding is about one of the nodes, the namespace and one of the networks, as far as they are given.
    pub fn has(&self, finding: &Finding) -> bool {
        if !self.nodes.is_empty() && !finding.nodes.iter().any(|node| self.nodes.contains(node)) {
            return false;
        }
        if let Some(namespace) = &self.namespace
            && !finding.concerns_namespace(namespace)
        {
            return false;
        }
        self.networks.is_empty() || self.is_around(finding)
    }

    /// True if the subject of a finding, or an address or a block of a handle or an endpoint, is in one of the networks.
    fn is_around(&self, finding: &Finding) -> bool {
        if let Some(network) = finding.subject.network() {
            return self.has_network(network);
        }
        if !matches!(finding.subject, Subject::Handle(_) | Subject::Endpoint(_)) {
            return false;
        }

        if let Evidence::Handle(handle) = &finding.evidence
            && handle.blocks.iter().any(|counts| self.has_network(counts.block))
        {
            return true;
        }
        let mut addresses = finding.addresses().into_iter();
        addresses.any(|address| self.has_network(address.into()))
    }
}
