//! Lists narrowed to a part of the cluster.

use super::{BlockList, Comparison, MapList, NodeList, PoolList};
use crate::scope::Scope;

impl BlockList {
    pub fn within(mut self, scope: &Scope) -> Self {
        self.blocks
            .retain(|block| scope.has_network(block.cidr) && scope.has_owner(block.owner.as_ref()));
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
        self.pools.retain(|map| scope.has_network(map.cidr));
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
    /// Keeps the pools that overlap a network of the scope. If the scope has networks, blocks outside all pools are
    /// left out.
    pub fn within(mut self, scope: &Scope) -> Self {
        if !scope.networks.is_empty() {
            self.pools.retain(|pool| scope.has_network(pool.cidr));
            self.outside = None;
        }
        self
    }
}
