//! The occupancy of pools and blocks, for rules and `show`.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::cidr_set::{CidrSet, around, inside, runs};
use calipam_model::{IpNet, cidr};

use crate::Context;
use crate::index::Stored;
use crate::record::AddressState;

/// Address counts of a pool or block. The parts from `in_use` to `free` do not overlap, and `total` is their sum
/// (except for `::/0`, whose size does not fit into 128 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All addresses.
    pub total: u128,
    /// Allocated to an owner, even if a reservation covers the address.
    pub in_use: u128,
    /// Released, but not free yet (Calico 3.33 and later).
    pub cooling: u128,
    /// Ordinals that Windows nodes reserve in their blocks.
    pub windows_reserved: u128,
    /// Covered by IP reservations, and not taken.
    pub reserved: u128,
    /// In a block that is corrupt or cannot be decoded, so perhaps taken.
    pub unknown: u128,
    /// All other addresses.
    pub free: u128,
    /// All addresses except those in IP reservations.
    pub usable: u128,
    /// Usable addresses that are in use, cooling, or reserved by Windows nodes.
    pub usable_taken: u128,
}

impl Tally {
    /// Returns the share of usable addresses that is taken, in percent; `None` if none is usable.
    pub fn percent(&self) -> Option<f64> {
        if self.usable == 0 {
            return None;
        }
        Some(self.usable_taken as f64 * 100.0 / self.usable as f64)
    }

    /// Returns the share of usable addresses that is taken, in percent, rounded down.
    pub fn whole_percent(&self) -> Option<u8> {
        whole_percent(self.usable_taken, self.usable)
    }
}

/// Returns a share in percent, rounded down, so that 100 means all; `None` if `whole` is 0.
pub fn whole_percent(part: u128, whole: u128) -> Option<u8> {
    if whole == 0 {
        return None;
    }
    let percent = match part.checked_mul(100) {
        Some(hundredfold) => hundredfold / whole,
        // For a large IPv6 pool, multiplying first would overflow.
        None => part / (whole / 100),
    };
    Some(u8::try_from(percent).unwrap_or(u8::MAX))
}

/// The level of detail in sums.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Detail {
    #[default]
    ByKind,
    /// Taken addresses of every kind can count as in use. This is quicker, since most blocks are counted without
    /// reading their records.
    Total,
}

/// A snapshot's blocks and IP reservations, for counting addresses.
pub struct Occupancy<'c, 's> {
    /// All stored blocks, ascending by CIDR.
    pub(crate) stored: Vec<Stored<'c, 's>>,
    /// Addresses in IP reservations.
    reserved: CidrSet,
    /// Addresses in blocks that are corrupt or cannot be decoded.
    unknown: CidrSet,
}

impl<'c, 's> Occupancy<'c, 's> {
    /// Gathers blocks and reservations.
    pub fn new(context: &'c Context<'s>) -> Self {
        let stored = context.index.stored();
        let reserved = CidrSet::new(context.snapshot.reserved_cidrs());
        let unknown = stored
            .iter()
            .filter(|block| !is_sound(block))
            .map(|block| block.key);
        Self {
            unknown: CidrSet::new(unknown),
            reserved,
            stored,
        }
    }

    /// Counts the addresses in a pool or any other CIDR. An address in several overlapping blocks counts once.
    pub fn tally(&self, region: IpNet) -> Tally {
        self.tally_in_detail(region, Detail::ByKind)
    }

    /// Like [`Self::tally`], but faster. Cooling and Windows-reserved addresses can count as in use.
    pub(crate) fn total_tally(&self, region: IpNet) -> Tally {
        self.tally_in_detail(region, Detail::Total)
    }

    /// Counts the addresses of a region, in as much detail as asked for.
    fn tally_in_detail(&self, region: IpNet, detail: Detail) -> Tally {
        let mut blocks: Vec<&Stored<'_, '_>> = self.around(region);
        blocks.extend(self.inside(region));
        blocks.dedup_by_key(|stored| stored.key);

        let mut sum = Sum {
            detail,
            ..Sum::default()
        };
        for run in runs(&blocks, |stored| stored.key) {
            self.add_run(&mut sum, run, region);
        }

        // Addresses in undecodable blocks count as unknown, even if they are reserved.
        let mut only_reserved: u128 = 0;
        for reserved in self.reserved.within(region) {
            let unknown = self.unknown.size_within(reserved);
            let outside_unknown = cidr::size(reserved).saturating_sub(unknown);
            only_reserved = only_reserved.saturating_add(outside_unknown);
        }
        let size = Parts {
            unknown: self.unknown.size_within(region),
            reserved: self.reserved.size_within(region),
            only_reserved,
        };
        sum.tally(cidr::size(region), &size)
    }

    /// Returns the blocks that are entirely in the pool.
    pub(crate) fn inside(&self, pool: IpNet) -> &[Stored<'c, 's>] {
        &self.stored[inside(&self.stored, pool, |stored| stored.key)]
    }

