//! Who holds the addresses of a block, and how many were assigned and released between two states of it.

use std::hash::{BuildHasher, Hasher};

use calipam_model::block::{Allocation, Block};
use foldhash::fast::FixedState;

use crate::FastMap;

/// The addresses of a block that are held, by ordinal: the hash of handle and sequence number, which tell one allocation from the next.
#[derive(Debug, Default)]
pub(crate) struct Held(FastMap<u32, u64>);

impl Held {
    /// Those that an owner holds whom `is_wanted` takes; what cools down is held by no one.
    pub(crate) fn of(block: &Block, is_wanted: impl Fn(&Allocation<'_>) -> bool) -> Self {
        let held = block.allocations().filter(|held| !held.attribute.is_cooling() && is_wanted(held));
        let by = |held: &Allocation<'_>| {
            let mut hasher = FixedState::default().build_hasher();
            hasher.write(held.attribute.handle().map_or(&[], |handle| handle.packed()));
            hasher.write_u64(held.sequence);
            hasher.finish()
        };
        Self(held.map(|held| (held.ordinal, by(&held))).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many addresses were assigned and how many released until they were held as in `now`.
    pub(crate) fn assigned_and_released(&self, now: &Self) -> (u64, u64) {
        (now.missing_in(self), self.missing_in(now))
    }

    fn missing_in(&self, other: &Self) -> u64 {
        self.0.iter().filter(|(ordinal, by)| other.0.get(*ordinal) != Some(*by)).count() as u64
    }
}
