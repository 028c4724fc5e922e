//! The addresses that nodes can still get from a pool, and the reasons why they cannot get more. They get free
//! addresses in their own blocks, and those from [`beyond_own_blocks`].

use std::collections::HashSet;
use std::fmt;

use calipam_assign::{
    ClaimCapacity, ClaimLimit, Claimable, Family, Outlook, PoolPassedOver, beyond_own_blocks,
    reclaims_empty_blocks,
};
use calipam_model::affinity::LOAD_BALANCER;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::config::IpamConfig;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::{IpNet, cidr};

use super::Occupancy;
use crate::cidr_set::CidrSet;

/// A reason why a pool's free addresses cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// The pool is disabled.
    Disabled,
    /// The pool is being deleted.
    Deleting,
    /// Calico has marked the pool as not allocatable, for example because it overlaps another one.
    NotAllocatable,
    /// The pool has no allowed use that calipam knows.
    NoUse,
    /// The node selector of this or another pool does not parse: Calico refuses every request.
    BrokenSelector,
    /// The pool's node selector matches no node: its addresses are assigned by name only.
    NoNode,
    /// The pool's assignment mode is manual.
    Manual,
    /// The pool is smaller than one of its blocks.
    SmallerThanBlock,
    /// Nodes are not allowed to claim blocks.
    AutoAllocationOff,
    /// The block limit keeps the pool's nodes from using all of it.
    BlockLimit,
    /// Strict affinity forbids borrowing from other owners' blocks.
    StrictAffinity,
    /// Free addresses are in other owners' blocks of a different size, where Calico does not look.
    BlockSize,
    /// A necessary object was not read or cannot be decoded.
    NotKnown,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disabled => "the pool is disabled",
            Self::Deleting => "the pool is being deleted",
            Self::NotAllocatable => "Calico has marked the pool as not allocatable",
            Self::NoUse => "its allowedUses contain no known use",
            Self::BrokenSelector => "not known: a node selector does not parse",
            Self::NoNode => "no node matches the node selector",
            Self::Manual => "its assignmentMode is Manual",
            Self::SmallerThanBlock => "the pool is smaller than one of its blocks",
            Self::AutoAllocationOff => "nodes cannot claim blocks",
            Self::BlockLimit => "the block limit keeps nodes from claiming the rest",
            Self::StrictAffinity => "strict affinity forbids borrowing",
            Self::BlockSize => "blocks of a different size are not used",
            Self::NotKnown => "not known: a necessary object was not read or cannot be decoded",
        })
    }
}

/// The addresses that can still be allocated from a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// The number of addresses that all nodes together can get from the pool if they use no other pool. Pools share the
    /// block limit, so their numbers do not add up. `None` if the number is not known.
    pub addresses: Option<u128>,
    /// The number of addresses for requests that name the pool, if it serves no other requests.
    pub by_name: Option<u128>,
    /// The reasons why not all free addresses can be allocated.
    pub limits: Vec<Limit>,
}

impl Allocatable {
    fn none(limit: Limit) -> Self {
        Self { addresses: Some(0), by_name: None, limits: vec![limit] }
    }

    fn unknown(limit: Limit) -> Self {
        Self { addresses: None, by_name: None, limits: vec![limit] }
    }
}

/// The free addresses and blocks of a pool.
#[derive(Default)]
pub(crate) struct PoolCapacity {
    /// Free addresses in blocks whose owners use the pool.
    own: u128,
    /// Free addresses that can be borrowed from other owners' blocks.
    pub foreign: u128,
    /// Free addresses in other owners' blocks of a different size. Calico does not borrow them.
    other_size: u128,
    /// The number of free addresses in each empty block of another owner, descending. Nodes can take over such blocks
    /// (Calico 3.32 and later).
    pub empty: Vec<u128>,
    /// The number of blocks that could be created.
    pub new_blocks: u128,
}

impl PoolCapacity {
    /// Returns the number of blocks that can be claimed.
    pub(crate) fn claimable(&self) -> u32 {
        u32::try_from(self.new_blocks.saturating_add(self.empty.len() as u128)).unwrap_or(u32::MAX)
    }
}

impl Occupancy<'_, '_> {
    /// Returns the addresses that can still be allocated from a pool. Without an outlook, they are not known.
    pub(crate) fn allocatable(&self, outlook: Option<&Outlook<'_>>, pool: &Pool) -> Allocatable {
        let Some((outlook, config)) = outlook.zip(self.context.snapshot.effective_ipam_config()) else {
            return Allocatable::unknown(Limit::NotKnown);
        };
        if let Some(limit) = closed(pool) {
            return Allocatable::none(limit);
        }
        let uses = [PoolUse::Workload, PoolUse::LoadBalancer, PoolUse::Tunnel];
        let Some(wanted) = uses.into_iter().find(|wanted| pool.allows(*wanted)) else {
            return Allocatable::none(Limit::NoUse);
        };
        if pool.automatic && !outlook.selectors_parse(Family::of(pool.cidr)) {
            return Allocatable::unknown(Limit::BrokenSelector);
        }
        let mut users = outlook.holders(wanted);
        let is_served = users.iter().any(|user| outlook.serves(pool, *user));
        let by_name = match (pool.automatic, is_served) {
            (false, _) => Some(Limit::Manual),
            (true, false) if wanted == PoolUse::LoadBalancer || users.is_empty() => {
                return Allocatable::none(Limit::NoNode);
            }
            (true, false) => Some(Limit::NoNode),
            (true, true) => None,
        };
        if by_name.is_none() {
            users.retain(|user| outlook.serves(pool, *user));
        }

        let names: HashSet<&str> = users.iter().map(|user| user.name()).collect();
        let stock = self.stock(pool, |owner| match owner {
            BlockOwner::Host(node) => wanted != PoolUse::LoadBalancer && names.contains(node.as_str()),
            BlockOwner::Virtual(name) => wanted == PoolUse::LoadBalancer && name == LOAD_BALANCER,
            BlockOwner::Other(_) => false,
        });
        // Blocks that an affinity names need no claim.
        let claims = users.iter().map(|user| {
            u128::from(outlook.claimable(*user, pool, wanted)) + outlook.to_come(*user, pool) as u128
        });
        let found = self.distribute(pool, &config, &stock, claims.sum());
        match by_name {
            None => found,
            Some(limit) => Allocatable { by_name: found.addresses, ..Allocatable::none(limit) },
        }
    }

