//! Reading blocks that exist, some at a time: all of them only if none of them has anything to give.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;
use foldhash::fast::FixedState;

use super::Search;
use crate::error::Result;
use crate::event::Passed;
use crate::record::Record;
use crate::store::{Query, Store};
use crate::walk::hash;

/// Blocks that are read in one round trip. Full ones of Calico's usual size are half a megabyte together.
const TOGETHER: usize = 32;
/// How often so few are read, and how many addresses the blocks have that are read together after that: if so many were full,
/// most are, and those that follow each other cost an API server the least.
const FEW_ROUNDS: usize = 8;
const TOGETHER_LATER: u128 = 16_384;

/// A block of a pool.
pub(super) struct Place {
    /// Which of the pools.
    pub pool: usize,
    /// How far after the start of the walk it comes.
    pub distance: u128,
    pub cidr: IpNet,
    /// A block of another size has some of its addresses: it is not claimed again.
    pub overlaps: bool,
}

/// The blocks of the pools, of which some were read.
pub(super) struct Survey {
    /// Those that were not, in the order in which they will be. In each pool it is another one on each host, so that hosts
    /// do not all want the same addresses.
    unread: VecDeque<Place>,
    /// Those that have addresses to give out, each with its pool, in the order in which they give them.
    free: VecDeque<(usize, Versioned<Arc<Block>>)>,
    /// Those that have none and will not have any before they are written, by their revisions.
    full: HashMap<IpNet, String, FixedState>,
    /// What was found, by pool.
    pub passed: Vec<Passed>,
    /// Number of blocks, by pool.
    blocks: Vec<usize>,
    /// How often some were read.
    rounds: usize,
}

/// What some blocks are good for. Those that can only be borrowed from are in the survey.
#[derive(Default)]
pub(super) struct Seen {
    /// The host's own, with an address to give out.
    pub own: Option<IpNet>,
    /// It was there a moment ago.
    pub gone: Option<IpNet>,
    /// Empty ones of others.
    pub empty: Vec<Versioned<Arc<Block>>>,
}

impl Survey {
    /// `full` says the revision of a block that is known to be full.
    pub(super) fn new(
        host: &str,
        places: Vec<Place>,
        passed: Vec<Passed>,
        full: impl Fn(IpNet) -> Option<String>,
    ) -> Self {
        let blocks = vec![0; passed.len()];
        let mut survey = Self {
            unread: VecDeque::new(),
            free: VecDeque::new(),
            full: HashMap::default(),
            passed,
            blocks,
            rounds: 0,
        };
        let mut unread = Vec::with_capacity(places.len());
        for place in places {
            survey.blocks[place.pool] += 1;
            match full(place.cidr) {
                Some(revision) => {
                    survey.count(&place, |passed| &mut passed.full);
                    survey.full.insert(place.cidr, revision);
                }
                None => unread.push(place),
            }
        }
        unread.sort_by_cached_key(|place| (place.pool, hash(&format!("{host} {}", place.cidr))));
        survey.unread = unread.into();
        survey
    }

    pub(super) fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// True if a block is known that has an address to give out.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// True if blocks of a pool were not read.
    pub(super) fn has_unread(&self, pool: usize) -> bool {
        self.unread.front().is_some_and(|place| place.pool == pool)
    }

    /// The next block of a pool with addresses to give out. Pools come in their order.
    pub(super) fn next_free(&mut self, pool: usize) -> Option<Versioned<Arc<Block>>> {
        self.free.pop_front_if(|(of, _)| *of == pool).map(|(_, block)| block)
    }

    /// Number of blocks of a pool.
    pub(super) fn blocks(&self, pool: usize) -> usize {
        self.blocks[pool]
    }

    /// True if so many blocks were read in vain that the next search should not do so again.
    pub(super) fn is_worth_a_note(&self) -> bool {
        self.rounds > 1
    }

    pub(super) fn into_full(self) -> HashMap<IpNet, String, FixedState> {
        self.full
    }

    /// A place turned out to be of a kind.
    fn count(&mut self, place: &Place, kind: impl Fn(&mut Passed) -> &mut usize) {
        if !place.overlaps {
            let passed = &mut self.passed[place.pool];
            passed.unread -= 1;
            *kind(passed) += 1;
        }
    }

    /// The next blocks, in the order of the walks over their pools.
    fn next(&mut self) -> Vec<Place> {
        if self.rounds == FEW_ROUNDS {
            // Where each host begins is another place.
            let begin = self.unread.front().map(|place| place.cidr.to_string()).unwrap_or_default();
            let unread = self.unread.make_contiguous();
            unread.sort_by_cached_key(|place| {
                let name = place.cidr.to_string();
                (place.pool, name < begin, name)
            });
        }
        let size = self.unread.front().map_or(1, |place| cidr::size(place.cidr));
        let later = usize::try_from(TOGETHER_LATER / size).unwrap_or(usize::MAX);
        let most = if self.rounds < FEW_ROUNDS { TOGETHER } else { later.max(TOGETHER) };
        let mut next: Vec<Place> = self.unread.drain(..most.min(self.unread.len())).collect();
        next.sort_by_key(|place| (place.pool, place.distance));
        next
    }
}

impl<S: Store> Search<'_, S> {
    /// Reads some more blocks.
    pub(super) async fn read_some(&self, survey: &mut Survey) -> Result<Seen> {
        let places = survey.next();
        if places.is_empty() {
            return Ok(Seen::default());
        }
        survey.rounds += 1;
        let queries: Vec<Query> = places.iter().map(|place| Query::Get(Key::Block(place.cidr))).collect();
        let answers = self.allocator.store().read(&queries).await?;

        let mut seen = Seen::default();
        for (place, answer) in places.iter().zip(answers) {
            let Some(entry) = answer.into_iter().next() else {
                survey.count(place, |passed| &mut passed.empty);
                seen.gone = seen.gone.or(Some(place.cidr).filter(|_| !place.overlaps));
                continue;
            };
            let Record::Block(block) = entry.record else {
                survey.count(place, |passed| &mut passed.undecodable);
                continue;
            };
            let block = Versioned { value: block, revision: entry.revision };
            self.sort(block, place, survey, &mut seen);
        }
        Ok(seen)
    }

    /// Says what a block is good for.
    fn sort(&self, block: Versioned<Arc<Block>>, place: &Place, survey: &mut Survey, seen: &mut Seen) {
        if self.free(&block.value) == 0 {
            survey.count(place, |passed| &mut passed.full);
            // An address that cools down is free after a while without any write.
            if !block.value.allocations().any(|allocation| allocation.attribute.is_cooling()) {
                survey.full.insert(place.cidr, block.revision.to_string());
            }
            return;
        }
        if block.value.owner() == Some(&self.holder(place.cidr).owner()) {
            survey.count(place, |passed| &mut passed.in_use);
            seen.own = seen.own.or(Some(place.cidr).filter(|_| !place.overlaps));
        } else if block.value.without_cooled(self.allocator.now(), self.config.cooldown()).is_empty() {
            survey.count(place, |passed| &mut passed.empty);
            if !place.overlaps {
                seen.empty.push(block.clone());
            }
        } else {
            survey.count(place, |passed| &mut passed.in_use);
        }
        survey.free.push_back((place.pool, block));
    }
}
