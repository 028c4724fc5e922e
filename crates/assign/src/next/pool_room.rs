//! The free addresses of a pool, and the room for new blocks.

use std::collections::HashSet;

use calipam_model::affinity::AffinityType;
use calipam_model::block::{Block, BlockContent, WINDOWS_RESERVED};
use calipam_model::cidr_set::{CidrSet, around, inside};
use calipam_model::pool::Pool;
use calipam_model::{IpNet, cidr};

use super::claims::{Holder, key_of_owner};
use super::{Outlook, reclaims_empty_blocks};
use crate::auto::assignable;

/// The free addresses of a pool, and the room for new blocks.
#[derive(Default)]
pub(super) struct Room {
    /// The number of free addresses in the blocks of the pool's users.
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
    /// The number of places where a block can be created.
    pub places: u128,
    /// The number of addresses in these places that are not reserved.
    pub unclaimed: u128,
    /// The number of addresses that a user gets in one place.
    pub per_place: u128,
    /// The number of addresses that a user reserves in each block that it creates, if all users are Windows nodes;
    /// otherwise 0.
    reserved_per_block: u128,
    /// The number of places for which a user has an affinity. The user creates these blocks regardless of its block
    /// limit.
    pub pending_places: u128,
    /// The number of addresses in these places that are not reserved.
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
        let mut taken = Vec::new();
        let mut other_sizes = Vec::new();
        for (cidr, stored) in larger_blocks.chain(blocks_in_pool) {
            let content = stored.map(|stored| &stored.value.content);
            if content.is_some_and(BlockContent::is_deleted) {
                continue;
            }
            let prefix_len = pool.block_size.min(cidr.prefix_len());
            taken.extend(cidr::block_around(cidr.addr(), prefix_len));
            if cidr.prefix_len() != pool.block_size {
                other_sizes.push(*cidr);
            }
            if let Some(block) = content.and_then(BlockContent::sound)
                && pool.cidr.contains(cidr)
            {
                self.add_block(&mut room, pool, *cidr, block, &users);
            }
        }

        // A block that overlaps one of another size is never claimed.
        let in_the_way = CidrSet::new(other_sizes);
        room.existing.retain(|(_, cidr)| !in_the_way.touches(*cidr));
        room.existing.sort_unstable_by(|a, b| b.cmp(a));

        self.add_places(&mut room, pool, taken);
        self.add_pending_places(&mut room, pool, users.held);
        room
    }

    /// Collects the blocks in a pool for which users have affinities, and the users that can claim more.
    fn users_of_pool<'u>(&self, pool: &Pool, users: &[PoolUser<'u>]) -> UsersOfPool<'u> {
        let mut held = HashSet::new();
        let mut claimants = HashSet::new();
        for user in users {
            held.extend(self.held(user.holder).filter(|cidr| pool.cidr.contains(cidr)));
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

    /// Adds the free addresses of an existing block in the pool.
    fn add_block(&self, room: &mut Room, pool: &Pool, cidr: IpNet, block: &Block, users: &UsersOfPool<'_>) {
        let block = block.without_cooled(self.indexed.snapshot.taken_at, self.config.cooldown());
        let free = u128::from(assignable(&block, &self.reserved));

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

    /// Adds the places for new blocks: those that overlap no block in `taken`, and that no reservation covers.
    fn add_places(&self, room: &mut Room, pool: &Pool, mut taken: Vec<IpNet>) {
        if pool.is_smaller_than_block() {
            return;
        }
        let Some(first_place) = cidr::block_around(pool.cidr.addr(), pool.block_size) else {
            return;
        };
        let size = cidr::size(first_place);
        room.per_place = size.saturating_sub(room.reserved_per_block);

        let reservations = || self.reserved.within(pool.cidr);
        taken.extend(reservations().filter(|cidr| cidr.prefix_len() <= pool.block_size));
        room.taken = CidrSet::new(taken);

        let outside_taken = |cidr: IpNet| cidr::size(cidr).saturating_sub(room.taken.size_within(cidr));
        let all = outside_taken(pool.cidr);
        let reserved = reservations().map(outside_taken).fold(0, u128::saturating_add);
        room.places = all / size;
        let reserved = reserved.saturating_add(room.places.saturating_mul(room.reserved_per_block));
        room.unclaimed = all.saturating_sub(reserved);
    }

    /// Adds the places for which users have affinities (`held`), but where no block exists yet.
    fn add_pending_places(&self, room: &mut Room, pool: &Pool, held: HashSet<IpNet>) {
        // The pool is smaller than a block.
        if room.per_place == 0 {
            return;
        }
        for place in held {
            if room.is_place(pool, place) {
                let free = room.per_place.saturating_sub(self.reserved.size_within(place));
                room.pending_places += 1;
                room.pending_addresses = room.pending_addresses.saturating_add(free);
            }
        }
    }
}
