//! How much of a pool is taken.

use std::net::IpAddr;

use calipam_model::block::Block;
use calipam_model::pool::Pool;
use calipam_model::{IpNet, cidr};

use super::blocks::Stored;
use super::cidr_set::CidrSet;
use crate::Context;

/// Addresses of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All but those of IP reservations.
    pub usable: u128,
    /// Of these: allocated, cooling, or reserved by Windows.
    pub in_use: u128,
    /// Addresses of blocks that are corrupt or do not decode: nobody knows whether they are taken.
    pub unknown: u128,
}

impl Usage {
    /// Addresses that are known to be free.
    pub(crate) fn free(&self) -> u128 {
        self.usable.saturating_sub(self.in_use).saturating_sub(self.unknown)
    }

    /// The share of usable addresses that is taken, in percent; `None` where none is usable.
    pub(crate) fn percent(&self) -> Option<f64> {
        (self.usable > 0).then(|| self.in_use as f64 * 100.0 / self.usable as f64)
    }
}

/// What the sums need to know.
pub(crate) struct Capacity<'c, 's> {
    /// All stored blocks, ascending by CIDR.
    pub stored: Vec<Stored<'c, 's>>,
    /// Addresses of IP reservations.
    pub reserved: CidrSet,
    /// Addresses of blocks that are corrupt or do not decode.
    pub unknown: CidrSet,
}

impl<'c, 's> Capacity<'c, 's> {
    /// Gathers the blocks and reservations of a snapshot.
    pub(crate) fn new(context: &'c Context<'s>) -> Self {
        let stored = super::blocks::stored(context);
        let reserved = context.snapshot.reservations.iter().flat_map(|r| r.value.cidrs.iter().copied());
        let unknown = stored.iter().filter(|s| s.block.is_none_or(|b| b.sound.is_none())).map(|s| s.key);
        Self { unknown: CidrSet::new(unknown), reserved: CidrSet::new(reserved), stored }
    }

    /// How much of the pool is taken. An address that overlapping blocks both hold counts once.
    pub(crate) fn usage(&self, pool: &Pool) -> Usage {
        let cidr = pool.cidr;
        let around = self.around(cidr);
        let mut blocks: Vec<&Stored<'_, '_>> = around.into_iter().chain(self.inside(cidr)).collect();
        blocks.dedup_by_key(|stored| stored.key);
        Usage {
            usable: cidr::size(cidr).saturating_sub(self.reserved.size_within(cidr)),
            in_use: self.taken_in_all(&blocks, cidr),
            unknown: self.unknown.size_within(cidr),
        }
    }

    /// Blocks that lie in the pool as a whole.
    pub(crate) fn inside(&self, pool: IpNet) -> &[Stored<'c, 's>] {
        let from = self.stored.partition_point(|s| s.key < pool);
        let len = self.stored[from..].partition_point(|s| pool.contains(&s.key));
        &self.stored[from..from + len]
    }

    /// Blocks that are larger than the pool and hold all of it.
    pub(crate) fn around(&self, pool: IpNet) -> Vec<&Stored<'c, 's>> {
        let outer = std::iter::successors(pool.supernet(), IpNet::supernet);
        let place = |cidr: IpNet| self.stored.binary_search_by_key(&cidr, |s| s.key).ok();
        let mut found: Vec<_> = outer.filter_map(place).map(|place| &self.stored[place]).collect();
        found.reverse();
        found
    }

    fn taken_in_all(&self, mut blocks: &[&Stored<'_, '_>], pool: IpNet) -> u128 {
        let mut taken = 0;
        while let Some(first) = blocks.first() {
            // Blocks are sorted, so that whatever overlaps the first one follows it directly.
            let len = blocks.iter().take_while(|b| first.key.contains(&b.key)).count();
            let (run, rest) = blocks.split_at(len);
            taken += self.taken(run, pool);
            blocks = rest;
        }
        taken
    }

    /// Addresses of the pool, reservations left out, that a run of overlapping blocks holds.
    fn taken(&self, run: &[&Stored<'_, '_>], pool: IpNet) -> u128 {
        let sound = || run.iter().filter_map(|s| s.block?.sound);
        if let [only] = run
            && pool.contains(&only.key)
            && self.reserved.within(only.key).next().is_none()
        {
            return sound().map(|b| u128::from(b.allocated())).sum();
        }
        let held = sound().flat_map(Block::allocations).map(|a| a.address);
        let mut held: Vec<IpAddr> =
            held.filter(|a| pool.contains(a) && !self.reserved.contains(*a)).collect();
        held.sort_unstable();
        held.dedup();
        held.len() as u128
    }

    /// True where automatic assignment finds a free address in the block.
    pub(crate) fn has_free(&self, block: &Block) -> bool {
        let reserved = self.reserved.within(block.cidr()).next().is_some();
        let is_open = |ordinal: &u32| !self.reserved.contains(cidr::address_at(block.cidr(), *ordinal));
        if reserved { block.free().iter().any(is_open) } else { !block.free().is_empty() }
    }
}
