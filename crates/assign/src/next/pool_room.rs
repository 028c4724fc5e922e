//! The free addresses of a pool, and the room for new blocks.

use std::collections::HashSet;

use calipam_model::affinity::AffinityType;
use calipam_model::block::{Block, BlockContent, WINDOWS_RESERVED};
use calipam_model::cidr_set::{CidrSet, around, inside, runs};
use calipam_model::pool::Pool;
use calipam_model::{IpNet, cidr};

use super::claims::{Holder, key_of_owner};
use super::{Outlook, reclaims_empty_blocks};

/// The free addresses of a pool, and the room for new blocks.
#[derive(Default)]
pub(super) struct Room {
    /// The number of the pool's free addresses in the blocks of its users.
    pub own: u128,
    /// The number of free addresses in all other blocks of the pool's block size. They can be borrowed.
    pub foreign: u128,
    /// The number of free addresses in blocks that do not belong to the pool's users and have a different size. Calico
    /// does not borrow them.
    pub other_size: u128,
    /// Existing blocks that a user can claim, each after the number of its free addresses, in descending order. These
    /// are empty blocks of other owners, and blocks for which the owner, itself a user, has no affinity.
    pub existing: Vec<(u128, IpNet)>,
    /// The addresses of all blocks, and of all reservations that are at least as large as a block. New blocks are
    /// created only outside of them.
    taken: CidrSet,
    /// The number of free addresses around smaller blocks: a new block would overlap them.
    pub hindered: u128,
    /// The number of places where a block can be created.
    pub places: u128,
    /// The number of addresses in these places that are not reserved.
    pub unclaimed: u128,
    /// The number of addresses that a user gets in one place.
    pub per_place: u128,
    /// The number of addresses that a user reserves in each block that it creates, if all users are Windows nodes;
    /// otherwise 0.
    pub reserved_per_block: u128,
    /// The number of places for which a user has an affinity. The user creates these blocks regardless of its block
    /// limit.
    pub pending_places: u128,
    /// The number of addresses in these places that are not reserved, and in blocks of other sizes for which a user has an
    /// affinity.
    pub pending_addresses: u128,
}

impl Room {
    /// True for a place of the pool where a block can be created.
    pub(super) fn is_place(&self, pool: &Pool, cidr: IpNet) -> bool {
        cidr.prefix_len() == pool.block_size && pool.cidr.contains(&cidr) && !self.taken.touches(cidr)
    }
}

/// A holder that uses a pool, and the number of blocks that it may still claim.
pub(super) struct PoolUser<'s> {
    pub holder: Holder<'s>,
    pub claimable: u32,
}

/// The blocks that the users of a pool have or can claim.
struct UsersOfPool<'s> {
    /// The blocks in the pool for which a user has an affinity.
    held: HashSet<IpNet>,
    /// The users that may still claim a block.
    claimants: HashSet<(&'static AffinityType, &'s str)>,
    /// True if users take empty blocks from other owners.
    reclaim: bool,
}

