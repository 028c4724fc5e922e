//! The addresses that nodes can still get from a pool, and the reasons why they cannot get more (facts 3.4). A node
//! gets the free addresses in its own blocks and claims blocks up to its limit. If there is no place for a new block,
//! it takes over empty blocks of other owners (Calico 3.32 and later), and then borrows single addresses.

use std::collections::HashSet;

use calipam_model::IpNet;
use calipam_model::block::WINDOWS_RESERVED;
use calipam_model::cidr;
use calipam_model::pool::{Pool, PoolUse};

use super::Outlook;
use super::claims::Holder;
use super::pool_room::{PoolUser, Room};
use crate::capacity::ClaimDecision;
use crate::event::PoolPassedOver;
use crate::family::Family;

/// A reason why a pool's free addresses cannot be allocated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolLimit {
    /// The pool serves no request at all.
    #[error("{0}")]
    PassedOver(PoolPassedOver),
    /// The pool has no allowed use that calipam knows.
    #[error("its allowedUses contain no known use")]
    NoUse,
    /// A selector of this or another pool does not parse, so Calico refuses every request that names no pool.
    #[error("not known: a selector does not parse")]
    BrokenSelector,
    /// The pool's node selector matches no node, so only requests that name the pool can use it.
    #[error("no node matches the node selector")]
    NoNode,
    /// The pool's assignment mode is manual.
    #[error("its assignmentMode is Manual")]
    Manual,
    /// The pool is smaller than one of its blocks.
    #[error("the pool is smaller than one of its blocks")]
    SmallerThanBlock,
    /// The prefix length of the pool's blocks is longer than an address.
    #[error("its blocks would be /{0}, which is longer than an address")]
    ImpossibleBlocks(u8),
    /// Windows nodes get no address, because strict affinity is off.
    #[error("Windows nodes need strict affinity, but it is off")]
    WindowsNeedsStrictAffinity,
    /// Windows nodes get no address from blocks of so few addresses.
    #[error("Windows reserves every address in blocks this small")]
    TooSmallForWindows,
    /// Only Windows nodes use the pool.
    #[error("Windows nodes reserve addresses in each block that they create")]
    ReservedForWindows,
    /// Nodes are not allowed to claim blocks.
    #[error("nodes cannot claim blocks")]
    AutoAllocationOff,
    /// The block limit keeps the pool's nodes from using the entire pool.
    #[error("the block limit lets nodes claim only part of the pool")]
    BlockLimit,
    /// Strict affinity forbids borrowing from other owners' blocks.
    #[error("strict affinity forbids borrowing")]
    StrictAffinity,
    /// Other owners' blocks whose size differs from the pool's block size have free addresses. Calico does not look
    /// there.
    #[error("blocks of a different size are not used")]
    BlockSize,
    /// New blocks would overlap smaller ones. Calico creates them nevertheless, and assigns addresses twice.
    #[error("new blocks that would overlap others do not count")]
    Overlap,
    /// A necessary object was not read or cannot be decoded.
    #[error("not known: a necessary object was not read or cannot be decoded")]
    NotKnown,
}

/// The addresses that can still be allocated from a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocatable {
    /// The number of addresses that all nodes together can get from the pool if they use no other pool. Pools share the
    /// block limit of a node, so the numbers of several pools must not be added up. `None` if the number is not known.
    pub addresses: Option<u128>,
    /// The number of addresses for requests that name the pool, if it serves no other requests.
    pub by_name: Option<u128>,
    /// The reasons why not all free addresses can be allocated.
    pub limits: Vec<PoolLimit>,
}

impl Allocatable {
    fn none(limit: PoolLimit) -> Self {
        Self {
            addresses: Some(0),
            by_name: None,
            limits: vec![limit],
        }
    }

    /// An unknown number of addresses, for this reason.
    pub fn unknown(limit: PoolLimit) -> Self {
        Self {
            addresses: None,
            by_name: None,
            limits: vec![limit],
        }
    }
}

/// The blocks that the users of a pool claim.
#[derive(Default)]
struct Claims {
    /// The number of new blocks.
    new_blocks: u128,
    /// The number of addresses that the users get from existing blocks of others.
    from_others: u128,
    /// True if the block limit ends the claims.
    at_limit: bool,
}

