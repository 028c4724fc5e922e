//! The addresses that nodes can still get from a pool, and the reasons why they cannot get more (facts 3.4). A node
//! gets the free addresses in its own blocks and claims blocks up to its limit. If there is no place for a new block,
//! it takes over empty blocks of other owners (Calico 3.32 and later), and then borrows single addresses.

use std::collections::HashSet;

use calipam_model::block::BlockContent;
use calipam_model::cidr_set::{CidrSet, around, inside};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::{IpNet, cidr};

use super::claims::{Holder, key_of};
use super::{Outlook, reclaims_empty_blocks};
use crate::auto::assignable;
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

/// The free addresses of a pool, and the room for new blocks.
#[derive(Default)]
struct Room {
    /// The number of free addresses in the blocks of the pool's users.
    own: u128,
    /// The number of free addresses in all other blocks of the pool's block size. They can be borrowed.
    foreign: u128,
    /// The number of free addresses in blocks that do not belong to the pool's users and have a different size. Calico
    /// does not borrow them.
    other_size: u128,
    /// Existing blocks that a user can claim, each after the number of its free addresses, in descending order. These
    /// are empty blocks of other owners, and blocks for which the owner, itself a user, has no affinity.
    existing: Vec<(u128, IpNet)>,
    /// The addresses of all blocks, and of all reservations that are at least as large as a block. New blocks are
    /// created only outside of them.
    taken: CidrSet,
    /// The number of places where a block can be created.
    places: u128,
    /// The number of addresses in these places that are not reserved.
    unclaimed: u128,
    /// The number of addresses in one place.
    per_place: u128,
    /// The number of places for which a user has an affinity. The user creates these blocks regardless of its block
    /// limit.
    pending_places: u128,
    /// The number of addresses in these places that are not reserved.
    pending_addresses: u128,
}

impl Room {
    /// True for a place of the pool where a block can be created.
    fn is_place(&self, pool: &Pool, cidr: IpNet) -> bool {
        cidr.prefix_len() == pool.block_size && pool.cidr.contains(&cidr) && !self.taken.touches(cidr)
    }
}

