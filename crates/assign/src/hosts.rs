//! Claiming blocks, and giving up blocks by CIDR or by host (facts 3.9).

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::Block;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;

use crate::affinity::{InUse, ReleaseAffinity};
use crate::allocator::{self, Allocator, RETRIES};
use crate::auto::affinities_of;
use crate::error::{Error, Result, unless_lost};
use crate::family::Family;
use crate::store::{Query, Store};

impl<S: Store> Allocator<S> {
    /// Claims a block for a holder, unless a block of another size overlaps it.
    ///
    /// # Errors
    /// [`Error::Overlap`]; [`Error::ClaimedByOther`] if the block has another owner or none; the store's error if
    /// another client wrote first.
    pub async fn claim(&self, key: &AffinityKey, windows: bool) -> Result<Versioned<Block>> {
        if !self.is_calico
            && let Some(existing) = self.overlapping(key.cidr).await?
        {
            return Err(Error::Overlap {
                block: key.cidr,
                existing,
            });
        }
        let pending = self.pending_affinity(key).await?;
        self.claim_block(pending, windows).await
    }

    /// Gives up a node's blocks in a CIDR, if they have the block size of the CIDR's pool. Does not touch other
    /// holders' blocks.
    ///
    /// # Errors
    /// If the CIDR is in no enabled pool or smaller than a block, or if a block in use must be kept. Stops at the first
    /// error.
    pub async fn release_affinity(&self, cidr: IpNet, node: &str, in_use: InUse) -> Result<()> {
        let (config, pool) = self.pool_with_blocks(cidr).await?;
        let query = Query::Affinities {
            kind: AffinityType::Host,
            holder: node.to_owned(),
            family: Family::of(cidr),
        };
        let [entries] = self.read([query]).await?;

        // This includes blocks outside of the pool, since Calico claims blocks there if the CIDR is larger than the
        // pool.
        let mut keys = Vec::new();
        for affinity in affinities_of(entries.into_iter()) {
            let key = affinity.value.key;
            if cidr.contains(&key.cidr) && key.cidr.prefix_len() == pool.block_size {
                keys.push(key);
            }
        }
        keys.sort_by_key(|key| key.cidr);
        for key in keys {
            self.give_up(&key, &config, in_use).await?;
        }
        Ok(())
    }

    /// Gives up all blocks of a holder in both families. Tries all of them, and returns the last error, if any.
    pub async fn release_host_affinities(
        &self,
        kind: AffinityType,
        holder: &str,
        in_use: InUse,
    ) -> Result<()> {
        let query = |family| Query::Affinities {
            kind: kind.clone(),
            holder: holder.to_owned(),
            family,
        };
        let [config, v4, v6] = self
            .read([Query::Get(Key::IpamConfig), query(Family::V4), query(Family::V6)])
            .await?;
        let config = allocator::config(config)?;
        let mut result = Ok(());
        for affinity in affinities_of(v4.into_iter().chain(v6)) {
            let given_up = self.give_up(&affinity.value.key, &config, in_use).await;
            result = given_up.and(result);
        }
        result
    }

    /// Gives up a block. Succeeds even if the block or the affinity is gone, or if another holder owns the block.
    pub async fn give_up(&self, key: &AffinityKey, config: &IpamConfig, in_use: InUse) -> Result<()> {
        match self.give_up_retrying(key, config, in_use).await {
            Err(Error::ClaimedByOther(_) | Error::NoBlock(_) | Error::NoAffinity(_)) => Ok(()),
            other => other,
        }
    }

    /// Gives up a block, and tries again if another process changes it at the same time.
    pub(crate) async fn give_up_retrying(
        &self,
        key: &AffinityKey,
        config: &IpamConfig,
        in_use: InUse,
    ) -> Result<()> {
        for _ in 0..RETRIES {
            let conditions = ReleaseAffinity {
                in_use,
                sequence: None,
            };
            if unless_lost(self.release_affinity_if(key, config, conditions).await)?.is_some() {
                return Ok(());
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Returns the configuration, and the enabled pool that contains a CIDR's first address. Fails if there is no such
    /// pool, or the CIDR is smaller than the pool's blocks.
    pub async fn pool_with_blocks(&self, cidr: IpNet) -> Result<(IpamConfig, Pool)> {
        let (config, pool) = self.config_and_pool(cidr.addr()).await?;
        let pool = pool.ok_or(Error::CidrOutsidePools(cidr))?;
        if cidr.prefix_len() > pool.block_size {
            return Err(Error::CidrTooSmall(cidr));
        }
        Ok((config, pool))
    }
}
