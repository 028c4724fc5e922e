//! How full pools and blocks are, what takes their addresses, and who can still get one. Rules and `show` ask here.

mod allocatable;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::{IpNet, cidr};
use jiff::Timestamp;

pub use self::allocatable::{Allocatable, Limit};
use crate::Context;
use crate::cidr_set::CidrSet;
use crate::index::Stored;

/// What becomes of the addresses of a pool or block. The parts up to `free` do not overlap: `total` is their sum
/// (but for `::/0`, whose size is one more than fits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All addresses.
    pub total: u128,
    /// Allocated to an owner, also if a reservation covers the address.
    pub in_use: u128,
    /// Released, and not handed out again for a while (Calico 3.33 and later).
    pub cooling: u128,
    /// Ordinals that Windows nodes reserve in their blocks.
    pub windows_reserved: u128,
    /// Left alone by automatic assignment because of an IP reservation, and not taken.
    pub reserved: u128,
    /// In a block that is corrupt or cannot be decoded: it is unknown whether they are taken.
    pub unknown: u128,
    /// All others.
    pub free: u128,
    /// All addresses but those of IP reservations, taken or not.
    pub usable: u128,
    /// Of the usable ones: in use, cooling, or reserved by Windows.
    pub usable_taken: u128,
}

impl Tally {
    /// The share of usable addresses that is taken, in percent; `None` if none is usable.
    pub fn percent(&self) -> Option<f64> {
        (self.usable > 0).then(|| self.usable_taken as f64 * 100.0 / self.usable as f64)
    }

    /// The same in whole percent.
    pub fn whole_percent(&self) -> Option<u8> {
        whole_percent(self.usable_taken, self.usable)
    }
}

/// A share in whole percent, rounded down, so that 100 means all; `None` of nothing.
pub fn whole_percent(part: u128, whole: u128) -> Option<u8> {
    if whole == 0 {
        return None;
    }
    // Parts of large IPv6 pools would overflow when multiplied first.
    let percent = part.checked_mul(100).map_or_else(|| part / (whole / 100), |hundred| hundred / whole);
    Some(u8::try_from(percent).unwrap_or(u8::MAX))
}

/// Why an address is not free. In the order in which one counts where overlapping blocks disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    InUse,
    WindowsReserved,
    Cooling,
}

/// Whether sums tell apart what takes an address.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Detail {
    #[default]
    ByKind,
    /// All that is taken counts as in use. Quicker: the records of most blocks are not looked at.
    Total,
}

/// Sums over the blocks of a snapshot.
pub struct Occupancy<'c, 's> {
    context: &'c Context<'s>,
    /// All stored blocks, ascending by CIDR.
    pub(crate) stored: Vec<Stored<'c, 's>>,
    /// Addresses of IP reservations.
    reserved: CidrSet,
    /// Addresses of blocks that are corrupt or cannot be decoded.
    unknown: CidrSet,
}

impl<'c, 's> Occupancy<'c, 's> {
    /// Gathers blocks and reservations.
    pub fn new(context: &'c Context<'s>) -> Self {
        let stored = context.index.stored();
        let reserved = context.snapshot.reservations.iter().flat_map(|r| r.value.cidrs.iter().copied());
        let unknown = stored.iter().filter(|s| s.block.is_none_or(|b| b.sound.is_none())).map(|s| s.key);
        Self { context, unknown: CidrSet::new(unknown), reserved: CidrSet::new(reserved), stored }
    }

