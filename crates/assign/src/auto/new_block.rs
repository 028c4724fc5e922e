//! Finding a block for a host that needs another one, and claiming it (facts 3.4.1).

use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr;
use calipam_model::snapshot::Versioned;
use jiff::SignedDuration;

use super::Search;
use crate::affinity::ReleaseAffinity;
use crate::allocator::RETRIES;
use crate::error::{Error, Result};
use crate::event::{Event, NotReclaimed, Passed};
use crate::listed::Found;
use crate::store::Store;
use crate::walk::Walk;

/// How long a block stays with its owner although it is empty: so long two nodes do not fight over it.
const MIN_RECLAIM_AGE: SignedDuration = SignedDuration::from_mins(1);

/// A block that can be claimed.
struct Candidate {
    cidr: IpNet,
    /// There was no such block a moment ago.
    is_new: bool,
}

impl<S: Store> Search<'_, S> {
    /// Claims a block with a free address; `None` if all blocks of the pools are taken.
    pub(super) async fn claim(&mut self) -> Result<Option<Versioned<Block>>> {
        for _ in 0..RETRIES {
            let Some(candidate) = self.candidate().await? else {
                self.allocator.trace.tell(|| Event::NothingToClaim);
                return Ok(None);
            };
            let key = self.holder(candidate.cidr);
            let mut is_new = candidate.is_new;
            for _ in 0..RETRIES {
                match self.claim_candidate(&key, is_new).await {
                    Ok(block) => {
                        self.allocator.trace.tell(|| Event::Claimed(key.clone()));
                        let free = self.free(&block.value);
                        if free > 0 {
                            return Ok(Some(block));
                        }
                        return Err(Error::NoRoom { block: key.cidr, free, wanted: 1 });
                    }
                    Err(error) if error.is_lost_race() => is_new = false,
                    // Another one.
                    Err(Error::ClaimedByOther(_) | Error::StaleAffinity(_)) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::TooManyConflicts)
    }

    async fn claim_candidate(&self, key: &AffinityKey, is_new: bool) -> Result<Versioned<Block>> {
        let pending = self.allocator.pending_affinity(key).await?;
        let found = if is_new { None } else { self.allocator.block(key.cidr).await? };
        self.allocator.load_block(pending, found, self.windows).await
    }

    /// The first block of the pools that does not exist, or is the host's and has a free address; else an empty one of
    /// another host, which is taken from it.
    async fn candidate(&mut self) -> Result<Option<Candidate>> {
        let listed = self.allocator.store().blocks(self.family).await?;
        let mut empty: Vec<&Versioned<Arc<Block>>> = Vec::new();
        for pool in &self.pools {
            let of_other_size = listed.of_other_size(pool.block_size);
            let mut passed = Passed::default();
            let mut walk = Walk::new(pool, &self.request.host, self.moment());
            while let Some(cidr) = walk.next() {
                if let Some(reserved) = self.reserved.covering(cidr) {
                    walk.skip(reserved);
                    passed.reserved += 1;
                    continue;
                }
                // Its addresses belong to a block from before the pool's block size was changed.
                if of_other_size.iter().any(|other| cidr::overlap(*other, cidr)) {
                    passed.other_size += 1;
                    continue;
                }
                let block = match listed.find(cidr) {
                    Found::Nothing => return Ok(Some(Candidate { cidr, is_new: true })),
                    Found::Undecodable => {
                        passed.undecodable += 1;
                        continue;
                    }
                    Found::Sound(block) => block,
                };
                if self.free(&block.value) == 0 {
                    passed.full += 1;
                    continue;
                }
                if block.value.owner() == Some(&self.holder(cidr).owner()) {
                    return Ok(Some(Candidate { cidr, is_new: false }));
                }
                match block.value.without_cooled(self.allocator.now(), self.config.cooldown()).is_empty() {
                    true => {
                        passed.empty += 1;
                        empty.push(block);
                    }
                    false => passed.in_use += 1,
                }
            }
            let (pool, cidr) = (&pool.name, pool.cidr);
            self.allocator.trace.tell(|| Event::Searched { pool: pool.clone(), cidr, passed });
        }
        let reclaimed = self.reclaim(&empty).await?;
        if reclaimed.is_none() {
            // The same list serves to borrow.
            self.existing = Some(listed);
        }
        Ok(reclaimed)
    }

    /// Takes an empty block from its owner.
    async fn reclaim(&self, empty: &[&Versioned<Arc<Block>>]) -> Result<Option<Candidate>> {
        for block in empty {
            let cidr = block.value.cidr();
            let now = self.allocator.now();
            let age = block.value.claimed_at().map(|claimed| now.duration_since(claimed));
            let stays = |why: NotReclaimed| {
                let owner = block.value.owner();
                self.allocator.trace.tell(|| Event::NotReclaimed { block: cidr, owner: owner.cloned(), why });
            };
            if age.is_some_and(|age| age < MIN_RECLAIM_AGE) {
                stays(NotReclaimed::Young);
                continue;
            }
            let (kind, node) = match block.value.owner() {
                Some(BlockOwner::Host(node)) => (AffinityType::Host, node.clone()),
                Some(BlockOwner::Virtual(name)) => (AffinityType::Virtual, name.clone()),
                Some(BlockOwner::Other(_)) | None => {
                    stays(NotReclaimed::NoOwner);
                    continue;
                }
            };
            let owner = AffinityKey { kind, node, cidr };
            let conditions = ReleaseAffinity { must_be_empty: true, sequence: Some(block.value.sequence()) };
            match self.allocator.release_affinity_if(&owner, &self.config, conditions).await {
                Ok(()) => {
                    self.allocator.trace.tell(|| Event::Reclaimed(owner));
                    return Ok(Some(Candidate { cidr, is_new: true }));
                }
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    tracing::debug!(%owner, %error, "an empty block cannot be taken over");
                    stays(NotReclaimed::Failed(error.to_string()));
                }
            }
        }
        Ok(None)
    }

    /// Where walks over single addresses begin.
    pub(super) fn moment(&self) -> u64 {
        self.allocator.now().as_nanosecond() as u64
    }
}