    /// Returns the larger blocks that contain the pool, the largest first.
    pub(crate) fn around(&self, pool: IpNet) -> Vec<&Stored<'c, 's>> {
        let smallest_first = around(&self.stored, pool, |stored| stored.key);
        let mut blocks: Vec<_> = smallest_first.flat_map(|range| &self.stored[range]).collect();
        blocks.reverse();
        blocks
    }

    /// Counts the addresses in one block, as if nothing overlapped it. All addresses of a block that is not sound are
    /// unknown.
    pub(crate) fn block(&self, stored: &Stored<'_, '_>) -> Tally {
        if !is_sound(stored) {
            let size = cidr::size(stored.key);
            return Tally {
                total: size,
                unknown: size,
                ..Tally::default()
            };
        }
        let mut sum = Sum::default();
        self.add_run(&mut sum, &[stored], stored.key);
        let reserved = self.reserved.size_within(stored.key);
        let size = Parts {
            unknown: 0,
            reserved,
            only_reserved: reserved,
        };
        sum.tally(cidr::size(stored.key), &size)
    }

    /// Adds the taken addresses of a region that are in a run of overlapping blocks.
    fn add_run(&self, sum: &mut Sum, run: &[&Stored<'_, '_>], region: IpNet) {
        let sound = run.iter().filter_map(|stored| stored.block?.current());
        // Nearly all blocks are alone in their run, in the region, and without reservations: no address is looked at.
        if let [only] = run
            && region.contains(&only.key)
            && !self.reserved.touches(only.key)
        {
            for block in sound {
                sum.add_block(block);
            }
            return;
        }

        for (address, state) in taken_in(region, sound) {
            sum.add(state);
            let is_reserved = self.reserved.contains(address);
            // Only a block that overlaps the sound one can make its addresses unknown.
            let is_unknown = run.len() > 1 && self.unknown.contains(address);
            if is_unknown {
                sum.taken.unknown += 1;
            }
            if is_reserved {
                sum.taken.reserved += 1;
            }
            if is_reserved && !is_unknown {
                sum.taken.only_reserved += 1;
            }
        }
    }
}

/// True if a block can be decoded and is not corrupt.
fn is_sound(stored: &Stored<'_, '_>) -> bool {
    stored.block.is_some_and(|block| block.sound.is_some())
}

/// The numbers of addresses in parts of a region: of all addresses, or of the taken ones.
#[derive(Default)]
struct Parts {
    /// In corrupt and undecodable blocks.
    unknown: u128,
    /// In IP reservations.
    reserved: u128,
    /// In IP reservations, outside of corrupt and undecodable blocks.
    only_reserved: u128,
}

/// Sums of taken addresses.
#[derive(Default)]
struct Sum {
    detail: Detail,
    in_use: u128,
    cooling: u128,
    windows_reserved: u128,
    /// The taken addresses in each part. They are also in one of the sums above.
    taken: Parts,
}

/// Returns the addresses of a region that blocks record, ascending, each with its state. An address in several
/// overlapping blocks counts once.
fn taken_in<'b>(region: IpNet, blocks: impl Iterator<Item = &'b Block>) -> Vec<(IpAddr, AddressState)> {
    let mut taken: Vec<(IpAddr, AddressState)> = Vec::new();
    for block in blocks {
        for allocation in block.allocations() {
            if region.contains(&allocation.address) {
                taken.push((allocation.address, AddressState::of(&allocation.attribute)));
            }
        }
    }
    taken.sort_unstable();
    taken.dedup_by_key(|(address, _)| *address);
    taken
}

impl Sum {
    /// Adds an address that is taken.
    fn add(&mut self, state: AddressState) {
        match state {
            AddressState::Cooling => self.cooling += 1,
            AddressState::WindowsReserved => self.windows_reserved += 1,
            _ => self.in_use += 1,
        }
    }

    /// Adds all allocations of a block. They are looked at one by one only if their states matter.
    fn add_block(&mut self, block: &Block) {
        let is_in_use = |record: AttributeRef<'_>| AddressState::of(&record) == AddressState::Allocated;
        if self.detail == Detail::Total || block.attributes().all(is_in_use) {
            self.in_use += u128::from(block.allocated());
            return;
        }
        for allocation in block.allocations() {
            self.add(AddressState::of(&allocation.attribute));
        }
    }

    /// Returns the address counts of the region whose taken addresses were added. Each address counts as one thing
    /// only: as taken, else as unknown, else as reserved, else as free. `total` and `size` include the taken addresses.
    fn tally(self, total: u128, size: &Parts) -> Tally {
        let taken = self.in_use + self.cooling + self.windows_reserved;
        let unknown = size.unknown.saturating_sub(self.taken.unknown);
        let reserved = size.only_reserved.saturating_sub(self.taken.only_reserved);
        // Damaged records can claim more addresses than there are.
        let free = total
            .saturating_sub(taken)
            .saturating_sub(unknown)
            .saturating_sub(reserved);
        Tally {
            total,
            in_use: self.in_use,
            cooling: self.cooling,
            windows_reserved: self.windows_reserved,
            reserved,
            unknown,
            free,
            usable: total.saturating_sub(size.reserved),
            // Each taken address in a reservation is one of `taken`.
            usable_taken: taken - self.taken.reserved,
        }
    }
}
