//! Counts the addresses that were assigned and released in the blocks of an archive or a recording.

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::block_change::assigned_and_released;

/// The relation of a state to the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// All changes in between are known.
    Changes,
    /// The state is the next export. Only the differences from the previous export are known.
    Export,
    /// Nothing is known about the time in between.
    Nothing,
}

/// A consumer of the numbers that a [`PastReader`] computes from past states.
pub trait Past {
    /// True if the differences between two exports are counted. The times of such differences are unknown, and so are
    /// changes that were undone between the exports.
    const COUNTS_EXPORT_DIFFERENCES: bool;

    /// True if an address with this record is counted.
    fn counts(_: &AttributeRef<'_>) -> bool {
        true
    }

    /// Begins an observed period, with `held` addresses in use at its start.
    fn begin(&mut self, at: Timestamp, held: u64);

    /// Extends the observed time by a period. Every change in the period is known or, if it lies between two exports,
    /// only the differences between them.
    fn pass(&mut self, from: Timestamp, until: Timestamp);

    /// Adds the numbers of a block's addresses that were assigned and that were released.
    fn change(&mut self, block: IpNet, assigned: u64, released: u64);

    /// Announces that the next changes are the differences between two exports.
    fn begin_differences(&mut self) {}
}

/// Reads the states of blocks in chronological order, and passes the numbers of changes to `past`.
#[derive(Debug, Default)]
pub struct PastReader<P> {
    pub(crate) past: P,
    /// The blocks of the last state, by key.
    blocks: HashMap<Vec<u8>, Block>,
    /// The blocks of the next state.
    next: HashMap<Vec<u8>, Block>,
    at: Option<Timestamp>,
}

impl<P: Past> PastReader<P> {
    /// Begins without any state.
    pub fn new(past: P) -> Self {
        Self {
            past,
            blocks: HashMap::new(),
            next: HashMap::new(),
            at: None,
        }
    }

    /// Adds a block of the next state.
    pub fn add(&mut self, key: &[u8], entry: &Snapshot) {
        if let Some(block) = block(entry) {
            self.next.insert(key.to_vec(), block.clone());
        }
    }

    /// Completes the next state. Depending on `follows`, compares it with the last state, starts over with it, or drops
    /// it.
    pub fn begin(&mut self, at: Timestamp, follows: Follows) {
        let next = std::mem::take(&mut self.next);
        match follows {
            // The changes have led to this state already.
            Follows::Changes => {}
            Follows::Export if P::COUNTS_EXPORT_DIFFERENCES => {
                self.reach(at);
                self.count_differences(&next);
                self.blocks = next;
            }
            Follows::Export | Follows::Nothing => {
                let mut allocated = 0;
                for block in next.values() {
                    let (assigned, _) = assigned_and_released(None, Some(block), P::counts);
                    allocated += assigned;
                }
                self.past.begin(at, allocated);
                self.blocks = next;
                self.at = Some(at);
            }
        }
    }

    /// Passes on the differences between the last state, which it removes, and the next one.
    fn count_differences(&mut self, next: &HashMap<Vec<u8>, Block>) {
        self.past.begin_differences();
        let mut last = std::mem::take(&mut self.blocks);
        for (key, block) in next {
            self.count(last.remove(key).as_ref(), Some(block));
        }
        // The remaining blocks were deleted.
        for deleted in last.values() {
            self.count(Some(deleted), None);
        }
    }

    /// Changes or deletes a block. A version that cannot be decoded is skipped: the block stays unchanged until the
    /// next version.
    pub fn change(&mut self, at: Timestamp, key: &[u8], entry: Option<&Snapshot>) {
        self.reach(at);
        let new_block = entry.and_then(block);
        let is_deleted = entry.is_none_or(is_marked_deleted);
        if new_block.is_none() && !is_deleted {
            return;
        }
        let old_block = self.blocks.remove(key);
        self.count(old_block.as_ref(), new_block);
        if let Some(block) = new_block {
            self.blocks.insert(key.to_vec(), block.clone());
        }
    }

    /// Extends the observed time to `at`.
    pub fn reach(&mut self, at: Timestamp) {
        if let Some(last) = self.at
            && last < at
        {
            self.past.pass(last, at);
            self.at = Some(at);
        }
    }

    pub fn finish(self) -> P {
        self.past
    }

    /// Passes on the numbers of changes between two states of a block.
    fn count(&mut self, before: Option<&Block>, after: Option<&Block>) {
        if let Some(block) = after.or(before) {
            let (assigned, released) = assigned_and_released(before, after, P::counts);
            self.past.change(block.cidr(), assigned, released);
        }
    }
}

/// True if the block of an entry is marked deleted.
fn is_marked_deleted(entry: &Snapshot) -> bool {
    entry.blocks.iter().any(|block| block.value.content.is_deleted())
}

/// Returns the usable block of an entry; `None` if there is none or it is marked deleted.
fn block(entry: &Snapshot) -> Option<&Block> {
    let mut blocks = entry.blocks.iter().map(|block| &block.value.content);
    let content = blocks.find(|content| !content.is_deleted())?;
    content.usable()
}
