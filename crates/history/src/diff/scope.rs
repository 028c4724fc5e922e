//! Which part of a difference a reader wants to see.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Filter;
use calipam_model::block::BlockOwner;
use calipam_model::{IpNet, cidr};

/// Networks and nodes; of either all if none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Addresses, blocks and pools, as CIDRs.
    pub networks: Vec<IpNet>,
    pub nodes: BTreeSet<String>,
}

impl Scope {
    /// True if nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.networks.is_empty() && self.nodes.is_empty()
    }

    pub fn has_address(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(&address))
    }

    /// True for what overlaps one of the networks.
    pub fn has_network(&self, network: IpNet) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|own| cidr::overlap(*own, network))
    }

    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(name)
    }

    pub(crate) fn has_owner(&self, owner: Option<&BlockOwner>) -> bool {
        self.nodes.is_empty()
            || owner.and_then(BlockOwner::host).is_some_and(|host| self.nodes.contains(host))
    }

    pub(crate) fn filter(&self) -> Filter {
        Filter {
            nodes: self.nodes.iter().cloned().collect(),
            pools: self.networks.clone(),
            ..Filter::default()
        }
    }
}
