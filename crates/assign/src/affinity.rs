//! Affinities and their blocks: claiming, loading and giving them up (facts 3.9).

use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState};
use calipam_model::block::{Block, WINDOWS_RESERVED};
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use crate::allocator::{self, Allocator, block_entry};
use crate::error::{Error, Result};
use crate::record::Record;
use crate::store::{Entry, Query, Store, StoreError};

/// The policy for giving up a block that has addresses in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// The owner keeps the block, and the call fails.
    Refuse,
    /// The block loses its owner.
    Release,
}

/// Conditions for giving up a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseAffinity {
    pub in_use: InUse,
    /// The sequence number that the block must have; `None` for any. If the number differs, the block has changed since
    /// it was read, and its owner keeps it.
    pub sequence: Option<u64>,
}

/// An affinity and its block, each `None` if it does not exist.
pub(crate) type AffinityAndBlock = (Option<Versioned<Affinity>>, Option<Versioned<Block>>);

impl<S: Store> Allocator<S> {
    /// Returns a holder's affinity for a block, and creates the affinity if it is missing. The affinity is pending,
    /// unless its stored state is `confirmed`.
    pub(crate) async fn pending_affinity(&self, key: &AffinityKey) -> Result<Versioned<Affinity>> {
        let pending = Affinity::new(key.clone(), AffinityState::Pending);
        match self.store().create(&Record::Affinity(pending.clone())).await {
            Ok(revision) => {
                return Ok(Versioned {
                    value: pending,
                    revision,
                });
            }
            Err(StoreError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }

        // The holder has the affinity already, in whatever state.
        let Some(found) = self.get::<Affinity>(Key::Affinity(key.clone())).await? else {
            if self.is_calico {
                // Calico's read has just finished a deletion that stopped half-way, and it gives up.
                return Err(Error::DeletedAffinity(key.clone()));
            }
            return Err(StoreError::Conflict(Key::Affinity(key.clone())).into());
        };
        match found.value.state {
            AffinityState::Confirmed if !found.value.is_unstated => Ok(found),
            _ => self.set_state(found, AffinityState::Pending).await,
        }
    }

    /// Writes an affinity with another state, and returns it with its new revision. The write fails if the affinity was
    /// changed since it was read.
    async fn set_state(
        &self,
        mut affinity: Versioned<Affinity>,
        state: AffinityState,
    ) -> Result<Versioned<Affinity>> {
        affinity.value.state = state;
        affinity.value.is_unstated = false;
        let record = Record::Affinity(affinity.value.clone());
        affinity.revision = self.store().update(&record, &affinity.revision).await?;
        Ok(affinity)
    }

    async fn delete_affinity(&self, affinity: Versioned<Affinity>) -> Result<()> {
        let entry = Entry {
            record: Record::Affinity(affinity.value),
            revision: affinity.revision,
        };
        Ok(self.store().delete(&entry).await?)
    }

    /// Creates the block of an affinity, unless the holder owns it already, and confirms the affinity.
    ///
    /// # Errors
    /// [`Error::ClaimedByOther`] if the block has another owner or none. In this case, the affinity is deleted.
    pub(crate) async fn claim_block(
        &self,
        affinity: Versioned<Affinity>,
        windows: bool,
    ) -> Result<Versioned<Block>> {
        let key = affinity.value.key.clone();
        let make = if windows { Block::new_windows } else { Block::new };
        let block = make(key.cidr, Some(key.owner()), self.now())
            .ok_or_else(|| self.impossible_block(key.cidr, windows))?;
        match self.store().create(&Record::Block(Arc::new(block.clone()))).await {
            Ok(revision) => {
                let created = Versioned {
                    value: block,
                    revision,
                };
                self.confirm(affinity, Some(&created)).await?;
                return Ok(created);
            }
            Err(StoreError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }

        let Some(found) = self.block(key.cidr).await? else {
            return Err(StoreError::Conflict(Key::Block(key.cidr)).into());
        };
        if found.value.owner() == Some(&key.owner()) {
            // Another process of this holder wrote first.
            self.confirm(affinity, None).await?;
            return Ok(found);
        }
        if let Err(error) = self.delete_affinity(affinity).await {
            tracing::warn!(%key, %error, "cannot delete the affinity of a lost claim");
        }
        Err(Error::ClaimedByOther(key.cidr))
    }

    /// The error for a block that cannot exist.
    fn impossible_block(&self, cidr: IpNet, windows: bool) -> Error {
        let size = u32::try_from(cidr::size(cidr)).unwrap_or(u32::MAX);
        if self.is_calico && windows && size < WINDOWS_RESERVED {
            Error::TooSmallForWindows { last: size - 1 }
        } else {
            Error::BlockSize(cidr)
        }
    }

    /// Confirms a holder's affinity. It is no error if another process of the holder confirmed it first. If the
    /// affinity was deleted meanwhile, for example because the node was removed, deletes the block that was just
    /// `created` for it: without an affinity, the block would stay. Calico leaves it.
    async fn confirm(&self, affinity: Versioned<Affinity>, created: Option<&Versioned<Block>>) -> Result<()> {
        let key = affinity.value.key.clone();
        let Err(error) = self.set_state(affinity, AffinityState::Confirmed).await else {
            return Ok(());
        };
        let current = self.get::<Affinity>(Key::Affinity(key)).await;
        if let Ok(Some(found)) = &current
            && found.value.state == AffinityState::Confirmed
        {
            return Ok(());
        }
        if let Ok(None) = current
            && let Some(created) = created
            && !self.is_calico
        {
            self.delete_created(created).await;
        }
        Err(error)
    }

    /// Deletes a block that was just created. A failure leaves it, and `check` reports it.
    async fn delete_created(&self, block: &Versioned<Block>) {
        if let Err(error) = ignoring_gone(self.store().delete(&block_entry(block)).await) {
            let cidr = block.value.cidr();
            tracing::warn!(%cidr, %error, "cannot delete a block whose affinity is gone");
        }
    }

    /// Returns the block of an affinity. Creates the block if it is missing, and confirms the affinity. `found` is the
    /// block as it was read, no earlier than the affinity.
    ///
    /// # Errors
    /// [`Error::StaleAffinity`] if the block has another owner or none. In this case, the affinity is deleted.
    pub(crate) async fn load_block(
        &self,
        affinity: Versioned<Affinity>,
        found: Option<Versioned<Block>>,
        windows: bool,
    ) -> Result<Versioned<Block>> {
        let key = affinity.value.key.clone();
        let Some(mut block) = found else {
            let pending = self.set_state(affinity, AffinityState::Pending).await?;
            return self.claim_block(pending, windows).await;
        };
        if block.value.owner() != Some(&key.owner()) {
            self.delete_affinity(affinity).await?;
            return Err(Error::StaleAffinity(key.cidr));
        }
        if affinity.value.state == AffinityState::Confirmed {
            return Ok(block);
        }

        let pending = self.set_state(affinity, AffinityState::Pending).await?;
        // With its new revision, the block cannot be taken away by a client that has read it before.
        block.value.update(|update| update.touch());
        let record = Record::Block(Arc::new(block.value.clone()));
        block.revision = self.store().update(&record, &block.revision).await?;
        self.set_state(pending, AffinityState::Confirmed).await?;
        Ok(block)
    }

    /// Reads an affinity and its block in one round trip.
    pub(crate) async fn affinity_and_block(&self, key: &AffinityKey) -> Result<AffinityAndBlock> {
        let queries = [
            Query::Get(Key::Affinity(key.clone())),
            Query::Get(Key::Block(key.cidr)),
        ];
        let [affinity, block] = self.read(queries).await?;
        Ok((allocator::one(affinity)?, allocator::one(block)?))
    }

    /// Gives up a block: deletes it if it is empty, and clears its owner otherwise.
    pub(crate) async fn release_affinity_if(
        &self,
        key: &AffinityKey,
        config: &IpamConfig,
        conditions: ReleaseAffinity,
    ) -> Result<()> {
        let (affinity, block) = self.affinity_and_block(key).await?;
        let affinity = affinity.ok_or_else(|| Error::NoAffinity(Key::Affinity(key.clone())))?;
        // If the block is missing, the affinity is kept: the holder creates the block again when it needs one.
        let block = block.ok_or(Error::NoBlock(key.cidr))?;
        if let Some(sequence) = conditions.sequence
            && sequence != block.value.sequence()
        {
            return Err(Error::BlockChanged(key.cidr));
        }
        if block.value.owner().is_some_and(|owner| *owner != key.owner()) {
            // The affinity is stale: the block belongs to another holder by now.
            if let Err(error) = self.delete_affinity(affinity).await {
                tracing::warn!(%key, %error, "cannot delete a stale affinity");
            }
            return Err(Error::ClaimedByOther(key.cidr));
        }

        // The check for an empty block and the removal of cooled addresses use the same timestamp. Otherwise, if a
        // cooldown ended in between, an empty block without an owner would remain.
        let now = self.now();
        let is_empty = block.value.without_cooled(now, config.cooldown()).is_empty();
        if conditions.in_use == InUse::Refuse && !is_empty {
            return Err(Error::NotEmpty(key.cidr));
        }

        let marked = self.set_state(affinity, AffinityState::PendingDeletion).await?;
        if is_empty {
            ignoring_gone(self.store().delete(&block_entry(&block)).await)?;
        } else {
            self.clear_owner(block, config, now).await?;
        }
        match self.delete_affinity(marked).await {
            Err(Error::Store(error)) => Ok(ignoring_gone(Err(error))?),
            other => other,
        }
    }

    /// Removes the owner of a block, and frees the addresses whose cooldown is over.
    async fn clear_owner(
        &self,
        mut block: Versioned<Block>,
        config: &IpamConfig,
        now: Timestamp,
    ) -> Result<()> {
        block.value.update(|update| {
            update.collect_cooled(now, config.cooldown());
            update.clear_owner();
        });
        self.store()
            .update(&Record::Block(Arc::new(block.value)), &block.revision)
            .await?;
        Ok(())
    }

    /// The largest block of another size that overlaps `block`.
    pub(crate) async fn overlapping(&self, block: IpNet) -> Result<Option<IpNet>> {
        let [found] = self.read([Query::Overlapping(block)]).await?;
        Ok(largest_other(&found, block))
    }
}

pub(crate) fn block_of(entry: &Entry) -> Option<IpNet> {
    match entry.record.key() {
        Key::Block(cidr) => Some(cidr),
        _ => None,
    }
}

/// Returns the largest block in `overlapping`, other than `block` itself. The largest block can also overlap neighbors
/// of `block`.
pub(crate) fn largest_other(overlapping: &[Entry], block: IpNet) -> Option<IpNet> {
    overlapping
        .iter()
        .filter_map(block_of)
        .filter(|cidr| *cidr != block)
        .min_by_key(IpNet::prefix_len)
}

/// Treats the deletion of a record that no longer exists as a success.
pub(crate) fn ignoring_gone(result: Result<(), StoreError>) -> Result<(), StoreError> {
    match result {
        Err(StoreError::NotFound(_)) => Ok(()),
        other => other,
    }
}
