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
        owner
            .and_then(BlockOwner::host)
            .map_or(self.nodes.is_empty(), |host| self.has_node(host))
    }

    pub fn has(&self, finding: &Finding) -> bool {
        (self.nodes.is_empty() || finding.nodes.iter().any(|node| self.nodes.contains(node)))
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| finding.concerns_namespace(namespace))
            && (self.networks.is_empty() || self.is_around(finding))
    }

    fn is_around(&self, finding: &Finding) -> bool {
        match (finding.subject.network(), &finding.subject) {
            (Some(network), _) => self.has_network(network),
            (None, Subject::Handle(_) | Subject::Endpoint(_)) => {
                let blocks = match &finding.evidence {
                    Evidence::Handle(handle) => handle.blocks.as_slice(),
                    _ => &[],
                };
                blocks.iter().any(|of_block| self.has_network(of_block.block))
                    || finding
                        .addresses()
                        .into_iter()
                        .any(|address| self.has_network(address.into()))
            }
            _ => false,
        }
    }
}
