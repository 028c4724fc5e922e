//! Affinities and their blocks (facts 3.9).

use std::sync::Arc;

use calipam_assign::{Record, Store, StoreError};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState};
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::snapshot::Versioned;

use super::{Calico, Result, Stop, found, key_of, retried};

impl Calico {
    /// Returns a host's affinity for a block. The affinity is now pending, or was already confirmed.
    pub(super) async fn pending_affinity(&self, key: &AffinityKey) -> Result<Versioned<Affinity>> {
        let pending = Affinity::new(key.clone(), AffinityState::Pending);
        match self.store.create(&Record::Affinity(pending.clone())).await {
            Ok(revision) => {
                return Ok(Versioned {
                    value: pending,
                    revision,
                });
            }
            Err(StoreError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let found = self.affinity(key).await?;
        match found.value.state {
            AffinityState::Confirmed => Ok(found),
            _ => self.set_state(found, AffinityState::Pending).await,
        }
    }

    async fn set_state(
        &self,
        found: Versioned<Affinity>,
        state: AffinityState,
    ) -> Result<Versioned<Affinity>> {
        let value = Affinity { state, ..found.value };
        let revision = self
            .store
            .update(&Record::Affinity(value.clone()), &found.revision)
            .await?;
        Ok(Versioned { value, revision })
    }

    async fn delete_affinity(&self, affinity: Versioned<Affinity>) -> Result<()> {
        self.delete(Record::Affinity(affinity.value), affinity.revision)
            .await
    }

    /// Returns the block of an affinity. Creates the block if it is missing, and confirms the affinity if necessary.
    pub(super) async fn block_of(&self, affinity: Versioned<Affinity>) -> Result<Versioned<Block>> {
        let key = affinity.value.key.clone();
        let Some(mut block) = found(self.block(key.cidr).await)? else {
            let pending = self.set_state(affinity, AffinityState::Pending).await?;
            return self.claim(pending).await;
        };
        if block.value.owner() != Some(&key.owner()) {
            self.delete_affinity(affinity).await?;
            return Err(Stop::NotOurs);
        }
        if affinity.value.state == AffinityState::Confirmed {
            return Ok(block);
        }
        let pending = self.set_state(affinity, AffinityState::Pending).await?;
        block.value.update(|update| update.touch());
        let block = self.update_block(block).await?;
        self.set_state(pending, AffinityState::Confirmed).await?;
        Ok(block)
    }

    /// Creates the block of a pending affinity, and confirms the affinity.
    pub(super) async fn claim(&self, affinity: Versioned<Affinity>) -> Result<Versioned<Block>> {
        let key = affinity.value.key.clone();
        let block = Block::new(key.cidr, Some(key.owner()), self.store.now()).ok_or(Stop::Refused)?;
        match self.store.create(&Record::Block(Arc::new(block.clone()))).await {
            Ok(revision) => {
                self.confirm(affinity).await?;
                return Ok(Versioned {
                    value: block,
                    revision,
                });
            }
            Err(StoreError::Exists(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let found = self.block(key.cidr).await?;
        if found.value.owner() == Some(&key.owner()) {
            self.confirm(affinity).await?;
            return Ok(found);
        }
        // Calico only logs errors of this deletion.
        let _ = self.delete_affinity(affinity).await;
        Err(Stop::NotOurs)
    }

    async fn confirm(&self, affinity: Versioned<Affinity>) -> Result<()> {
        let key = affinity.value.key.clone();
        let Err(stop) = self.set_state(affinity, AffinityState::Confirmed).await else {
            return Ok(());
        };
        match self.affinity(&key).await {
            Ok(found) if found.value.state == AffinityState::Confirmed => Ok(()),
            _ => Err(stop),
        }
    }

    /// Deletes an empty block. If `sequence` is given, the block must have this sequence number.
    pub(super) async fn release(
        &self,
        key: &AffinityKey,
        config: &IpamConfig,
        sequence: Option<u64>,
    ) -> Result<()> {
        let affinity = self.affinity(key).await?;
        let block = self.block(key.cidr).await?;
        if sequence.is_some_and(|sequence| sequence != block.value.sequence()) {
            return Err(Stop::Conflict);
        }
        if block.value.owner().is_some_and(|owner| *owner != key.owner()) {
            let _ = self.delete_affinity(affinity).await;
            return Err(Stop::NotOurs);
        }
        if !self.current(&block.value, config).is_empty() {
            return Err(Stop::NotEmpty);
        }

        let marked = self.set_state(affinity, AffinityState::PendingDeletion).await?;
        found(
            self.delete(Record::Block(Arc::new(block.value)), block.revision)
                .await,
        )?;
        found(self.delete_affinity(marked).await).map(drop)
    }

    /// Releases the empty blocks of a deleted host.
    pub(super) async fn release_all(&self, host: &str) -> Result<()> {
        let config = self.config().await?;
        for cidr in self.affinities(host).await? {
            let key = key_of(host, cidr);
            // The next round of the collector handles errors.
            let _ = retried(async || self.release(&key, &config, None).await).await;
        }
        Ok(())
    }

    /// Releases an empty block, as the collector does.
    pub(super) async fn release_empty(&self, block: IpNet, host: &str) -> Result<()> {
        let config = self.config().await?;
        self.release(&key_of(host, block), &config, None).await
    }
}