    /// Returns the free addresses and blocks of a pool, as seen by the owners for which `is_own` is true.
    pub(crate) fn stock(&self, pool: &Pool, is_own: impl Fn(&BlockOwner) -> bool) -> PoolCapacity {
        let reclaims = reclaims_empty_blocks(self.context.snapshot);
        let mut stock = PoolCapacity::default();
        let mut existing: u128 = 0;
        for stored in self.inside(pool.cidr) {
            // Calico looks only for blocks of the pool's present size.
            let is_present_size = stored.key.prefix_len() == pool.block_size;
            if is_present_size && !self.reserved.covers(stored.key) {
                existing += 1;
            }
            let Some(block) = stored.block.and_then(|b| b.current()) else { continue };

            let open = self.open(block);
            if block.owner().is_some_and(&is_own) {
                stock.own += open;
            } else if !is_present_size {
                stock.other_size += open;
            } else {
                stock.foreign += open;
                if reclaims && open > 0 && block.is_empty() {
                    stock.empty.push(open);
                }
            }
        }
        stock.new_blocks = self.room_for_blocks(pool).saturating_sub(existing);
        stock.empty.sort_unstable_by(|a, b| b.cmp(a));
        stock
    }

    /// Returns the number of blocks that fit into the pool, without those that are entirely reserved.
    fn room_for_blocks(&self, pool: &Pool) -> u128 {
        let count = |cidr: IpNet| match pool.block_size.checked_sub(cidr.prefix_len()) {
            Some(bits) => 1u128.checked_shl(bits.into()).unwrap_or(u128::MAX),
            None => 0,
        };
        let reserved = self.reserved.within(pool.cidr).map(count).fold(0, u128::saturating_add);
        count(pool.cidr).saturating_sub(reserved)
    }

    /// Counts the addresses of a block that automatic assignment finds free.
    pub(crate) fn open(&self, block: &Block) -> u128 {
        if self.reserved.within(block.cidr()).next().is_none() {
            return block.free().len() as u128;
        }
        block.assignable(|address| self.reserved.contains(address)).count() as u128
    }

    /// Counts the addresses of a pool that are neither in a block nor reserved; 0 if no block fits into the pool.
    fn unclaimed(&self, pool: &Pool) -> u128 {
        if pool.is_smaller_than_block() {
            return 0;
        }
        let around = self.around(pool.cidr).into_iter();
        let blocks = CidrSet::new(around.chain(self.inside(pool.cidr)).map(|stored| stored.key));
        let outside = |region: IpNet| cidr::size(region).saturating_sub(blocks.size_within(region));
        let reserved = self.reserved.within(pool.cidr).map(outside).fold(0, u128::saturating_add);
        outside(pool.cidr).saturating_sub(reserved)
    }

    fn distribute(
        &self,
        pool: &Pool,
        config: &IpamConfig,
        stock: &PoolCapacity,
        claimable_blocks: u128,
    ) -> Allocatable {
        let empty = |count: u128| stock.empty.iter().take(usize::try_from(count).unwrap_or(usize::MAX)).sum();
        let capacity = ClaimCapacity { new_blocks: stock.new_blocks, empty, foreign: stock.foreign };
        let Claimable { claims, from_others, end } = beyond_own_blocks(config, claimable_blocks, capacity);

        let unclaimed = self.unclaimed(pool);
        let per_block = 1u128.checked_shl((pool.cidr.max_prefix_len() - pool.block_size).into());
        let from_claims = claims.saturating_mul(per_block.unwrap_or(u128::MAX)).min(unclaimed);
        let free = self.tally(pool.cidr).free;
        let addresses = stock.own.saturating_add(from_claims).saturating_add(from_others).min(free);
        let mut limits = Vec::new();
        if addresses < free {
            let missed = stock.foreign - from_others.min(stock.foreign);
            let claimable = unclaimed - from_claims;
            let at_limit = config.auto_allocate_blocks && end == ClaimLimit::BlockLimit;
            let tests = [
                (Limit::SmallerThanBlock, pool.is_smaller_than_block()),
                (Limit::AutoAllocationOff, !config.auto_allocate_blocks && unclaimed + missed > 0),
                (Limit::BlockLimit, at_limit && claimable + missed > 0),
                (Limit::StrictAffinity, config.strict_affinity && missed > 0),
                (Limit::BlockSize, stock.other_size > 0),
            ];
            limits.extend(tests.into_iter().filter(|(_, applies)| *applies).map(|(limit, _)| limit));
        }
        Allocatable { addresses: Some(addresses), by_name: None, limits }
    }
}

/// Returns the reason why nothing at all is allocated from a pool.
fn closed(pool: &Pool) -> Option<Limit> {
    PoolPassedOver::of_state(pool).map(|why| match why {
        PoolPassedOver::Disabled => Limit::Disabled,
        PoolPassedOver::Deleting => Limit::Deleting,
        _ => Limit::NotAllocatable,
    })
}