    /// The clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.context.snapshot.taken_at
    }

    /// The addresses of a pool or of any other CIDR. An address that overlapping blocks both hold counts
    /// once.
    pub fn tally(&self, region: IpNet) -> Tally {
        self.sum(region, Detail::ByKind)
    }

    /// As [`Self::tally`], but for cooling and Windows-reserved addresses, which count as in use.
    pub(crate) fn total_tally(&self, region: IpNet) -> Tally {
        self.sum(region, Detail::Total)
    }

    fn sum(&self, region: IpNet, detail: Detail) -> Tally {
        let around = self.around(region);
        let mut blocks: Vec<&Stored<'_, '_>> = around.into_iter().chain(self.inside(region)).collect();
        blocks.dedup_by_key(|stored| stored.key);

        let mut sum = Sum::new(detail);
        let mut blocks = blocks.as_slice();
        while let Some(first) = blocks.first() {
            // Blocks are sorted, so that those that overlap the first one follow it directly.
            let len = blocks.iter().take_while(|b| first.key.contains(&b.key)).count();
            let (run, rest) = blocks.split_at(len);
            self.add_run(&mut sum, run, region);
            blocks = rest;
        }

        let reserved = self.reserved.within(region);
        let known = reserved.map(|r| cidr::size(r).saturating_sub(self.unknown.size_within(r)));
        let known = known.fold(0, u128::saturating_add);
        sum.tally(region, self.unknown.size_within(region), known, self.reserved.size_within(region))
    }

    /// Blocks that are in the pool as a whole.
    pub(crate) fn inside(&self, pool: IpNet) -> &[Stored<'c, 's>] {
        let from = self.stored.partition_point(|s| s.key < pool);
        let len = self.stored[from..].partition_point(|s| pool.contains(&s.key));
        &self.stored[from..from + len]
    }

    /// Blocks that are larger than the pool and hold all of it.
    pub(crate) fn around(&self, pool: IpNet) -> Vec<&Stored<'c, 's>> {
        let outer = std::iter::successors(pool.supernet(), IpNet::supernet);
        let position = |cidr: IpNet| self.stored.binary_search_by_key(&cidr, |s| s.key).ok();
        let mut found: Vec<_> = outer.filter_map(position).map(|position| &self.stored[position]).collect();
        found.reverse();
        found
    }

    /// The addresses of one block, as if nothing overlapped it.
    pub(crate) fn block(&self, stored: &Stored<'_, '_>) -> Tally {
        if stored.block.is_none_or(|b| b.sound.is_none()) {
            let size = cidr::size(stored.key);
            return Tally { total: size, unknown: size, ..Tally::default() };
        }
        let mut sum = Sum::new(Detail::ByKind);
        self.add_run(&mut sum, &[stored], stored.key);
        let reserved = self.reserved.size_within(stored.key);
        sum.tally(stored.key, 0, reserved, reserved)
    }

    /// Number of blocks in a pool, those that are corrupt or cannot be decoded included.
    pub fn blocks_in(&self, pool: IpNet) -> usize {
        self.inside(pool).len()
    }

    /// The blocks that no pool contains, ascending, with what becomes of their addresses.
    pub fn blocks_outside_pools(&self) -> impl Iterator<Item = (IpNet, Tally)> + '_ {
        let is_outside = |s: &&Stored<'_, '_>| self.context.index.pools_around(s.key).next().is_none();
        let outside = self.stored.iter().filter(is_outside);
        outside.map(|stored| (stored.key, self.block(stored)))
    }

    /// Adds what a run of overlapping blocks holds of a region.
    fn add_run(&self, sum: &mut Sum, run: &[&Stored<'_, '_>], region: IpNet) {
        let sound = run.iter().filter_map(|s| s.block?.current());
        if let [only] = run
            && region.contains(&only.key)
            && self.reserved.within(only.key).next().is_none()
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
            let is_reserved = self.reserved.contains(address);
            sum.add(how, 1);
            sum.reserved += u128::from(is_reserved);
            if run.len() > 1 && self.unknown.contains(address) {
                sum.of_unknown += 1;
            } else if is_reserved {
                sum.of_reserved += 1;
            }
        }
    }
}

fn taken_by(record: &AttributeRef<'_>) -> Taken {
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
    detail: Detail,
    in_use: u128,
    cooling: u128,
    windows_reserved: u128,
    /// How many of all these are in reservations.
    reserved: u128,
    /// How many are in corrupt or undecodable blocks as well.
    of_unknown: u128,
    /// How many are in reservations, and in no such block.
    of_reserved: u128,
}

impl Sum {
    fn new(detail: Detail) -> Self {
        Self { detail, ..Self::default() }
    }

    fn add(&mut self, how: Taken, count: u128) {
        match how {
            Taken::InUse => self.in_use += count,
            Taken::Cooling => self.cooling += count,
            Taken::WindowsReserved => self.windows_reserved += count,
        }
    }

    fn add_block(&mut self, block: &Block) {
        let undivided = self.detail == Detail::Total
            || block.attributes().all(|record| taken_by(&record) == Taken::InUse);
        if undivided {
            self.in_use += u128::from(block.allocated());
            return;
        }
        for allocation in block.allocations() {
            self.add(taken_by(&allocation.attribute), 1);
        }
    }

    /// `unknown`, `known_reserved` (outside of unknown blocks) and `reserved` are numbers of addresses, taken ones
    /// included.
    fn tally(self, region: IpNet, unknown: u128, known_reserved: u128, reserved: u128) -> Tally {
        let total = cidr::size(region);
        let taken = self.in_use + self.cooling + self.windows_reserved;
        let unknown = unknown.saturating_sub(self.of_unknown);
        let untaken_reserved = known_reserved.saturating_sub(self.of_reserved);
        let free = [taken, unknown, untaken_reserved].into_iter().fold(total, u128::saturating_sub);
        Tally {
            total,
            in_use: self.in_use,
            cooling: self.cooling,
            windows_reserved: self.windows_reserved,
            reserved: untaken_reserved,
            unknown,
            free,
            usable: total.saturating_sub(reserved),
            usable_taken: taken - self.reserved,
        }
    }
}
