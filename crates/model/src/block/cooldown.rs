//! The cooldown of released addresses (facts 3.10): they are not assigned again for a while (Calico 3.33 and later).
//! Whether a release starts a cooldown is decided by `release` in the crate `assign`, and in plans by
//! `BlockEdit::Release`.

use std::borrow::Cow;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{Block, BlockUpdate};
use crate::attributes::{Attribute, AttributeRef};

/// Released addresses that cannot be assigned until their cooldown is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cooling {
    pub addresses: usize,
    /// The time at which the first address becomes free.
    pub first: Timestamp,
    /// The time at which the last address becomes free.
    pub last: Timestamp,
}

impl Cooling {
    /// The cooling addresses in `blocks` with a readable release time; `None` if there are none.
    pub fn of<'b>(
        blocks: impl IntoIterator<Item = &'b Block>,
        now: Timestamp,
        cooldown: SignedDuration,
    ) -> Option<Self> {
        let mut cooling: Option<Self> = None;
        for block in blocks {
            if !block.has_cooling() {
                continue;
            }
            for record in block.allocations().map(|allocation| allocation.attribute) {
                if record.has_cooled(now, cooldown) {
                    continue;
                }
                let Some(released) = record.released_time() else {
                    continue;
                };
                let Ok(end) = released.checked_add(cooldown) else {
                    continue;
                };
                let address = Self {
                    addresses: 1,
                    first: end,
                    last: end,
                };
                cooling = Some(match cooling {
                    Some(others) => others.and(address),
                    None => address,
                });
            }
        }
        cooling
    }

    /// Combines two sets of cooling addresses.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let first = self.first.min(other.first);
        let last = self.last.max(other.last);
        Self {
            addresses: self.addresses + other.addresses,
            first,
            last,
        }
    }
}

impl fmt::Display for Cooling {
    /// Writes the number of cooling addresses, and the times at which they become free.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            addresses,
            first,
            last,
        } = self;
        match addresses {
            1 => write!(f, "1 address is cooling down until {first:.0}"),
            many => {
                write!(
                    f,
                    "{many} addresses are cooling down, the first until {first:.0}, the last until {last:.0}"
                )
            }
        }
    }
}

impl AttributeRef<'_> {
    /// True if the address was released and its cooldown is over.
    pub fn has_cooled(&self, now: Timestamp, cooldown: SignedDuration) -> bool {
        self.released_time()
            .is_some_and(|released| now.duration_since(released) > cooldown)
    }
}

impl Block {
    pub fn has_cooling(&self) -> bool {
        self.attributes.has_cooling
    }

    /// The block as an allocator reads it: addresses that have cooled for longer than `cooldown` are free. An allocator
    /// does not write a block only to free them.
    pub fn without_cooled(&self, now: Timestamp, cooldown: SignedDuration) -> Cow<'_, Self> {
        if !self.has_cooling() {
            return Cow::Borrowed(self);
        }
        let mut block = self.clone();
        block.update(|update| update.collect_cooled(now, cooldown));
        Cow::Owned(block)
    }
}

impl BlockUpdate<'_> {
    /// Starts a cooldown of ordinals at the time `released_at` (facts 3.10). They share one new owner record, which
    /// contains only the time, and get the block's sequence number. Ordinals that are already free or cooling are left
    /// out. Returns the ordinals whose cooldown has started, ascending.
    pub fn cool(&mut self, ordinals: &[u32], released_at: Timestamp) -> Vec<u32> {
        let mut cooled = self.allocated_among(ordinals);
        cooled.retain(|ordinal| {
            let allocation = self.block.allocation(*ordinal);
            allocation.is_some_and(|allocation| !allocation.attribute.is_cooling())
        });
        if cooled.is_empty() {
            return cooled;
        }

        let index = self.add(&Attribute::cooling(released_at));
        for ordinal in &cooled {
            self.allocate(*ordinal, index);
        }
        self.compact();
        cooled
    }

    /// Like [`Self::cool`], but for a release by handle, which does not change sequence numbers (facts 3.7).
    pub fn cool_by_handle(&mut self, ordinals: &[u32], released_at: Timestamp) -> Vec<u32> {
        let sequences = self.block.sequences.clone();
        let null_sequences = self.block.null_sequences;
        let cooled = self.cool(ordinals, released_at);
        self.block.sequences = sequences;
        self.block.null_sequences = null_sequences;
        cooled
    }

    /// Frees ordinals that have cooled for longer than `cooldown` at `now`, and returns them.
    pub fn collect_cooled(&mut self, now: Timestamp, cooldown: SignedDuration) -> Vec<u32> {
        if !self.block.has_cooling() {
            return Vec::new();
        }
        let mut expired: Vec<u32> = Vec::new();
        for allocation in self.block.allocations() {
            if allocation.attribute.has_cooled(now, cooldown) {
                expired.push(allocation.ordinal);
            }
        }
        self.release_by_handle(&expired)
    }
}
