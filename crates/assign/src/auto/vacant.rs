//! Finding a place for a new block from the keys of the existing blocks, without reading their contents.

use std::collections::HashSet;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::cidr_set::CidrSet;
use calipam_model::key::Key;
use calipam_model::pool::Pool;

use super::Search;
use super::survey::{Order, Place, Survey};
use crate::affinity::{block_of, largest_other};
use crate::error::{Error, Result};
use crate::event::{Event, Passed};
use crate::keys::BlockKeys;
use crate::record::Record;
use crate::store::{Query, Store};
use crate::walk::Walk;

/// The number of places to check in each round trip. In most pools, one of the first places is vacant. After the last
/// batch, listing all keys is cheaper.
const BATCHES: [usize; 3] = [8, 64, 64];
/// The maximum number of blocks of other sizes that may be in the way. If there are more, all keys are listed.
const MAX_IN_THE_WAY: usize = 4;

/// A block that can be claimed.
pub(super) struct Candidate {
    pub cidr: IpNet,
    pub kind: CandidateKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateKind {
    /// The block did not exist a moment ago.
    New,
    /// The block belongs to the host and has a free address, but was not found by an affinity.
    Own,
}

impl Candidate {
    pub(super) fn new(cidr: IpNet) -> Self {
        Self {
            cidr,
            kind: CandidateKind::New,
        }
    }

    pub(super) fn own(cidr: IpNet) -> Self {
        Self {
            cidr,
            kind: CandidateKind::Own,
        }
    }
}

/// A block to claim or, if there is no place for a new one, the existing blocks of the pools.
pub(super) enum Vacancy {
    At(Candidate),
    None(Survey),
}

/// The outcome of checking the first places of a pool.
enum Nearby {
    Found(Candidate),
    /// Every place of the pool was checked, and none is vacant.
    AllTaken(Passed),
    Unknown,
}

impl<S: Store> Search<'_, S> {
    /// Finds the first place of the pools that overlaps no block and is not completely reserved. For Calico, this is
    /// also a place whose block belongs to the host and has a free address.
    pub(super) async fn vacancy(&self) -> Result<Vacancy> {
        let mut passed = Vec::new();
        for pool in 0..self.pools.len() {
            match self.nearby(pool).await? {
                Nearby::Found(candidate) => {
                    self.report_searched(&passed);
                    return Ok(Vacancy::At(candidate));
                }
                Nearby::AllTaken(of_pool) => passed.push(of_pool),
                Nearby::Unknown => break,
            }
        }
        self.in_list().await
    }

    /// Checks the first places of the walk over a pool. The answer is [`Nearby::AllTaken`] if the walk ended, and
    /// [`Nearby::Unknown`] if it goes on, or if many places have blocks of other sizes.
    async fn nearby(&self, pool: usize) -> Result<Nearby> {
        self.crash_as_calico(&self.pools[pool])?;
        let mut walk = Walk::new(&self.pools[pool], &self.request.host, self.moment());
        let mut passed = Passed::default();
        let mut in_the_way = Vec::new();
        for count in BATCHES {
            let places: Vec<IpNet> = std::iter::from_fn(|| self.next_place(&mut walk, &mut passed))
                .take(count)
                .collect();
            let is_last = places.len() < count;

            // In a pool with room, the very first place is usually vacant. So the blocks around it are read at once.
            let is_first_batch = count == BATCHES[0];
            let read_around = if is_first_batch && !self.allocator.is_calico {
                places.first().copied()
            } else {
                None
            };
            let (taken, around_first) = self.taken(&places, read_around).await?;

            for place in places {
                if in_the_way.iter().any(|other| cidr::overlap(*other, place)) {
                    passed.other_size += 1;
                    continue;
                }
                if taken.contains(&place) {
                    if let Some(own) = self.own_with_room(place).await? {
                        return Ok(Nearby::Found(own));
                    }
                    passed.unread += 1;
                    continue;
                }
                if self.allocator.is_calico {
                    return Ok(Nearby::Found(Candidate::new(place)));
                }

                // The place's addresses can belong to a block that dates from before the pool's block size was
                // changed.
                let other = if read_around == Some(place) {
                    around_first
                } else {
                    self.allocator.overlapping(place).await?
                };
                let Some(other) = other else {
                    return Ok(Nearby::Found(Candidate::new(place)));
                };
                passed.other_size += 1;
                in_the_way.push(other);
                if in_the_way.len() > MAX_IN_THE_WAY {
                    return Ok(Nearby::Unknown);
                }
            }
            if is_last {
                return Ok(Nearby::AllTaken(passed));
            }
        }
        Ok(Nearby::Unknown)
    }

    /// Fails where Calico's plugin dies, since it takes the first place of the pool's impossible blocks for a vacant one.
    fn crash_as_calico(&self, pool: &Pool) -> Result<()> {
        if self.allocator.is_calico && pool.has_impossible_blocks() {
            return Err(Error::OutOfMemory {
                pool: pool.name.clone(),
                block_size: pool.block_size,
            });
        }
        Ok(())
    }

