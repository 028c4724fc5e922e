//! The blocks that a host already has.

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState};
use calipam_model::block::Block;
use calipam_model::snapshot::Versioned;

use super::{BlockRead, Search};
use crate::affinity::AffinityAndBlock;
use crate::allocator::RETRIES;
use crate::error::{Error, Result};
use crate::event::{Event, OwnBlock};
use crate::keys::BlockKeys;
use crate::store::{Query, Store};

/// The number of blocks that are read in one round trip.
const AHEAD: usize = 4;

/// The outcome of an attempt to use a block of the host.
enum Attempt {
    Done(OwnBlock),
    Free(Box<Versioned<Block>>, u32),
    /// Another client wrote first.
    Conflict,
}

/// A block of the host that was tried.
#[derive(Default)]
struct TriedBlock {
    /// `None` if other clients kept writing first.
    state: Option<OwnBlock>,
    /// The block itself if it has a free address.
    block: Option<Versioned<Block>>,
}

impl TriedBlock {
    fn unusable(state: OwnBlock) -> Self {
        Self {
            state: Some(state),
            block: None,
        }
    }
}

impl<S: Store> Search<'_, S> {
    /// Returns the host's next block with a free address.
    pub(super) async fn own_block(&mut self) -> Result<Option<Versioned<Block>>> {
        self.pass_over_full().await?;
        while let Some(affinity) = self.remaining.pop_front() {
            let key = affinity.value.key.clone();
            let tried = self.usable_block(affinity).await?;
            if let Some(found) = tried.state {
                self.allocator.trace.record(|| Event::OwnBlock { key, found });
            }
            if tried.block.is_some() {
                return Ok(tried.block);
            }
        }
        Ok(None)
    }

    /// Skips the host's blocks that an earlier search found full, if their revisions are still the same.
    async fn pass_over_full(&mut self) -> Result<()> {
        let mut queries = Vec::new();
        for affinity in &self.remaining {
            let cidr = affinity.value.key.cidr;
            let is_confirmed = affinity.value.state == AffinityState::Confirmed;
            if is_confirmed && self.known.blocks.contains_key(&cidr) {
                queries.push(Query::BlockKey(cidr));
            }
        }
        if queries.is_empty() {
            return Ok(());
        }

        let entries = self.allocator.store().read(&queries).await?;
        let current = BlockKeys::new(entries.into_iter().flatten().collect());
        let full_blocks = &self.known;
        self.remaining.retain(|affinity| {
            let cidr = affinity.value.key.cidr;
            let is_confirmed = affinity.value.state == AffinityState::Confirmed;
            let is_still_full = current
                .revision(cidr)
                .is_some_and(|revision| full_blocks.has(cidr, revision));
            !(is_confirmed && is_still_full)
        });
        Ok(())
    }

    /// Reads a block of the host, or creates it if it is missing, and returns it if it has a free address. Tries again
    /// if other clients write first.
    async fn usable_block(&mut self, affinity: Versioned<Affinity>) -> Result<TriedBlock> {
        let key = affinity.value.key.clone();
        if let Some(reserved) = self.reserved.around(key.cidr) {
            return Ok(TriedBlock::unusable(OwnBlock::Reserved(reserved)));
        }

        let mut read = Some(
            self.read_ahead(key.cidr)
                .await?
                .map(|block| (Some(affinity), block)),
        );
        for _ in 0..RETRIES {
            let current = match read.take() {
                Some(first) => first,
                None => self.allocator.affinity_and_block(&key).await,
            };
            match self.try_own_block(&key, current).await? {
                Attempt::Free(block, free) => {
                    return Ok(TriedBlock {
                        state: Some(OwnBlock::Free(free)),
                        block: Some(*block),
                    });
                }
                Attempt::Done(state) => return Ok(TriedBlock::unusable(state)),
                Attempt::Conflict => {}
            }
        }
        Ok(TriedBlock::default())
    }

    /// Makes one attempt to use a block, with the affinity and the block as they were read. An error that concerns only
    /// this block is an outcome, so that the next block is tried.
    async fn try_own_block(&self, key: &AffinityKey, current: Result<AffinityAndBlock>) -> Result<Attempt> {
        if let Ok((Some(_), None)) = &current
            && let Some(existing) = self.overlapping_of_own(key.cidr).await?
        {
            let block = key.cidr;
            let why = Error::Overlap { block, existing };
            return Ok(Attempt::Done(OwnBlock::Unusable(why.to_string())));
        }
        let loaded = match current {
            Ok((Some(affinity), block)) => self.allocator.load_block(affinity, block, self.windows).await,
            Ok((None, _)) => return Ok(Attempt::Done(OwnBlock::Gone)),
            Err(error) => Err(error),
        };
        match loaded {
            Ok(block) => {
                let free = self.free(&block.value);
                Ok(if free == 0 {
                    Attempt::Done(self.describe_full(&block.value))
                } else {
                    Attempt::Free(Box::new(block), free)
                })
            }
            Err(error) if error.is_lost_race() => Ok(Attempt::Conflict),
            Err(error) if error.is_unavailable() || error.is_crash() => Err(error),
            Err(Error::StaleAffinity(_)) => Ok(Attempt::Done(OwnBlock::Stale)),
            Err(error) => {
                tracing::warn!(%key, %error, "a block of the node cannot be used");
                Ok(Attempt::Done(OwnBlock::Unusable(error.to_string())))
            }
        }
    }

    /// The block of another size that overlaps a missing block of the host, which is not created then. Calico creates it.
    async fn overlapping_of_own(&self, missing: IpNet) -> Result<Option<IpNet>> {
        if self.allocator.is_calico {
            return Ok(None);
        }
        self.allocator.overlapping(missing).await
    }

    /// Counts the reserved and the cooling addresses of a full block.
    fn describe_full(&self, block: &Block) -> OwnBlock {
        let cooling = block
            .allocations()
            .filter(|allocation| allocation.attribute.is_cooling())
            .count();
        OwnBlock::Full {
            reserved: block.free().len() as u32,
            cooling: cooling as u32,
        }
    }

    /// Returns a block of the host. If it was not read ahead, reads it together with the blocks that will be tried
    /// next, which are kept for later calls.
    ///
    /// # Errors
    /// If the datastore fails. An error about this block alone is in the [`BlockRead`].
    async fn read_ahead(&mut self, cidr: IpNet) -> Result<BlockRead> {
        if let Some(read_before) = self.ahead.remove(&cidr) {
            return Ok(read_before);
        }
        let next = self
            .remaining
            .iter()
            .map(|affinity| affinity.value.key.cidr)
            .take(AHEAD - 1);
        let cidrs: Vec<IpNet> = std::iter::once(cidr).chain(next).collect();
        let blocks = self.allocator.each_block(&cidrs).await?;
        self.ahead = cidrs.into_iter().zip(blocks).collect();

        let missing = Ok(None);
        Ok(self.ahead.remove(&cidr).unwrap_or(missing))
    }
}
