//! The rules of automatic assignment once a node's own blocks are full (facts 3.4). The allocator applies them to one
//! node, and [`Outlook::allocatable`](crate::Outlook::allocatable) to all users of a pool.

use calipam_model::config::IpamConfig;

/// The decision about a node that needs another block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimDecision {
    /// The node is at its block limit, so it neither claims nor borrows.
    BlockLimit,
    /// Nodes may not claim blocks, so they do not borrow either.
    NoAutoAllocation,
    Claim,
}

impl ClaimDecision {
    /// Makes the decision for nodes that may still claim `claimable` blocks. Like Calico, checks the block limit first.
    pub(crate) fn of(config: &IpamConfig, claimable: u128) -> Self {
        if claimable == 0 {
            Self::BlockLimit
        } else if !config.auto_allocate_blocks {
            Self::NoAutoAllocation
        } else {
            Self::Claim
        }
    }
}
