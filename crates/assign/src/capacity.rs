//! Automatic assignment beyond full own blocks (facts 3.4): a node claims blocks up to the block limit, then takes over
//! empty blocks of others (Calico 3.32 and later), then borrows single addresses. The allocator decides by these rules,
//! and `show` computes with them for all users of a pool.

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
    /// Decides for nodes that may still claim `claimable` blocks. Calico checks the block limit first.
    pub(crate) fn of(config: &IpamConfig, claimable: u128) -> Self {
        match (claimable, config.auto_allocate_blocks) {
            (0, _) => Self::BlockLimit,
            (_, false) => Self::NoAutoAllocation,
            (_, true) => Self::Claim,
        }
    }
}

/// True if addresses may come from blocks of others.
pub(crate) fn may_borrow(config: &IpamConfig) -> bool {
    !config.strict_affinity
}

/// The reason that no further address is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimLimit {
    BlockLimit,
    NoAutoAllocation,
    /// No address can be borrowed, since affinity is strict.
    StrictAffinity,
    NoBlockLeft,
}

/// The blocks and addresses that some nodes can get beyond their own blocks.
pub struct ClaimCapacity<E> {
    /// Blocks that could be created.
    pub new_blocks: u128,
    /// Returns how many addresses are free in the given number of empty blocks of others that can be taken over.
    pub empty: E,
    /// Free addresses in blocks of others, the empty ones included.
    pub foreign: u128,
}

/// The part of a [`ClaimCapacity`] that can be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimable {
    /// New blocks.
    pub claims: u128,
    /// Addresses in blocks of others.
    pub from_others: u128,
    /// The reason that no further addresses are available.
    pub end: ClaimLimit,
}

impl Claimable {
    fn nothing(end: ClaimLimit) -> Self {
        Self { claims: 0, from_others: 0, end }
    }
}

/// Computes the blocks and addresses available to nodes that may still claim `claimable` blocks.
pub fn beyond_own_blocks(
    config: &IpamConfig,
    claimable: u128,
    offer: ClaimCapacity<impl FnOnce(u128) -> u128>,
) -> Claimable {
    match ClaimDecision::of(config, claimable) {
        ClaimDecision::BlockLimit => return Claimable::nothing(ClaimLimit::BlockLimit),
        ClaimDecision::NoAutoAllocation => return Claimable::nothing(ClaimLimit::NoAutoAllocation),
        ClaimDecision::Claim => {}
    }
    let claims = offer.new_blocks.min(claimable);
    let left = claimable - claims;
    let (from_others, end) = match (left, may_borrow(config)) {
        (0, _) => (0, ClaimLimit::BlockLimit),
        (_, false) => ((offer.empty)(left), ClaimLimit::StrictAffinity),
        (_, true) => (offer.foreign, ClaimLimit::NoBlockLeft),
    };
    Claimable { claims, from_others, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns claims, addresses from others and the limit, for two new blocks, two empty ones with 4 and 3 addresses,
    /// and 9 free addresses in blocks of others.
    fn assigned(strict: bool, auto: bool, claimable: u128) -> (u128, u128, ClaimLimit) {
        let config =
            IpamConfig { strict_affinity: strict, auto_allocate_blocks: auto, ..IpamConfig::default() };
        let empty = |count: u128| [4, 3].iter().take(count as usize).sum();
        let beyond =
            beyond_own_blocks(&config, claimable, ClaimCapacity { new_blocks: 2, empty, foreign: 9 });
        (beyond.claims, beyond.from_others, beyond.end)
    }

    #[test]
    fn limit_claim_reclaim_borrow() {
        use ClaimLimit::{BlockLimit, NoAutoAllocation, NoBlockLeft, StrictAffinity};
        assert_eq!(assigned(false, true, 20), (2, 9, NoBlockLeft));
        assert_eq!(assigned(true, true, 20), (2, 7, StrictAffinity));
        assert_eq!(assigned(true, true, 3), (2, 4, StrictAffinity));
        for strict in [true, false] {
            assert_eq!(assigned(strict, true, 2), (2, 0, BlockLimit), "nothing is borrowed at the limit");
            assert_eq!(assigned(strict, true, 1), (1, 0, BlockLimit));
            assert_eq!(assigned(strict, true, 0), (0, 0, BlockLimit));
            assert_eq!(assigned(strict, false, 20), (0, 0, NoAutoAllocation), "nor without new blocks");
        }
    }
}