impl<'s> Outlook<'s> {
    /// Returns the addresses that can still be allocated from a pool in which `free` addresses are free.
    pub fn allocatable(&self, pool: &Pool, free: u128) -> Allocatable {
        if self.is_config_broken {
            return Allocatable::unknown(PoolLimit::NotKnown);
        }
        if let Some(why) = PoolPassedOver::of_state(pool) {
            return Allocatable::none(PoolLimit::PassedOver(why));
        }
        let uses = [PoolUse::Workload, PoolUse::LoadBalancer, PoolUse::Tunnel];
        let Some(wanted) = uses.into_iter().find(|wanted| pool.allows(*wanted)) else {
            return Allocatable::none(PoolLimit::NoUse);
        };
        if pool.automatic && self.open_pools[Family::of(pool.cidr) as usize].is_none() {
            return Allocatable::unknown(PoolLimit::BrokenSelector);
        }

        let mut holders = self.holders(wanted);
        let mut windows_limit = None;
        if let Some(limit) = self.windows_limit(pool, wanted) {
            let windows_nodes: Vec<_> = holders.extract_if(.., |holder| holder.is_windows()).collect();
            if pool.automatic && self.serves_any(pool, &windows_nodes) {
                windows_limit = Some(limit);
            }
        }
        let is_served = self.serves_any(pool, &holders);
        if !is_served && let Some(limit) = windows_limit {
            return Allocatable::none(limit);
        }
        let only_by_name = if !pool.automatic {
            Some(PoolLimit::Manual)
        } else if is_served {
            None
        } else if wanted == PoolUse::LoadBalancer || holders.is_empty() {
            return Allocatable::none(PoolLimit::NoNode);
        } else {
            Some(PoolLimit::NoNode)
        };
        if only_by_name.is_none() {
            holders.retain(|holder| self.serves(pool, *holder));
        }

        let mut users = Vec::with_capacity(holders.len());
        for holder in holders {
            let claimable = self.claimable_by(holder, pool, wanted);
            users.push(PoolUser { holder, claimable });
        }
        let room = self.room(pool, &users);
        let (addresses, mut limits) = self.distribute(pool, &room, total_claimable(&users), free);
        if addresses < free {
            limits.extend(windows_limit);
        }

        let Some(limit) = only_by_name else {
            return Allocatable {
                addresses: Some(addresses),
                by_name: None,
                limits,
            };
        };
        limits.insert(0, limit);
        Allocatable {
            addresses: Some(0),
            by_name: Some(addresses),
            limits,
        }
    }

