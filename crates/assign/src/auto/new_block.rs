//! Finding another block for a host, and claiming it (facts 3.4.1).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use calipam_model::affinity::AffinityKey;
use calipam_model::block::Block;
use calipam_model::snapshot::Versioned;
use jiff::SignedDuration;

use super::Search;
use super::vacant::{Candidate, CandidateKind, Vacancy};
use crate::affinity::{InUse, ReleaseAffinity};
use crate::allocator::RETRIES;
use crate::error::{Error, Result};
use crate::event::{Event, NotReclaimed, OwnBlock};
use crate::store::Store;

/// The time for which a newly claimed block is left to its owner even if it is empty, so that two nodes do not fight
/// over it.
const MIN_RECLAIM_AGE: SignedDuration = SignedDuration::from_mins(1);

/// The outcome of taking an empty block from its owner.
enum Reclaim {
    /// The block was deleted, with this affinity of the owner.
    Taken(AffinityKey),
    /// The owner keeps the block.
    Kept(NotReclaimed),
}

impl<S: Store> Search<'_, S> {
    /// Claims a block with a free address; `None` if all blocks of the pools are taken.
    pub(super) async fn claim(&mut self) -> Result<Option<Versioned<Block>>> {
        for _ in 0..RETRIES {
            let Some(candidate) = self.candidate().await? else {
                self.allocator.trace.record(|| Event::NothingToClaim);
                return Ok(None);
            };
            if let Some(block) = self.claim_candidate(&candidate).await? {
                return Ok(Some(block));
            }
            // The claim of another candidate may still succeed.
        }
        Err(Error::TooManyConflicts)
    }

    /// Claims a candidate; `None` if another holder has it, or if other clients kept writing first.
    async fn claim_candidate(&self, candidate: &Candidate) -> Result<Option<Versioned<Block>>> {
        let key = self.holder(candidate.cidr);
        // Calico always reads the block, which finishes the deletion of one that is marked deleted.
        let mut is_new = candidate.kind == CandidateKind::New && !self.allocator.is_calico;
        for _ in 0..RETRIES {
            match self.try_claim(&key, is_new).await {
                Ok(block) => {
                    let free = self.free(&block.value);
                    self.record_claim(&key, candidate.kind, free);
                    if free == 0 {
                        return Err(Error::NoRoom {
                            block: key.cidr,
                            free,
                            wanted: 1,
                        });
                    }
                    return Ok(Some(block));
                }
                Err(error) if error.is_lost_race() => is_new = false,
                Err(Error::ClaimedByOther(_) | Error::StaleAffinity(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Records the event that the host got a block with `free` addresses: a new one, or one that it owned already.
    fn record_claim(&self, key: &AffinityKey, kind: CandidateKind, free: u32) {
        self.allocator.trace.record(|| match kind {
            CandidateKind::New => Event::Claimed(key.clone()),
            CandidateKind::Own => Event::OwnBlock {
                key: key.clone(),
                found: OwnBlock::Free(free),
            },
        });
    }

    /// Makes one attempt to claim a block. A block that is not new is read first; a new one is created without a read,
    /// which saves a round trip.
    async fn try_claim(&self, key: &AffinityKey, is_new: bool) -> Result<Versioned<Block>> {
        let pending = self.allocator.pending_affinity(key).await?;
        let found = if is_new {
            None
        } else {
            self.allocator.block(key.cidr).await?
        };
        self.allocator.load_block(pending, found, self.windows).await
    }

    /// Finds a block to claim: the first place in the pools where no block exists. If there is no such place, finds a
    /// block of the host with a free address or a block that was just deleted, or takes an empty block from another
    /// host.
    async fn candidate(&mut self) -> Result<Option<Candidate>> {
        let mut survey = match self.vacancy().await? {
            Vacancy::At(candidate) => return Ok(Some(candidate)),
            Vacancy::None(survey) => survey,
        };
        let mut is_reported = false;
        let found = loop {
            let batch = self.read_batch(&mut survey).await?;
            if let Some(cidr) = batch.own {
                break Some(Candidate::own(cidr));
            }
            if let Some(cidr) = batch.gone {
                break Some(Candidate::new(cidr));
            }

            // If addresses can be borrowed from blocks in use, not all blocks have to be read. Calico reads them all, and
            // takes over the last one rather than borrow from the first.
            let reads_all = self.allocator.is_calico && self.allocator.reclaims;
            let is_found = self.config.may_borrow() && !survey.free.is_empty();
            let is_enough = survey.unread.is_empty() || is_found && !reads_all;
            if (is_enough || !batch.empty.is_empty()) && !is_reported {
                self.report_searched(&survey.passed);
                is_reported = true;
            }
            let reclaimed = self.reclaim(&batch.empty).await?;
            if reclaimed.is_some() || is_enough {
                break reclaimed;
            }
        };
        self.survey = Some(survey);
        Ok(found)
    }

    /// Takes the first of the empty blocks that its owner does not keep, so that it can be claimed; `None` if the
    /// owners keep all of them.
    async fn reclaim(&self, empty: &[Versioned<Arc<Block>>]) -> Result<Option<Candidate>> {
        if !self.allocator.reclaims {
            return Ok(None);
        }
        for block in empty {
            let cidr = block.value.cidr();
            match self.take_from_owner(block).await? {
                Reclaim::Taken(owner) => {
                    self.allocator.trace.record(|| Event::Reclaimed(owner));
                    return Ok(Some(Candidate::new(cidr)));
                }
                Reclaim::Kept(why) => {
                    let owner = block.value.owner().cloned();
                    self.allocator.trace.record(|| Event::NotReclaimed {
                        block: cidr,
                        owner,
                        why,
                    });
                }
            }
        }
        Ok(None)
    }

    /// Takes an empty block from its owner by deleting it, unless the owner keeps it or another client changes it
    /// first.
    ///
    /// # Errors
    /// If the datastore fails.
    async fn take_from_owner(&self, block: &Versioned<Arc<Block>>) -> Result<Reclaim> {
        let owner = match self.owner_to_take_from(&block.value) {
            Ok(owner) => owner,
            Err(why) => return Ok(Reclaim::Kept(why)),
        };
        let conditions = ReleaseAffinity {
            in_use: InUse::Refuse,
            sequence: Some(block.value.sequence()),
        };
        let released = self
            .allocator
            .release_affinity_if(&owner, &self.config, conditions)
            .await;
        match released {
            Ok(()) => Ok(Reclaim::Taken(owner)),
            Err(error) if error.is_unavailable() => Err(error),
            Err(error) => {
                tracing::debug!(%owner, %error, "an empty block cannot be taken over");
                if error.is_lost_race() || matches!(error, Error::BlockChanged(_) | Error::NoBlock(_)) {
                    self.overtaken.store(true, Ordering::Relaxed);
                }
                Ok(Reclaim::Kept(NotReclaimed::Failed(error.to_string())))
            }
        }
    }

    /// Returns the key of the affinity by which an owner holds an empty block that can be taken from it.
    ///
    /// # Errors
    /// The reason why the block stays with its owner: it is young, or has no owner with an affinity.
    pub(super) fn owner_to_take_from(&self, block: &Block) -> Result<AffinityKey, NotReclaimed> {
        let age = block
            .claimed_at()
            .map(|claimed_at| self.allocator.now().duration_since(claimed_at));
        if age.is_some_and(|age| age < MIN_RECLAIM_AGE) {
            return Err(NotReclaimed::Young);
        }
        let Some(owner) = block.owner() else {
            return Err(NotReclaimed::NoOwner);
        };
        AffinityKey::of_owner(owner, block.cidr()).ok_or(NotReclaimed::NoOwner)
    }

    /// The seed for walks over pools whose blocks are single addresses.
    pub(super) fn moment(&self) -> i64 {
        self.allocator.now().as_nanosecond() as i64
    }
}
