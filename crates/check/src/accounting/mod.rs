//! How much of pools and blocks is taken, by what, and how much of the rest nodes can still get. What
//! `show` prints, on top of the sums that the rules about pools use.

mod allocatable;
mod takers;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use calipam_model::block::Block;
use calipam_model::{IpNet, cidr};

pub use self::allocatable::{Allocatable, Limit};
pub(crate) use self::takers::Takers;
use crate::Context;
use crate::rules::blocks::Stored;
use crate::rules::capacity::Capacity;

/// What becomes of the addresses of a pool or block. The parts do not overlap: `total` is the sum of all
/// others (but for `::/0`, whose size is one more than fits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All addresses.
    pub total: u128,
    /// Allocated to somebody, also where a reservation covers the address.
    pub in_use: u128,
    /// Released, and not handed out again for a while (Calico 3.33 and later).
    pub cooling: u128,
    /// Ordinals that Windows nodes reserve in their blocks.
    pub windows_reserved: u128,
    /// Left alone by automatic assignment because of an IP reservation, and not taken.
    pub reserved: u128,
    /// In a block that is corrupt or does not decode: nobody knows whether they are taken.
    pub unknown: u128,
    /// All others.
    pub free: u128,
}

/// Why an address is not free. In the order in which one counts where overlapping blocks disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    InUse,
    WindowsReserved,
    Cooling,
}

/// Sums over the blocks of a snapshot.
pub struct Accounting<'c, 's> {
    pub(crate) context: &'c Context<'s>,
    pub(crate) capacity: Capacity<'c, 's>,
    pub(crate) takers: Takers<'s>,
}

impl<'c, 's> Accounting<'c, 's> {
    /// Gathers blocks, reservations, and the nodes with what they hold.
    pub fn new(context: &'c Context<'s>) -> Self {
        Self { context, capacity: Capacity::new(context), takers: Takers::new(context) }
    }

    /// The addresses of a pool or of any other CIDR. An address that overlapping blocks both hold counts
    /// once.
    pub fn tally(&self, region: IpNet) -> Tally {
        let around = self.capacity.around(region);
        let mut blocks: Vec<&Stored<'_, '_>> =
            around.into_iter().chain(self.capacity.inside(region)).collect();
        blocks.dedup_by_key(|stored| stored.key);
        let mut sum = Sum::default();
        let mut blocks = blocks.as_slice();
        while let Some(first) = blocks.first() {
            // Blocks are sorted, so that whatever overlaps the first one follows it directly.
            let len = blocks.iter().take_while(|b| first.key.contains(&b.key)).count();
            let (run, rest) = blocks.split_at(len);
            self.add_run(&mut sum, run, region);
            blocks = rest;
        }
        self.close(sum, region)
    }

    /// The addresses of one block, whatever overlaps it.
    fn tally_of_block(&self, stored: &Stored<'_, '_>) -> Tally {
        if stored.block.is_none_or(|b| b.sound.is_none()) {
            let size = cidr::size(stored.key);
            return Tally { total: size, unknown: size, ..Tally::default() };
        }
        let mut sum = Sum::default();
        self.add_run(&mut sum, &[stored], stored.key);
        let reserved = self.capacity.reserved.size_within(stored.key);
        sum.tally(stored.key, 0, reserved)
    }

    /// Number of blocks in a pool, those that are corrupt or do not decode included.
    pub fn blocks_in(&self, pool: IpNet) -> usize {
        self.capacity.inside(pool).len()
    }

    /// The blocks that no pool contains, ascending, with what becomes of their addresses.
    pub fn blocks_outside_pools(&self) -> impl Iterator<Item = (IpNet, Tally)> + '_ {
        let is_outside = |s: &&Stored<'_, '_>| self.context.index.pools_around(s.key).next().is_none();
        let outside = self.capacity.stored.iter().filter(is_outside);
        outside.map(|stored| (stored.key, self.tally_of_block(stored)))
    }

    /// Adds what a run of overlapping blocks holds of a region.
    fn add_run(&self, sum: &mut Sum, run: &[&Stored<'_, '_>], region: IpNet) {
        let sound = run.iter().filter_map(|s| s.block?.sound);
        if let [only] = run
            && region.contains(&only.key)
            && self.capacity.reserved.within(only.key).next().is_none()
        {
            sound.for_each(|block| sum.add_block(block));
            return;
        }
        let mut taken: Vec<(IpAddr, Taken)> = sound
            .flat_map(|block| block.allocations().map(|a| (a.address, taken_by(&a.attribute))))
            .filter(|(address, _)| region.contains(address))
            .collect();
        taken.sort_unstable();
        taken.dedup_by_key(|(address, _)| *address);
        for (address, how) in taken {
            sum.add(how, 1);
            if run.len() > 1 && self.capacity.unknown.contains(address) {
                sum.of_unknown += 1;
            } else if self.capacity.reserved.contains(address) {
                sum.of_reserved += 1;
            }
        }
    }

    fn close(&self, sum: Sum, region: IpNet) -> Tally {
        let unknown = &self.capacity.unknown;
        let reserved = self.capacity.reserved.within(region);
        let reserved = reserved.map(|r| cidr::size(r).saturating_sub(unknown.size_within(r)));
        sum.tally(region, unknown.size_within(region), reserved.fold(0, u128::saturating_add))
    }
}

fn taken_by(record: &calipam_model::attributes::AttributeRef<'_>) -> Taken {
    if record.is_cooling() {
        Taken::Cooling
    } else if record.is_windows_reserved() {
        Taken::WindowsReserved
    } else {
        Taken::InUse
    }
}

/// Addresses that are taken.
#[derive(Default)]
struct Sum {
    in_use: u128,
    cooling: u128,
    windows_reserved: u128,
    /// How many of all these lie in blocks that nobody knows about as well.
    of_unknown: u128,
    /// How many lie in reservations.
    of_reserved: u128,
}

impl Sum {
    fn add(&mut self, how: Taken, count: u128) {
        match how {
            Taken::InUse => self.in_use += count,
            Taken::Cooling => self.cooling += count,
            Taken::WindowsReserved => self.windows_reserved += count,
        }
    }

    fn add_block(&mut self, block: &Block) {
        if block.attributes().all(|record| taken_by(&record) == Taken::InUse) {
            self.in_use += u128::from(block.allocated());
            return;
        }
        for allocation in block.allocations() {
            self.add(taken_by(&allocation.attribute), 1);
        }
    }

    /// `unknown` and `reserved` are numbers of addresses that do not overlap, taken ones included.
    fn tally(self, region: IpNet, unknown: u128, reserved: u128) -> Tally {
        let total = cidr::size(region);
        let unknown = unknown.saturating_sub(self.of_unknown);
        let reserved = reserved.saturating_sub(self.of_reserved);
        let others = [self.in_use, self.cooling, self.windows_reserved, unknown, reserved];
        let free = others.into_iter().fold(total, u128::saturating_sub);
        Tally {
            total,
            in_use: self.in_use,
            cooling: self.cooling,
            windows_reserved: self.windows_reserved,
            reserved,
            unknown,
            free,
        }
    }
}