    fn serves_any(&self, pool: &Pool, holders: &[Holder<'_>]) -> bool {
        holders.iter().any(|holder| self.serves(pool, *holder))
    }

    /// Returns the reason why Windows nodes get no address from a pool; `None` if they get one, or if the use is not
    /// that of their pods.
    fn windows_limit(&self, pool: &Pool, wanted: PoolUse) -> Option<PoolLimit> {
        if wanted != PoolUse::Workload {
            return None;
        }
        if !self.config.serves_windows() {
            return Some(PoolLimit::WindowsNeedsStrictAffinity);
        }
        let place = cidr::block_around(pool.cidr.addr(), pool.block_size)?;
        // In IPv6, they reserve no addresses.
        if cidr::is_v4(place) && cidr::size(place) <= WINDOWS_RESERVED.into() {
            return Some(PoolLimit::TooSmallForWindows);
        }
        None
    }

    /// Returns the number of blocks that each node may still claim from a pool. For a manual pool, these are the claims
    /// for requests that name the pool. Nodes that the pool does not serve are left out.
    pub fn claimable(&self, pool: &Pool) -> Vec<(&'s str, u32)> {
        if !pool.is_enabled() || !self.config.auto_allocate_blocks {
            return Vec::new();
        }
        let uses = [PoolUse::Workload, PoolUse::Tunnel];
        let Some(wanted) = uses.into_iter().find(|wanted| pool.allows(*wanted)) else {
            return Vec::new();
        };

        let room = self.room(pool, &[]);
        let empty: HashSet<IpNet> = room.existing.iter().map(|(_, cidr)| *cidr).collect();
        let blocks = room.places + empty.len() as u128;

        let mut claimable = Vec::new();
        for holder in self.holders(wanted) {
            if pool.automatic && !self.serves(pool, holder) {
                continue;
            }
            // A node can claim new blocks and other owners' empty blocks, but no block for which it already has an
            // affinity.
            let needs_no_claim = |cidr: &IpNet| empty.contains(cidr) || room.is_place(pool, *cidr);
            let own = self.held(holder).filter(needs_no_claim).count();
            let available = blocks.saturating_sub(own as u128);
            let available = u32::try_from(available).unwrap_or(u32::MAX);
            let allowed = self.claimable_by(holder, pool, wanted);
            claimable.push((holder.name(), allowed.min(available)));
        }
        claimable
    }

    /// Returns the number of addresses that the users of a pool get if they may claim `claimable` blocks, and the
    /// reasons why they do not get all free addresses.
    fn distribute(&self, pool: &Pool, room: &Room, claimable: u128, free: u128) -> (u128, Vec<PoolLimit>) {
        let claims = self.claims(room, claimable);
        let not_pending = room.unclaimed.saturating_sub(room.pending_addresses);
        let from_claims = claims.new_blocks.saturating_mul(room.per_place).min(not_pending);
        let from_new_blocks = room.pending_addresses.saturating_add(from_claims);

        let addresses = room
            .own
            .saturating_add(from_new_blocks)
            .saturating_add(claims.from_others)
            .min(free);
        let limits = if addresses < free {
            self.limits(pool, room, &claims, from_new_blocks)
        } else {
            Vec::new()
        };
        (addresses, limits)
    }

    /// Returns the blocks that the users of a pool claim if they may claim `claimable` blocks. They create new blocks
    /// first, then take existing ones and, if they may, borrow addresses instead.
    fn claims(&self, room: &Room, claimable: u128) -> Claims {
        let decision = ClaimDecision::of(&self.config, claimable);
        if decision != ClaimDecision::Claim {
            return Claims {
                at_limit: decision == ClaimDecision::BlockLimit,
                ..Claims::default()
            };
        }

        let free_places = room.places.saturating_sub(room.pending_places);
        let new_blocks = claimable.min(free_places);
        let remaining = claimable - new_blocks;
        let existing = usize::try_from(remaining)
            .unwrap_or(usize::MAX)
            .min(room.existing.len());
        let at_limit = remaining == existing as u128;
        let from_others = if !at_limit && self.config.may_borrow() {
            room.foreign
        } else {
            room.existing[..existing].iter().map(|(free, _)| free).sum()
        };
        Claims {
            new_blocks,
            from_others,
            at_limit,
        }
    }

    /// Returns the reasons why the users of a pool do not get all free addresses: those of the pool, then those that
    /// leave addresses in new or other users' blocks (`claims`, `from_new_blocks`) out of reach.
    fn limits(&self, pool: &Pool, room: &Room, claims: &Claims, from_new_blocks: u128) -> Vec<PoolLimit> {
        let config = &self.config;
        let misses_foreign = room.foreign > claims.from_others;
        let misses_any = misses_foreign || room.unclaimed > from_new_blocks;

        let mut limits = Vec::new();
        if pool.is_smaller_than_block() {
            limits.push(PoolLimit::SmallerThanBlock);
        }
        if pool.has_impossible_blocks() {
            limits.push(PoolLimit::ImpossibleBlocks(pool.block_size));
        }
        if misses_any && !config.auto_allocate_blocks {
            limits.push(PoolLimit::AutoAllocationOff);
        }
        if misses_any && config.auto_allocate_blocks && claims.at_limit {
            limits.push(PoolLimit::BlockLimit);
        }
        if misses_foreign && !config.may_borrow() {
            limits.push(PoolLimit::StrictAffinity);
        }
        if room.other_size > 0 {
            limits.push(PoolLimit::BlockSize);
        }
        if room.hindered > 0 {
            limits.push(PoolLimit::Overlap);
        }
        let creates_blocks = claims.new_blocks > 0 || claims.from_others > 0 || room.pending_addresses > 0;
        if room.reserved_per_block > 0 && creates_blocks {
            limits.push(PoolLimit::ReservedForWindows);
        }
        limits
    }
}

/// Returns the number of blocks that all users together may still claim.
fn total_claimable(users: &[PoolUser<'_>]) -> u128 {
    let mut total = 0;
    for user in users {
        // Without a limit, a node can claim any number of blocks.
        if user.claimable == u32::MAX {
            return u128::MAX;
        }
        total += u128::from(user.claimable);
    }
    total
}
