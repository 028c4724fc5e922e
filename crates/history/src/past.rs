//! How the addresses of blocks come and go, as an archive or a recording tells it.

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::block::Allocation;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use crate::held::Held;

/// How a state follows what was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It is what the changes had come to.
    Changes,
    /// It is another export: what lies between is not known, but what differs.
    Export,
    /// Nothing is known of the time between.
    Nothing,
}

/// What is learnt of the past.
pub trait Past {
    /// What two exports differ in counts, although it is not known when it happened, nor what came and went in between.
    const BRIDGES: bool;

    /// Whether an address that is held counts.
    fn counts(held: &Allocation<'_>) -> bool;

    /// From this time on everything is known. So many addresses are held.
    fn begin(&mut self, at: Timestamp, held: u64);

    /// Everything is known of the time in between.
    fn pass(&mut self, from: Timestamp, until: Timestamp);

    /// So many addresses of a block were assigned, and released.
    fn change(&mut self, block: IpNet, assigned: u64, released: u64);

    /// What follows is what two exports differ in.
    fn bridge(&mut self) {}
}

/// Takes blocks in the order of time.
#[derive(Debug, Default)]
pub struct PastReader<P> {
    pub(crate) past: P,
    /// By the key that the block has in exports.
    blocks: HashMap<Vec<u8>, (IpNet, Held)>,
    /// The blocks of the next state.
    next: HashMap<Vec<u8>, (IpNet, Held)>,
    at: Option<Timestamp>,
}

impl<P: Past> PastReader<P> {
    pub fn new(past: P) -> Self {
        Self { past, blocks: HashMap::new(), next: HashMap::new(), at: None }
    }

    /// Takes a block of the next state.
    pub fn add(&mut self, key: &[u8], entry: &Snapshot) {
        self.next.extend(held::<P>(entry).map(|block| (key.to_vec(), block)));
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
                let nothing = Held::default();
                for (key, (block, now)) in &next {
                    let before = before.remove(key);
                    self.count(*block, before.as_ref().map_or(&nothing, |(_, held)| held), now);
                }
                before.values().for_each(|(block, before)| self.count(*block, before, &nothing));
                self.blocks = next;
            }
            Follows::Export | Follows::Nothing => {
                self.past.begin(at, next.values().map(|(_, held)| held.len() as u64).sum());
                (self.blocks, self.at) = (next, Some(at));
            }
        }
    }

    /// A block is another one from this time on, or is gone. A version that cannot be decoded says nothing: the block stays what it was
    /// until the next one.
    pub fn change(&mut self, at: Timestamp, key: &[u8], entry: Option<&Snapshot>) {
        self.reach(at);
        let now = entry.and_then(held::<P>);
        let is_gone = |entry: &Snapshot| entry.blocks.iter().any(|block| block.value.content.is_deleted());
        if now.is_none() && entry.is_some_and(|entry| !is_gone(entry)) {
            return;
        }
        let before = self.blocks.remove(key);
        let nothing = Held::default();
        if let Some((block, _)) = now.as_ref().or(before.as_ref()) {
            let [before, now] = [&before, &now].map(|of| of.as_ref().map_or(&nothing, |(_, held)| held));
            self.count(*block, before, now);
        }
        self.blocks.extend(now.map(|now| (key.to_vec(), now)));
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

    fn count(&mut self, block: IpNet, before: &Held, now: &Held) {
        let (assigned, released) = before.assigned_and_released(now);
        self.past.change(block, assigned, released);
    }
}

/// The addresses of the block of an entry; `None` where it is of none.
fn held<P: Past>(entry: &Snapshot) -> Option<(IpNet, Held)> {
    let block = entry.blocks.iter().map(|block| &block.value).find(|block| !block.content.is_deleted())?;
    Some((block.key, Held::of(block.content.usable()?, P::counts)))
}
