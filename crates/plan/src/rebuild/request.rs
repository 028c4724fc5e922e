//! The request of a rebuild, and its scope.

use std::net::IpAddr;

use calipam_check::index::Index;
use calipam_check::{Evidence, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;

/// A request to rebuild. Each kind of name in it narrows the scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The scope: blocks and affinities of its nodes, in its networks.
    pub scope: calipam_check::Scope,
    /// Only these blocks and the affinities for them, unless the list is empty.
    pub blocks: Vec<IpNet>,
    /// True if the operator accepts that only workload endpoints show who uses addresses.
    pub endpoints_only: bool,
}

impl Request {
    pub(super) fn is_everything(&self) -> bool {
        self.scope.is_everything() && self.blocks.is_empty()
    }

    fn has_network(&self, cidr: IpNet) -> bool {
        let blocks = &self.blocks;
        self.scope.has_network(cidr)
            && (blocks.is_empty() || blocks.iter().any(|block| overlap(*block, cidr)))
    }

    pub(super) fn has_block(&self, cidr: IpNet, owner: Option<&BlockOwner>) -> bool {
        self.has_network(cidr) && self.scope.has_owner(owner)
    }

    /// Returns true for an affinity in the networks in scope if its node or its block's owner is in scope.
    pub(super) fn has_affinity(&self, key: &AffinityKey, owner: Option<&BlockOwner>) -> bool {
        let by_node = key.kind != AffinityType::Virtual && self.scope.has_node(&key.node);
        self.has_network(key.cidr) && (by_node || self.scope.has_owner(owner))
    }

    /// Returns true if the subject of a finding is in scope. A handle is in scope only if one of its blocks is in the
    /// networks.
    pub(super) fn has(&self, finding: &Finding, index: &Index<'_>) -> bool {
        if self.is_everything() {
            return true;
        }

        match &finding.subject {
            Subject::Block(cidr) => self.has_stored_block(*cidr, index),
            Subject::Affinity { node, cidr } => {
                let is_of_node = self.scope.has_node(node) && self.has_network(*cidr);
                is_of_node || self.has_stored_block(*cidr, index)
            }
            Subject::Address(address) => self.has_address(*address, finding, index),
            Subject::Handle(_) => self.has_handle(finding, index),
            Subject::Pool(cidr) => self.scope.nodes.is_empty() && self.has_network(*cidr),
            // Other subjects belong to no network.
            _ => self.scope.networks.is_empty() && self.blocks.is_empty() && self.has_node_of(finding),
        }
    }

    /// Returns true for a block in the networks in scope if its owner is in scope.
    fn has_stored_block(&self, cidr: IpNet, index: &Index<'_>) -> bool {
        let owner = index.block(cidr).and_then(|block| block.owner);
        self.has_block(cidr, owner)
    }

    /// Returns true for an address with a block in scope, or, if it has no block, with a user on a node in scope.
    fn has_address(&self, address: IpAddr, finding: &Finding, index: &Index<'_>) -> bool {
        let blocks = blocks_of(finding);
        // An address in no block has only the node of its user.
        if blocks.is_empty() {
            return self.has_network(address.into()) && self.has_node_of(finding);
        }
        blocks.into_iter().any(|cidr| self.has_stored_block(cidr, index))
    }

    /// Returns true for a handle with a block in the networks whose owner, or a node of the finding, is in scope.
    fn has_handle(&self, finding: &Finding, index: &Index<'_>) -> bool {
        let mut blocks = blocks_of(finding);
        blocks.retain(|cidr| self.has_network(*cidr));
        let is_of_node = !blocks.is_empty() && self.has_node_of(finding);
        is_of_node || blocks.into_iter().any(|cidr| self.has_stored_block(cidr, index))
    }

    /// Returns true if the finding names a node in scope, or every node is in scope.
    fn has_node_of(&self, finding: &Finding) -> bool {
        self.scope.nodes.is_empty() || finding.nodes.iter().any(|node| self.scope.has_node(node))
    }
}

/// Returns the blocks of a finding about an address or a handle.
pub(super) fn blocks_of(finding: &Finding) -> Vec<IpNet> {
    let mut blocks: Vec<IpNet> = match &finding.evidence {
        Evidence::Address(evidence) => evidence.records.iter().map(|record| record.block).collect(),
        Evidence::Handle(evidence) => evidence.blocks.iter().map(|block| block.block).collect(),
        _ => Vec::new(),
    };
    for key in &finding.depends_on {
        if let Key::Block(cidr) = key {
            blocks.push(*cidr);
        }
    }
    blocks
}
