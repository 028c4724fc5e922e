//! Which part of a cluster a reader wants to see.

use std::collections::BTreeSet;

use calipam_model::block::BlockOwner;
use calipam_model::{IpNet, cidr};

use super::{BlockList, Comparison, MapList, NodeList, PoolList};

/// Nodes and pools; of either all if none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub nodes: BTreeSet<String>,
    /// CIDRs of pools.
    pub pools: Vec<IpNet>,
}

impl Scope {
    pub fn has_all_nodes(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(name)
    }

    /// True for what is in one of the pools or contains one.
    pub fn has(&self, network: IpNet) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|pool| cidr::overlap(*pool, network))
    }

    /// True if the owner is one of the nodes.
    pub fn has_owner(&self, owner: Option<&BlockOwner>) -> bool {
        self.nodes.is_empty()
            || owner.and_then(BlockOwner::host).is_some_and(|host| self.nodes.contains(host))
    }
}

impl BlockList {
    pub fn within(mut self, scope: &Scope) -> Self {
        self.blocks.retain(|block| scope.has(block.cidr) && scope.has_owner(block.owner.as_ref()));
        self
    }
}

impl NodeList {
    pub fn within(mut self, scope: &Scope) -> Self {
        self.nodes.retain(|node| scope.has_node(&node.node));
        self
    }
}

impl MapList {
    pub fn within(mut self, scope: &Scope) -> Self {
        self.pools.retain(|map| scope.has(map.cidr));
        self
    }
}

impl Comparison {
    pub fn within(mut self, scope: &Scope) -> Self {
        self.nodes.retain(|node| scope.has_node(&node.node));
        self
    }
}

impl PoolList {
    /// Of pools that are named, themselves and those that overlap them.
    pub fn within(mut self, scope: &Scope) -> Self {
        if !scope.pools.is_empty() {
            self.pools.retain(|pool| scope.has(pool.cidr));
            self.outside = None;
        }
        self
    }
}
