//! How many addresses of a pool somebody could still get, and what keeps the free ones from them. This
//! follows Calico's automatic assignment (facts 3.4): own blocks, then blocks that nobody has, then empty
//! ones of others (Calico 3.32 and later), then single addresses of blocks of others.

use std::collections::HashSet;
use std::fmt;

use calipam_model::affinity::LOAD_BALANCER;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::config::IpamConfig;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::{IpNet, cidr};

use super::Accounting;
use super::takers::Taker;
use crate::rules::cidr_set::CidrSet;
use crate::rules::stranded::SOURCES;
use crate::rules::supply::places;

/// The first version of Calico that takes empty blocks from other nodes.
const RECLAIMS_SINCE: (u32, u32) = (3, 32);

/// Why free addresses of a pool cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// The pool is disabled.
    Disabled,
    /// The pool is being deleted.
    Deleting,
    /// Calico has marked the pool as not allocatable, because it overlaps another one for example.
    NotAllocatable,
    /// Its addresses may be used for nothing that this program knows.
    NoUse,
    /// The node selector of this or another pool does not parse, so that Calico refuses every request.
    BrokenSelector,
    /// The pool's node selector matches no node.
    NoNode,
    /// The pool is smaller than one of its blocks.
    SmallerThanBlock,
    /// Nodes may not claim blocks.
    AutoAllocationOff,
    /// The block limit of the nodes that may use the pool ends before the pool does.
    BlockLimit,
    /// Strict affinity forbids to borrow from blocks of others.
    StrictAffinity,
    /// Free addresses lie in blocks of others whose size is not the pool's: Calico does not look there.
    BlockSize,
    /// Something that decides it was not read or does not decode.
    NotKnown,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disabled => "the pool is disabled",
            Self::Deleting => "the pool is being deleted",
            Self::NotAllocatable => "Calico has marked the pool as not allocatable",
            Self::NoUse => "no known use is allowed",
            Self::BrokenSelector => "not known: a node selector does not parse",
            Self::NoNode => "no node matches the node selector",
            Self::SmallerThanBlock => "the pool is smaller than one of its blocks",
            Self::AutoAllocationOff => "nodes may not claim blocks",
            Self::BlockLimit => "the block limit keeps nodes from claiming the rest",
            Self::StrictAffinity => "strict affinity forbids borrowing",
            Self::BlockSize => "blocks of another size are not looked at",
            Self::NotKnown => "not known: something that decides it was not read or does not decode",
        })
    }
}

/// What can still be allocated from a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Addresses that the nodes together can get from the pool, as long as they ask for no other pool's:
    /// pools share the block limit, so that their numbers do not add up. `None` where it is not known.
    pub addresses: Option<u128>,
    /// Why that is not all that is free; empty where it is.
    pub limits: Vec<Limit>,
}

impl Allocatable {
    fn none(limit: Limit) -> Self {
        Self { addresses: Some(0), limits: vec![limit] }
    }

    fn unknown(limit: Limit) -> Self {
        Self { addresses: None, limits: vec![limit] }
    }
}

/// What blocks of a pool have to give.
#[derive(Default)]
struct Stock {
    /// Free addresses in blocks of those who may use the pool.
    own: u128,
    /// Free addresses in blocks of others, where Calico looks for them.
    foreign: u128,
    /// The same, where it does not.
    out_of_sight: u128,
    /// Free addresses of the empty ones among the blocks of others.
    empty: Vec<u128>,
    /// Blocks that could be created.
    places: u128,
    /// Addresses of blocks that could be created.
    unclaimed: u128,
}

impl Accounting<'_, '_> {
    /// What can still be allocated from a pool of the snapshot.
    pub fn allocatable(&self, pool: &Pool) -> Allocatable {
        let snapshot = self.context.snapshot;
        let Some(config) = snapshot.effective_ipam_config().filter(|_| self.is_known()) else {
            return Allocatable::unknown(Limit::NotKnown);
        };
        if let Some(limit) = closed(pool) {
            return Allocatable::none(limit);
        }
        let uses = [PoolUse::Workload, PoolUse::LoadBalancer, PoolUse::Tunnel];
        let Some(wanted) = uses.into_iter().find(|wanted| pool.allows(*wanted)) else {
            return Allocatable::none(Limit::NoUse);
        };
        if pool.automatic && !self.takers.selectors_parse(cidr::is_v4(pool.cidr)) {
            return Allocatable::unknown(Limit::BrokenSelector);
        }
        let mut takers = self.takers.of_use(wanted);
        takers.retain(|taker| self.takers.selects(pool, taker));
        if takers.is_empty() {
            return Allocatable::none(Limit::NoNode);
        }
        let stock = self.stock(pool, wanted, &takers);
        let headroom = self.headroom(pool, wanted, &takers);
        self.distribute(pool, &config, &stock, headroom)
    }

    fn is_known(&self) -> bool {
        SOURCES.into_iter().all(|source| self.context.snapshot.has_read(source))
            && !self.context.index.pools_incomplete
    }

    /// Blocks that the takers may still claim. Those that an affinity names already need no claim.
    fn headroom(&self, pool: &Pool, wanted: PoolUse, takers: &[Taker<'_>]) -> u128 {
        let request = self.takers.request(pool, wanted);
        let one = |taker: &Taker<'_>| {
            let new = taker.held.iter().filter(|h| h.is_new && pool.cidr.contains(&h.cidr)).count();
            let left = self.takers.limit.saturating_sub(self.takers.counted(taker, &request));
            u128::from(left) + new as u128
        };
        takers.iter().map(one).sum()
    }