impl Outlook<'_> {
    /// Returns the free addresses of a pool, and the room for new blocks.
    pub(super) fn room(&self, pool: &Pool, users: &[PoolUser<'_>]) -> Room {
        let all_run_windows = !users.is_empty() && users.iter().all(|user| user.holder.is_windows());
        let users = self.users_of_pool(pool, users);
        let blocks = self.indexed.blocks.as_slice();
        let larger_blocks = around(blocks, pool.cidr, |(cidr, _)| *cidr).flat_map(|range| &blocks[range]);
        let blocks_in_pool = &blocks[inside(blocks, pool.cidr, |(cidr, _)| *cidr)];

        let mut room = Room::default();
        if all_run_windows && cidr::is_v4(pool.cidr) {
            room.reserved_per_block = WINDOWS_RESERVED.into();
        }
        let mut blocks_around = Vec::new();
        let mut other_sizes = Vec::new();
        for (cidr, stored) in larger_blocks.chain(blocks_in_pool) {
            let content = stored.map(|stored| &stored.value.content);
            if content.is_some_and(BlockContent::is_deleted) {
                continue;
            }
            blocks_around.push(*cidr);
            if cidr.prefix_len() != pool.block_size {
                other_sizes.push(*cidr);
            }
            if let Some(block) = content.and_then(BlockContent::sound)
                && (pool.cidr.contains(cidr) || users.held.contains(cidr))
            {
                self.add_block(&mut room, pool, *cidr, block, &users);
            }
        }

        // A block that overlaps one of another size is never claimed.
        let in_the_way = CidrSet::new(other_sizes);
        room.existing.retain(|(_, cidr)| !in_the_way.touches(*cidr));
        room.existing.sort_unstable_by(|a, b| b.cmp(a));

        self.add_places(&mut room, pool, &blocks_around);
        self.add_pending(&mut room, pool, users.held, blocks_around);
        room
    }

    /// Collects the blocks in a pool for which users have affinities, and the users that can claim more.
    fn users_of_pool<'u>(&self, pool: &Pool, users: &[PoolUser<'u>]) -> UsersOfPool<'u> {
        let mut held = HashSet::new();
        let mut claimants = HashSet::new();
        for user in users {
            // Like Calico, finds the pool of a block by its first address. A larger block remains if a pool has shrunk.
            let in_pool = |cidr: &IpNet| pool.cidr.contains(&cidr.network());
            held.extend(self.held(user.holder).filter(in_pool));
            if user.claimable > 0 {
                claimants.insert(user.holder.key());
            }
        }
        UsersOfPool {
            held,
            claimants,
            reclaim: reclaims_empty_blocks(self.indexed.snapshot),
        }
    }

    /// Adds the free addresses of an existing block that are in the pool.
    fn add_block(&self, room: &mut Room, pool: &Pool, cidr: IpNet, block: &Block, users: &UsersOfPool<'_>) {
        let block = block.without_cooled(self.indexed.snapshot.taken_at, self.config.cooldown());
        let is_out = |address| !pool.cidr.contains(&address) || self.reserved.contains(address);
        let free = block.assignable(is_out).count() as u128;

        if users.held.contains(&cidr) {
            room.own += free;
        } else if cidr.prefix_len() != pool.block_size {
            room.other_size += free;
        } else {
            room.foreign += free;
            if free > 0 && self.can_be_claimed(cidr, &block, users) {
                // An empty block is deleted and created again.
                let reserved = if block.is_empty() {
                    room.reserved_per_block
                } else {
                    0
                };
                room.existing.push((free.saturating_sub(reserved), cidr));
            }
        }
    }

    /// True if a user can claim an existing block for which it has no affinity.
    fn can_be_claimed(&self, cidr: IpNet, block: &Block, users: &UsersOfPool<'_>) -> bool {
        let Some(owner) = block.owner().and_then(key_of_owner) else {
            return false;
        };
        if self.lacks_affinity(owner, cidr) {
            users.claimants.contains(&owner)
        } else {
            users.reclaim && block.is_empty()
        }
    }

    /// Adds the places for new blocks: those that overlap no block in `blocks`, and that no reservation covers.
    fn add_places(&self, room: &mut Room, pool: &Pool, blocks: &[IpNet]) {
        if pool.is_smaller_than_block() {
            return;
        }
        let Some(first_place) = cidr::block_around(pool.cidr.addr(), pool.block_size) else {
            return;
        };
        let size = cidr::size(first_place);
        room.per_place = size.saturating_sub(room.reserved_per_block);

        let reservations = || self.reserved.within(pool.cidr);
        let place_around = |block: &IpNet| {
            let prefix_len = pool.block_size.min(block.prefix_len());
            cidr::block_around(block.addr(), prefix_len)
        };
        let mut taken: Vec<IpNet> = blocks.iter().filter_map(place_around).collect();
        taken.extend(reservations().filter(|cidr| cidr.prefix_len() <= pool.block_size));
        room.taken = CidrSet::new(taken);

        let outside_taken = |cidr: IpNet| cidr::size(cidr).saturating_sub(room.taken.size_within(cidr));
        let all = outside_taken(pool.cidr);
        let reserved = reservations().map(outside_taken).fold(0, u128::saturating_add);
        room.places = all / size;
        let reserved = reserved.saturating_add(room.places.saturating_mul(room.reserved_per_block));
        room.unclaimed = all.saturating_sub(reserved);

        if blocks.iter().any(|block| block.prefix_len() > pool.block_size) {
            let covered = CidrSet::new(blocks.iter().copied().chain(reservations()));
            let uncovered = |cidr: IpNet| cidr::size(cidr).saturating_sub(covered.size_within(cidr));
            let in_pool = room.taken.within(pool.cidr);
            room.hindered = in_pool.map(uncovered).fold(0, u128::saturating_add);
        }
    }

    /// Adds the free addresses of the blocks in `held` that do not exist yet: users have affinities for them, and
    /// create them. Leaves out those that would overlap existing blocks, since their addresses could be assigned twice.
    fn add_pending(&self, room: &mut Room, pool: &Pool, held: HashSet<IpNet>, existing_blocks: Vec<IpNet>) {
        if held.is_empty() {
            return;
        }
        let existing = CidrSet::new(existing_blocks);
        let mut pending: Vec<IpNet> = held.into_iter().collect();
        pending.retain(|cidr| !existing.touches(*cidr) && !self.reserved.covers(*cidr));
        pending.sort_unstable();

        // Of pending blocks that overlap each other, the largest contains all addresses.
        for run in runs(&pending, |cidr| *cidr) {
            let largest = run[0];
            let in_pool = if pool.cidr.contains(&largest) {
                largest
            } else {
                pool.cidr
            };
            let free = cidr::size(in_pool)
                .saturating_sub(self.reserved.size_within(in_pool))
                .saturating_sub(room.reserved_per_block);
            if room.taken.touches(largest) {
                // Beside a block of another size, there is no place for a block of the pool's size. Here, the addresses
                // count as those of a block that exists.
                room.own = room.own.saturating_add(free);
            } else {
                room.pending_addresses = room.pending_addresses.saturating_add(free);
            }
        }
        let places = pending.iter().filter(|cidr| room.is_place(pool, **cidr));
        room.pending_places = places.count() as u128;
    }
}
