//! The addresses of blocks as they come and go, by an archive or a recording.

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::differ::assigned_and_released;

/// The relation of a state to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It is the result of the changes.
    Changes,
    /// It is another export: what lies between is not known, but what differs.
    Export,
    /// Nothing is known of the time between.
    Nothing,
}

/// A reader of the past.
pub trait Past {
    /// True if the differences of two exports count, although it is not known when they came, nor what came and went in between.
    const BRIDGES: bool;

    /// True for the records of addresses that count.
    fn counts(_: &AttributeRef<'_>) -> bool {
        true
    }

    /// From this time on everything is known. So many addresses are held.
    fn begin(&mut self, at: Timestamp, held: u64);

    /// Everything is known of the time in between.
    fn pass(&mut self, from: Timestamp, until: Timestamp);

    /// Counts addresses of a block that were assigned, and released.
    fn change(&mut self, block: IpNet, assigned: u64, released: u64);

    /// The next changes are the differences of two exports.
    fn bridge(&mut self) {}
}

/// Takes blocks in the order of time.
#[derive(Debug, Default)]
pub struct PastReader<P> {
    pub(crate) past: P,
    /// By the key that the block has in exports.
    blocks: HashMap<Vec<u8>, Block>,
    /// The blocks of the next state.
    next: HashMap<Vec<u8>, Block>,
    at: Option<Timestamp>,
}

impl<P: Past> PastReader<P> {
    pub fn new(past: P) -> Self {
        Self { past, blocks: HashMap::new(), next: HashMap::new(), at: None }
    }

    /// Takes a block of the next state.
    pub fn add(&mut self, key: &[u8], entry: &Snapshot) {
        self.next.extend(block(entry).map(|block| (key.to_vec(), block.clone())));
    }

    /// The next state is complete.
    pub fn begin(&mut self, at: Timestamp, follows: Follows) {
        let next = std::mem::take(&mut self.next);
        match follows {
            Follows::Changes => {}
            Follows::Export if P::BRIDGES => {
                self.reach(at);
                self.past.bridge();
                let mut before = std::mem::take(&mut self.blocks);
                for (key, now) in &next {
                    self.count(before.remove(key).as_ref(), Some(now));
                }
                before.values().for_each(|before| self.count(Some(before), None));
                self.blocks = next;
            }
            Follows::Export | Follows::Nothing => {
                let held = next.values().map(|block| assigned_and_released(None, Some(block), P::counts).0);
                self.past.begin(at, held.sum());
                (self.blocks, self.at) = (next, Some(at));
            }
        }
    }

    /// A block is another one from this time on, or is gone. A version that cannot be decoded says nothing: the block stays what it was
    /// until the next one.
    pub fn change(&mut self, at: Timestamp, key: &[u8], entry: Option<&Snapshot>) {
        self.reach(at);
        let now = entry.and_then(block);
        let is_gone = |entry: &Snapshot| entry.blocks.iter().any(|block| block.value.content.is_deleted());
        if now.is_none() && entry.is_some_and(|entry| !is_gone(entry)) {
            return;
        }
        let before = self.blocks.remove(key);
        self.count(before.as_ref(), now);
        self.blocks.extend(now.map(|now| (key.to_vec(), now.clone())));
    }

    /// Everything is known up to this time.
    pub fn reach(&mut self, at: Timestamp) {
        if let Some(before) = self.at.filter(|before| *before < at) {
            self.past.pass(before, at);
            self.at = Some(at);
        }
    }

    pub fn finish(self) -> P {
        self.past
    }

    fn count(&mut self, before: Option<&Block>, now: Option<&Block>) {
        if let Some(block) = now.or(before) {
            let (assigned, released) = assigned_and_released(before, now, P::counts);
            self.past.change(block.cidr(), assigned, released);
        }
    }
}

/// The block of an entry; `None` where it is of none.
fn block(entry: &Snapshot) -> Option<&Block> {
    entry.blocks.iter().find(|block| !block.value.content.is_deleted())?.value.content.usable()
}