    /// The block at this place, if it is known to belong to the host and has a free address. Calico judges by its list of
    /// blocks, in which one that is marked deleted is like any other. It creates such a block again.
    async fn own_with_room(&self, place: IpNet) -> Result<Option<Candidate>> {
        if self.owned_blocks.binary_search(&place).is_err() {
            return Ok(None);
        }
        if let Some(listed) = self.allocator.store().half_deleted_block(place) {
            if self.is_own_with_room(&listed) {
                return Ok(Some(Candidate::new(place)));
            }
            return Ok(None);
        }
        let [answer] = self.allocator.read([Query::Get(Key::Block(place))]).await?;
        match answer.first().map(|entry| &entry.record) {
            Some(Record::Block(found)) if self.is_own_with_room(found) => Ok(Some(Candidate::own(place))),
            _ => Ok(None),
        }
    }

    fn is_own_with_room(&self, block: &Block) -> bool {
        block.owner() == Some(&self.holder(block.cidr()).owner()) && self.free(block) > 0
    }

    /// Returns the walk's next place that is not completely reserved, and counts those that are; `None` at its end.
    fn next_place(&self, walk: &mut Walk, passed: &mut Passed) -> Option<IpNet> {
        loop {
            let place = walk.next()?;
            let Some(reserved) = self.reserved.around(place) else {
                return Some(place);
            };
            walk.skip(reserved);
            passed.reserved += 1;
        }
    }

    /// Returns those of the places that have blocks, and the block of another size that overlaps `guarded`, if any. All
    /// are read in one round trip.
    async fn taken(
        &self,
        places: &[IpNet],
        guarded: Option<IpNet>,
    ) -> Result<(HashSet<IpNet>, Option<IpNet>)> {
        let mut queries: Vec<Query> = places.iter().map(|place| Query::BlockKey(*place)).collect();
        queries.extend(guarded.map(Query::Overlapping));
        let mut answers = self.allocator.store().read(&queries).await?;

        // The answer about `guarded` comes after those about the places.
        let overlapping = answers.split_off(places.len().min(answers.len()));
        let taken = answers.iter().flatten().filter_map(block_of).collect();
        let other_size = guarded.and_then(|place| largest_other(&overlapping.concat(), place));
        Ok((taken, other_size))
    }

    /// Searches all places of all pools, based on the keys of their blocks. Returns the first vacant place or, if there
    /// is none, a survey of the existing blocks.
    async fn in_list(&self) -> Result<Vacancy> {
        // Revisions show whether a block that was full has changed.
        let query = if self.known.blocks.is_empty() {
            Query::BlockKeys
        } else {
            Query::BlockRevisions
        };
        let pools = self.pools.iter().map(|pool| pool.cidr).collect();
        let [found] = self.allocator.read([query(pools)]).await?;
        let keys = BlockKeys::new(found);
        let mut places = Vec::new();
        let mut passed = Vec::new();
        for (index, pool) in self.pools.iter().enumerate() {
            self.crash_as_calico(pool)?;
            let other_sizes = if self.allocator.is_calico {
                CidrSet::new([])
            } else {
                keys.of_other_size(pool.block_size)
            };
            let mut counts = Passed::default();
            let candidate = self
                .candidate_among(&keys, &other_sizes, pool, &mut counts)
                .await?;
            if let Some(candidate) = candidate {
                self.report_searched(&passed);
                return Ok(Vacancy::At(candidate));
            }
            places.extend(self.places_of(&keys, &other_sizes, index));
            passed.push(counts);
        }
        let full_revision = |cidr| {
            let revision = keys.revision(cidr)?;
            if !self.known.has(cidr, revision) {
                return None;
            }
            Some(revision.to_string())
        };
        let order = if self.allocator.is_calico {
            Order::Walk
        } else {
            Order::OfHost(&self.request.host)
        };
        Ok(Vacancy::None(Survey::new(order, places, passed, full_revision)))
    }

    /// Finds the first place of a pool that has no block, or whose block belongs to the host and has a free address.
    /// Counts the places before it.
    async fn candidate_among(
        &self,
        keys: &BlockKeys,
        other_sizes: &CidrSet,
        pool: &Pool,
        counts: &mut Passed,
    ) -> Result<Option<Candidate>> {
        let mut walk = Walk::new(pool, &self.request.host, self.moment());
        while let Some(cidr) = self.next_place(&mut walk, counts) {
            if other_sizes.touches(cidr) {
                counts.other_size += 1;
            } else if !keys.contains(cidr) {
                return Ok(Some(Candidate::new(cidr)));
            } else if let Some(own) = self.own_with_room(cidr).await? {
                return Ok(Some(own));
            } else {
                counts.unread += 1;
            }
        }
        Ok(None)
    }

    /// Returns the existing blocks of a pool that are not completely reserved. Blocks that overlap others are included,
    /// since addresses can be borrowed from them.
    fn places_of(&self, keys: &BlockKeys, other_sizes: &CidrSet, pool: usize) -> Vec<Place> {
        let walk = Walk::new(&self.pools[pool], &self.request.host, self.moment());
        let mut places = Vec::new();
        for cidr in keys.cidrs() {
            if let Some(distance) = walk.distance(cidr)
                && !self.reserved.covers(cidr)
            {
                places.push(Place {
                    pool,
                    distance,
                    cidr,
                    overlaps: other_sizes.touches(cidr),
                });
            }
        }
        places
    }

    /// Reports the search of each pool for which `passed` has counts, starting with the first pool.
    pub(super) fn report_searched(&self, passed: &[Passed]) {
        for (pool, counts) in self.pools.iter().zip(passed) {
            self.allocator.trace.record(|| Event::Searched {
                pool: pool.name.clone(),
                cidr: pool.cidr,
                passed: *counts,
            });
        }
    }
}
