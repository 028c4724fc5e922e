//! Reading existing blocks in batches, until one has addresses that can be assigned to the host.

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

/// The number of blocks in a batch. A batch of full blocks of Calico's usual size takes half a megabyte.
const BATCH: usize = 32;
/// The number of batches of [`BATCH`] blocks. If all blocks in these batches are full, most other blocks probably are,
/// too, so later batches are larger.
const SMALL_BATCHES: usize = 8;
/// The number of addresses that all blocks of a later batch have together. A later batch has at least [`BATCH`] blocks,
/// however large they are.
const LATER_BATCH: u128 = 16_384;

/// The order in which the blocks of a pool are read.
#[derive(Clone, Copy)]
pub(super) enum Order<'h> {
    /// The order of the walk, as Calico reads them.
    Walk,
    /// An order of this host's own, so that not all hosts want the same addresses.
    OfHost(&'h str),
}

impl Order<'_> {
    /// Sorts blocks, those of the first pool first.
    fn sort(self, places: &mut [Place]) {
        match self {
            Self::Walk => places.sort_unstable_by_key(|place| (place.pool, place.distance)),
            Self::OfHost(host) => {
                places.sort_by_cached_key(|place| (place.pool, hash(&format!("{host} {}", place.cidr))));
            }
        }
    }
}

/// An existing block of a pool.
pub(super) struct Place {
    /// The index of the pool.
    pub pool: usize,
    /// The block's distance from the start of the walk over its pool.
    pub distance: u128,
    pub cidr: IpNet,
    /// True if a block of another size overlaps this one. Such a block is not claimed.
    pub overlaps: bool,
}

/// The existing blocks of the pools, of which some have been read.
pub(super) struct Survey {
    /// Blocks that have not been read yet, in the order in which they will be read.
    pub unread: VecDeque<Place>,
    /// True if the blocks are read in the order of the walks.
    follows_walks: bool,
    /// Blocks with free addresses, each with the index of its pool, in the order in which they will be used.
    pub free: VecDeque<(usize, Versioned<Arc<Block>>)>,
    /// Blocks that stay full until a client writes them, with their revisions.
    pub full: HashMap<IpNet, String, FixedState>,
    /// The numbers of blocks that were passed over or not read, by pool.
    pub passed: Vec<Passed>,
    /// The number of blocks, by pool.
    blocks: Vec<usize>,
    /// The number of batches that were read.
    pub batches: usize,
}

/// The blocks of a batch that the host can claim. Blocks with addresses to borrow are in the survey.
#[derive(Default)]
pub(super) struct Batch {
    /// A block of the host with a free address.
    pub own: Option<IpNet>,
    /// A block that has been deleted since its key was read.
    pub gone: Option<IpNet>,
    /// Empty blocks of other holders.
    pub empty: Vec<Versioned<Arc<Block>>>,
}

impl Survey {
    /// Begins a survey of the blocks at `places`. `full_revision` returns the revision of a block that is known to be
    /// full, and `None` for any other block.
    pub(super) fn new(
        order: Order<'_>,
        places: Vec<Place>,
        passed: Vec<Passed>,
        full_revision: impl Fn(IpNet) -> Option<String>,
    ) -> Self {
        let mut survey = Self {
            unread: VecDeque::new(),
            follows_walks: matches!(order, Order::Walk),
            free: VecDeque::new(),
            full: HashMap::default(),
            blocks: vec![0; passed.len()],
            passed,
            batches: 0,
        };

        let mut unread = Vec::with_capacity(places.len());
        for place in places {
            survey.blocks[place.pool] += 1;
            match full_revision(place.cidr) {
                Some(revision) => {
                    survey.count(&place, |passed| &mut passed.full);
                    survey.full.insert(place.cidr, revision);
                }
                None => unread.push(place),
            }
        }

        order.sort(&mut unread);
        survey.unread = unread.into();
        survey
    }

    /// Returns a pool's next block with free addresses. Callers must go through the pools in order.
    pub(super) fn next_free(&mut self, pool: usize) -> Option<Versioned<Arc<Block>>> {
        self.free
            .pop_front_if(|(other, _)| *other == pool)
            .map(|(_, block)| block)
    }

    pub(super) fn blocks(&self, pool: usize) -> usize {
        self.blocks[pool]
    }

    /// Subtracts a block from the count of unread ones, and adds it to the count that `kind` selects. A block that
    /// overlaps others is not counted.
    fn count(&mut self, place: &Place, kind: impl Fn(&mut Passed) -> &mut usize) {
        if !place.overlaps {
            let passed = &mut self.passed[place.pool];
            passed.unread -= 1;
            *kind(passed) += 1;
        }
    }

    /// Removes the next batch from the unread blocks, and sorts it in the order of the walks over the pools.
    fn take_batch(&mut self) -> Vec<Place> {
        if self.batches == SMALL_BATCHES && !self.follows_walks {
            self.sort_by_name();
        }

        let size = self.batch_size().min(self.unread.len());
        let mut batch: Vec<Place> = self.unread.drain(..size).collect();
        batch.sort_by_key(|place| (place.pool, place.distance));
        batch
    }