impl<'s> Outlook<'s> {
    /// Returns the addresses that can still be allocated from a pool in which `free` addresses are free.
    pub fn allocatable(&self, pool: &Pool, free: u128) -> Allocatable {
        if let Some(why) = PoolPassedOver::of_state(pool) {
            return Allocatable::none(PoolLimit::PassedOver(why));
        }
        let uses = [PoolUse::Workload, PoolUse::LoadBalancer, PoolUse::Tunnel];
        let Some(wanted) = uses.into_iter().find(|wanted| pool.allows(*wanted)) else {
            return Allocatable::none(PoolLimit::NoUse);
        };
        if pool.automatic && self.open[Family::of(pool.cidr) as usize].is_none() {
            return Allocatable::unknown(PoolLimit::BrokenSelector);
        }
        let mut users = self.holders(wanted);
        let is_served = users.iter().any(|user| self.serves(pool, *user));
        let by_name = match (pool.automatic, is_served) {
            (false, _) => Some(PoolLimit::Manual),
            (true, false) if wanted == PoolUse::LoadBalancer || users.is_empty() => {
                return Allocatable::none(PoolLimit::NoNode);
            }
            (true, false) => Some(PoolLimit::NoNode),
            (true, true) => None,
        };
        if by_name.is_none() {
            users.retain(|user| self.serves(pool, *user));
        }

        let claimable = |user: Holder<'s>| (user, self.claimable_by(user, pool, wanted));
        let users: Vec<(Holder<'_>, u32)> = users.into_iter().map(claimable).collect();
        let room = self.room(pool, &users);
        // Without a limit, a node can claim any number of blocks.
        let claimable = users.iter().map(|(_, most)| {
            if *most == u32::MAX {
                u128::MAX
            } else {
                (*most).into()
            }
        });
        let claimable = claimable.fold(0, u128::saturating_add);
        let (addresses, limits) = self.distribute(pool, &room, claimable, free);
        match by_name {
            None => Allocatable {
                addresses: Some(addresses),
                by_name: None,
                limits,
            },
            Some(limit) => {
                let limits = [limit].into_iter().chain(limits).collect();
                Allocatable {
                    addresses: Some(0),
                    by_name: Some(addresses),
                    limits,
                }
            }
        }
    }

    /// Returns the number of blocks that each node may still claim from a pool. For a manual pool, these are the claims
    /// for requests that name the pool. Nodes that the pool does not serve are left out.
    pub fn claimable(&self, pool: &Pool) -> Vec<(&'s str, u32)> {
        let wanted = [PoolUse::Workload, PoolUse::Tunnel]
            .into_iter()
            .find(|wanted| pool.allows(*wanted));
        let Some(wanted) = wanted.filter(|_| pool.is_enabled() && self.config.auto_allocate_blocks) else {
            return Vec::new();
        };
        // A node can claim new blocks and other owners' empty blocks, but no block for which it already has an
        // affinity.
        let room = self.room(pool, &[]);
        let empty: HashSet<IpNet> = room.existing.iter().map(|(_, cidr)| *cidr).collect();
        let left = |holder| {
            let needs_no_claim = |cidr: &IpNet| empty.contains(cidr) || room.is_place(pool, *cidr);
            let own = self.held(holder).filter(needs_no_claim).count();
            let left = (room.places + empty.len() as u128).saturating_sub(own as u128);
            u32::try_from(left).unwrap_or(u32::MAX)
        };
        let served = self.holders(wanted).into_iter();
        let served = served.filter(|holder| !pool.automatic || self.serves(pool, *holder));
        served
            .map(|holder| {
                (
                    holder.name(),
                    self.claimable_by(holder, pool, wanted).min(left(holder)),
                )
            })
            .collect()
    }

    /// Returns the free addresses of a pool, and the room for new blocks. `users` are the holders that use the pool,
    /// each with the number of blocks that it may claim.
    fn room(&self, pool: &Pool, users: &[(Holder<'_>, u32)]) -> Room {
        let snapshot = self.indexed.snapshot;
        let held = users
            .iter()
            .flat_map(|(user, _)| self.held(*user))
            .filter(|cidr| pool.cidr.contains(cidr));
        let held: HashSet<IpNet> = held.collect();
        let may_claim = users
            .iter()
            .filter(|(_, claimable)| *claimable > 0)
            .map(|(user, _)| user.key());
        let may_claim: HashSet<_> = may_claim.collect();
        let reclaims = reclaims_empty_blocks(snapshot);
        let blocks = self.indexed.blocks.as_slice();
        let around = around(blocks, pool.cidr, |(cidr, _)| *cidr).flat_map(|range| &blocks[range]);
        let (mut room, mut taken, mut other_sizes) = (Room::default(), Vec::new(), Vec::new());
        for (cidr, stored) in around.chain(&blocks[inside(blocks, pool.cidr, |(cidr, _)| *cidr)]) {
            let content = stored.map(|stored| &stored.value.content);
            if content.is_some_and(BlockContent::is_deleted) {
                continue;
            }
            let has_size = cidr.prefix_len() == pool.block_size;
            taken.extend(cidr::block_around(
                cidr.addr(),
                pool.block_size.min(cidr.prefix_len()),
            ));
            other_sizes.extend((!has_size).then_some(*cidr));
            let Some(block) = content
                .and_then(BlockContent::sound)
                .filter(|_| pool.cidr.contains(cidr))
            else {
                continue;
            };
            let block = block.without_cooled(snapshot.taken_at, self.config.cooldown());
            let free = u128::from(assignable(&block, &self.reserved));
            if held.contains(cidr) {
                room.own += free;
            } else if has_size {
                room.foreign += free;
                let can_be_claimed = match block.owner().and_then(key_of) {
                    Some(owner) if self.lacks_affinity(owner, *cidr) => may_claim.contains(&owner),
                    owner => owner.is_some() && reclaims && block.is_empty(),
                };
                if can_be_claimed && free > 0 {
                    room.existing.push((free, *cidr));
                }
            } else {
                room.other_size += free;
            }
        }
        // A block that overlaps one of another size is never claimed.
        let other_sizes = CidrSet::new(other_sizes);
        room.existing.retain(|(_, cidr)| !other_sizes.touches(*cidr));
        room.existing.sort_unstable_by(|a, b| b.cmp(a));
        self.add_places(&mut room, pool, taken, held);
        room
    }

    /// Adds to `room` the places for new blocks: those that overlap no block in `taken`, and that no reservation
    /// covers.
    fn add_places(&self, room: &mut Room, pool: &Pool, mut taken: Vec<IpNet>, held: HashSet<IpNet>) {
        let place = cidr::block_around(pool.cidr.addr(), pool.block_size);
        let Some(place) = place.filter(|_| !pool.is_smaller_than_block()) else {
            return;
        };
        let reserved = || self.reserved.within(pool.cidr);
        taken.extend(reserved().filter(|cidr| cidr.prefix_len() <= pool.block_size));
        room.taken = CidrSet::new(taken);
        let vacant = |cidr: IpNet| cidr::size(cidr).saturating_sub(room.taken.size_within(cidr));
        room.per_place = cidr::size(place);
        let (all, reserved) = (
            vacant(pool.cidr),
            reserved().map(vacant).fold(0, u128::saturating_add),
        );
        room.places = all / room.per_place;
        room.unclaimed = all.saturating_sub(reserved);
        for place in held {
            if !room.is_place(pool, place) {
                continue;
            }
            room.pending_places += 1;
            let free = room.per_place.saturating_sub(self.reserved.size_within(place));
            room.pending_addresses = room.pending_addresses.saturating_add(free);
        }
    }

    /// Returns the number of addresses that the users of a pool get if they may claim `claimable` blocks, and the
    /// reasons why they do not get all free addresses.
    fn distribute(&self, pool: &Pool, room: &Room, claimable: u128, free: u128) -> (u128, Vec<PoolLimit>) {
        let config = &self.config;
        let (claims, from_others, at_limit) = match ClaimDecision::of(config, claimable) {
            ClaimDecision::BlockLimit => (0, 0, true),
            ClaimDecision::NoAutoAllocation => (0, 0, false),
            ClaimDecision::Claim => {
                let claims = claimable.min(room.places.saturating_sub(room.pending_places));
                let left = claimable - claims;
                let existing = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(room.existing.len());
                let at_limit = left == existing as u128;
                let is_borrowed = !at_limit && config.may_borrow();
                let from_existing = room.existing[..existing].iter().map(|(free, _)| free).sum();
                (
                    claims,
                    if is_borrowed { room.foreign } else { from_existing },
                    at_limit,
                )
            }
        };
        let from_claims = claims
            .saturating_mul(room.per_place)
            .min(room.unclaimed.saturating_sub(room.pending_addresses));
        let from_claims = room.pending_addresses.saturating_add(from_claims);
        let addresses = room
            .own
            .saturating_add(from_claims)
            .saturating_add(from_others)
            .min(free);
        let missed = room.foreign > from_others;
        let is_left = missed || room.unclaimed > from_claims;
        let limits = [
            (PoolLimit::SmallerThanBlock, pool.is_smaller_than_block()),
            (
                PoolLimit::ImpossibleBlocks(pool.block_size),
                pool.has_impossible_blocks(),
            ),
            (
                PoolLimit::AutoAllocationOff,
                !config.auto_allocate_blocks && is_left,
            ),
            (
                PoolLimit::BlockLimit,
                config.auto_allocate_blocks && at_limit && is_left,
            ),
            (PoolLimit::StrictAffinity, !config.may_borrow() && missed),
            (PoolLimit::BlockSize, room.other_size > 0),
        ];
        let limits = limits
            .into_iter()
            .filter(|(_, applies)| *applies && addresses < free);
        (addresses, limits.map(|(limit, _)| limit).collect())
    }
}