    fn stock(&self, pool: &Pool, wanted: PoolUse, takers: &[Taker<'_>]) -> Stock {
        let names: HashSet<&str> = takers.iter().map(|t| t.name).collect();
        let is_own = |owner: Option<&BlockOwner>| match owner {
            Some(BlockOwner::Host(node)) => wanted != PoolUse::LoadBalancer && names.contains(node.as_str()),
            Some(BlockOwner::Virtual(name)) => wanted == PoolUse::LoadBalancer && name == LOAD_BALANCER,
            _ => false,
        };
        let inside = self.capacity.inside(pool.cidr);
        let mut stock = Stock::default();
        let mut occupied: u128 = 0;
        for stored in inside {
            let in_sight = stored.key.prefix_len() == pool.block_size;
            if in_sight && !self.capacity.reserved.covers(stored.key) {
                occupied += 1;
            }
            let Some(block) = stored.block.and_then(|b| b.sound) else { continue };
            let open = self.open(block);
            if is_own(block.owner()) {
                stock.own += open;
            } else if in_sight {
                stock.foreign += open;
                if block.is_empty() && open > 0 {
                    stock.empty.push(open);
                }
            } else {
                stock.out_of_sight += open;
            }
        }
        if pool.block_size >= pool.cidr.prefix_len() {
            stock.places = places(&self.capacity, pool).saturating_sub(occupied);
            let around = self.capacity.around(pool.cidr).into_iter().map(|s| s.key);
            stock.unclaimed = self.unclaimed(pool.cidr, around.chain(inside.iter().map(|s| s.key)));
        }
        stock.empty.sort_unstable_by(|a, b| b.cmp(a));
        stock
    }

    /// Addresses of a block that automatic assignment finds free.
    fn open(&self, block: &Block) -> u128 {
        if self.capacity.reserved.within(block.cidr()).next().is_none() {
            return block.free().len() as u128;
        }
        let is_open =
            |ordinal: &&u32| !self.capacity.reserved.contains(cidr::address_at(block.cidr(), **ordinal));
        block.free().iter().filter(is_open).count() as u128
    }

    /// Addresses of a pool that lie neither in a block nor in a reservation.
    fn unclaimed(&self, pool: IpNet, blocks: impl Iterator<Item = IpNet>) -> u128 {
        let blocks = CidrSet::new(blocks);
        let outside = |region: IpNet| cidr::size(region).saturating_sub(blocks.size_within(region));
        let reserved = self.capacity.reserved.within(pool).map(outside).fold(0, u128::saturating_add);
        outside(pool).saturating_sub(reserved)
    }

    fn distribute(&self, pool: &Pool, config: &IpamConfig, stock: &Stock, headroom: u128) -> Allocatable {
        let headroom = if config.auto_allocate_blocks { headroom } else { 0 };
        let claims = stock.places.min(headroom);
        let per_block = 1u128.checked_shl((pool.cidr.max_prefix_len() - pool.block_size).into());
        let from_claims = claims.saturating_mul(per_block.unwrap_or(u128::MAX)).min(stock.unclaimed);
        // Nobody borrows before all blocks are claimed, nor once the limit is reached.
        let left = headroom - claims;
        let from_others = if left == 0 {
            0
        } else if !config.strict_affinity {
            stock.foreign
        } else if self.reclaims() {
            stock.empty.iter().take(usize::try_from(left).unwrap_or(usize::MAX)).sum()
        } else {
            0
        };
        let free = self.tally(pool.cidr).free;
        let addresses = stock.own.saturating_add(from_claims).saturating_add(from_others).min(free);
        let mut limits = Vec::new();
        if addresses < free {
            let missed = stock.foreign - from_others.min(stock.foreign);
            let claimable = stock.unclaimed - from_claims;
            let tests = [
                (Limit::SmallerThanBlock, pool.block_size < pool.cidr.prefix_len()),
                (Limit::AutoAllocationOff, !config.auto_allocate_blocks && stock.unclaimed + missed > 0),
                (Limit::BlockLimit, config.auto_allocate_blocks && left == 0 && claimable + missed > 0),
                (Limit::StrictAffinity, config.strict_affinity && missed > 0),
                (Limit::BlockSize, stock.out_of_sight > 0),
            ];
            limits.extend(tests.into_iter().filter(|(_, applies)| *applies).map(|(limit, _)| limit));
        }
        Allocatable { addresses: Some(addresses), limits }
    }

    /// True where Calico takes empty blocks from other nodes.
    fn reclaims(&self) -> bool {
        let version = self.context.snapshot.cluster.as_ref().map_or("", |c| c.calico_version.as_str());
        let mut numbers = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
        matches!((numbers.next(), numbers.next()), (Some(Some(major)), Some(Some(minor)))
            if (major, minor) >= RECLAIMS_SINCE)
    }
}

/// Why nothing at all is allocated from a pool.
fn closed(pool: &Pool) -> Option<Limit> {
    let states = [
        (pool.disabled, Limit::Disabled),
        (pool.deleting, Limit::Deleting),
        (!pool.allocatable, Limit::NotAllocatable),
    ];
    states.into_iter().find(|(applies, _)| *applies).map(|(_, limit)| limit)
}