    /// Sorts the unread blocks of each pool by name, since reading in the order of keys costs an API server least.
    /// Begins at the name of the next block, which differs between hosts, and continues with the first name after the
    /// last one.
    fn sort_by_name(&mut self) {
        let Some(next) = self.unread.front() else {
            return;
        };
        let first_name = next.cidr.to_string();
        let unread = self.unread.make_contiguous();
        unread.sort_by_cached_key(|place| {
            let name = place.cidr.to_string();
            // False sorts before true.
            let is_after_last_name = name < first_name;
            (place.pool, is_after_last_name, name)
        });
    }

    /// Returns the number of blocks in the next batch, if so many are left.
    fn batch_size(&self) -> usize {
        if self.batches < SMALL_BATCHES {
            return BATCH;
        }
        let addresses = self.unread.front().map_or(1, |place| cidr::size(place.cidr));
        let blocks = usize::try_from(LATER_BATCH / addresses).unwrap_or(usize::MAX);
        blocks.max(BATCH)
    }
}

impl<S: Store> Search<'_, S> {
    /// Reads the next batch, and sorts its blocks into the survey. Returns those that the host can claim.
    pub(super) async fn read_batch(&self, survey: &mut Survey) -> Result<Batch> {
        let next_places = survey.take_batch();
        if next_places.is_empty() {
            return Ok(Batch::default());
        }
        survey.batches += 1;
        let mut places = Vec::with_capacity(next_places.len());
        for place in next_places {
            if !self.is_passed_over(place.cidr).await? {
                places.push(place);
            }
        }
        let queries: Vec<Query> = places
            .iter()
            .map(|place| Query::Get(Key::Block(place.cidr)))
            .collect();
        let answers = self.allocator.store().read(&queries).await?;

        let mut batch = Batch::default();
        for (place, answer) in places.iter().zip(answers) {
            let Some(entry) = answer.into_iter().next() else {
                survey.count(place, |passed| &mut passed.empty);
                // Calico has seen such a block in a list, and its read has only just finished the block's deletion.
                if !self.allocator.is_calico && !place.overlaps && batch.gone.is_none() {
                    batch.gone = Some(place.cidr);
                }
                continue;
            };
            let Record::Block(block) = entry.record else {
                survey.count(place, |passed| &mut passed.undecodable);
                continue;
            };
            let block = Versioned {
                value: block,
                revision: entry.revision,
            };
            self.classify(block, place, survey, &mut batch);
        }
        Ok(batch)
    }

    /// Returns true for a block that Calico passes over by its list alone. If such a block is marked deleted, it stays:
    /// only a read of the block itself would finish its deletion. Without strict affinity, Calico reads every block, to
    /// borrow addresses.
    async fn is_passed_over(&self, cidr: IpNet) -> Result<bool> {
        if !self.allocator.is_calico || !self.config.strict_affinity {
            return Ok(false);
        }
        let Some(block) = self.allocator.store().half_deleted_block(cidr) else {
            return Ok(false);
        };
        if self.free(&block) == 0 {
            return Ok(true);
        }
        if block.owner() == Some(&self.holder(cidr).owner()) {
            return Ok(false);
        }
        Ok(!self.tries_to_take(&block).await?)
    }

    /// True if Calico tries to take the block from its owner: it reads the owner's affinity, and then the block.
    async fn tries_to_take(&self, block: &Block) -> Result<bool> {
        if !self.allocator.reclaims || !self.is_empty(block) {
            return Ok(false);
        }
        let Ok(owner) = self.owner_to_take_from(block) else {
            return Ok(false);
        };
        let [affinity] = self.allocator.read([Query::Get(Key::Affinity(owner))]).await?;
        Ok(!affinity.is_empty())
    }

    /// Counts a block, and adds it to those that the host can claim or borrow from.
    fn classify(&self, block: Versioned<Arc<Block>>, place: &Place, survey: &mut Survey, batch: &mut Batch) {
        if self.free(&block.value) == 0 {
            survey.count(place, |passed| &mut passed.full);
            // A cooling address becomes free without a write, so its block is not known to stay full.
            let mut allocations = block.value.allocations();
            if !allocations.any(|allocation| allocation.attribute.is_cooling()) {
                survey.full.insert(place.cidr, block.revision.to_string());
            }
            return;
        }

        if block.value.owner() == Some(&self.holder(place.cidr).owner()) {
            survey.count(place, |passed| &mut passed.in_use);
            if !place.overlaps && batch.own.is_none() {
                batch.own = Some(place.cidr);
            }
        } else if self.is_empty(&block.value) {
            survey.count(place, |passed| &mut passed.empty);
            if !place.overlaps {
                batch.empty.push(block.clone());
            }
        } else {
            survey.count(place, |passed| &mut passed.in_use);
        }
        survey.free.push_back((place.pool, block));
    }

    /// True if no address of the block is in use or cooling down.
    fn is_empty(&self, block: &Block) -> bool {
        let block = block.without_cooled(self.allocator.now(), self.config.cooldown());
        block.is_empty()
    }
}
