//! Claiming blocks and giving them up by CIDR, host and pool (facts 3.9).

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::pool::Pool;

use crate::affinity::{InUse, ReleaseAffinity};
use crate::allocator::{self, Allocator, RETRIES};
use crate::auto::affinities_of;
use crate::error::{Error, Partly, Result};
use crate::family::Family;
use crate::pools;
use crate::store::{Query, Store, StoreError};
use crate::walk::blocks_in;

/// The blocks that were claimed, and those that belong to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub claimed: Vec<IpNet>,
    pub of_others: Vec<IpNet>,
}

impl<S: Store> Allocator<S> {
    /// Claims all blocks of a CIDR for a holder.
    ///
    /// # Errors
    /// If the CIDR is in no enabled pool or smaller than a block, or the datastore fails. Blocks claimed before the
    /// error stay claimed.
    pub async fn claim_affinity(
        &self,
        cidr: IpNet,
        kind: AffinityType,
        holder: &str,
    ) -> Result<Claimed, Box<Partly<Claimed>>> {
        let mut done = Claimed::default();
        match self.claim_all(cidr, kind, holder, &mut done).await {
            Ok(()) => Ok(done),
            Err(error) => Err(Box::new(Partly { done, error })),
        }
    }

    async fn claim_all(
        &self,
        cidr: IpNet,
        kind: AffinityType,
        holder: &str,
        done: &mut Claimed,
    ) -> Result<()> {
        let (_, pool) = self.pool_with_blocks(cidr).await?;
        for cidr in blocks_of(&pool, cidr) {
            let key = AffinityKey { kind: kind.clone(), node: holder.to_owned(), cidr };
            match self.claim_one(&key).await {
                Ok(()) => done.claimed.push(cidr),
                Err(Error::ClaimedByOther(_) | Error::Overlap { .. }) => done.of_others.push(cidr),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn claim_one(&self, key: &AffinityKey) -> Result<()> {
        self.check_overlap(key.cidr).await?;
        let windows = false;
        for _ in 0..RETRIES {
            let result = match self.pending_affinity(key).await {
                Ok(pending) => self.claim_block(pending, windows).await.map(drop),
                Err(error) => Err(error),
            };
            match result {
                Err(error) if error.is_lost_race() => {}
                other => return other,
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Gives up a node's blocks in a CIDR that have the pool's block size. Leaves blocks of others alone.
    ///
    /// # Errors
    /// If the CIDR is in no enabled pool or smaller than a block, or a block in use must be kept. Stops at the first
    /// error.
    pub async fn release_affinity(&self, cidr: IpNet, node: &str, in_use: InUse) -> Result<()> {
        let (config, pool) = self.pool_with_blocks(cidr).await?;
        let (kind, holder, family) = (AffinityType::Host, node.to_owned(), Family::of(cidr));
        let [found] = self.read([Query::Affinities { kind, holder, family }]).await?;
        let affinities = affinities_of(found.into_iter()).into_iter().map(|affinity| affinity.value.key);
        // Includes blocks outside of the pool: Calico claims blocks there if the CIDR is larger than the pool.
        let mut own: Vec<AffinityKey> = affinities
            .filter(|key| cidr.contains(&key.cidr) && key.cidr.prefix_len() == pool.block_size)
            .collect();
        own.sort_by_key(|key| key.cidr);
        for key in own {
            self.give_up_if_own(&key, &config, in_use).await?;
        }
        Ok(())
    }

    /// Gives up all blocks of a holder in both families.
    pub async fn release_host_affinities(
        &self,
        kind: AffinityType,
        holder: &str,
        in_use: InUse,
    ) -> Result<()> {
        let query = |family| Query::Affinities { kind: kind.clone(), holder: holder.to_owned(), family };
        let [config, v4, v6] =
            self.read([Query::Get(Key::IpamConfig), query(Family::V4), query(Family::V6)]).await?;
        let config = allocator::config(config)?;
        let mut result = Ok(());
        for found in [v4, v6] {
            for affinity in affinities_of(found.into_iter()) {
                let given_up = self.give_up_if_own(&affinity.value.key, &config, in_use).await;
                result = given_up.and(result);
            }
        }
        result
    }

    /// Gives up the blocks of all nodes in a pool.
    pub async fn release_pool_affinities(&self, pool: IpNet) -> Result<()> {
        for _ in 0..RETRIES {
            let [config, found] = self.read([Query::Get(Key::IpamConfig), Query::HostAffinities]).await?;
            let config = allocator::config(config)?;
            let affinities = affinities_of(found.into_iter());
            // If a block has two affinities, Calico gives up the one that is listed last.
            let in_pool = affinities
                .iter()
                .rev()
                .map(|affinity| &affinity.value.key)
                .filter(|key| pool.contains(&key.cidr.addr()));
            let mut is_stale = false;
            for key in in_pool {
                match self.give_up_retrying(key, &config, InUse::Release).await {
                    // The affinity is gone now. Another one can be right.
                    Err(Error::ClaimedByOther(_)) => is_stale = true,
                    Err(Error::NoBlock(_) | Error::NoAffinity(_)) | Ok(()) => {}
                    Err(error) => return Err(error),
                }
            }
            if !is_stale {
                return Ok(());
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Gives up all blocks of a host, and deletes its etcd entry. Its addresses stay allocated.
    pub async fn remove_host(&self, kind: AffinityType, holder: &str) -> Result<()> {
        for _ in 0..RETRIES {
            self.release_host_affinities(kind.clone(), holder, InUse::Release).await?;
            let [found] = self.read([Query::Get(Key::IpamHost(holder.to_owned()))]).await?;
            let Some(entry) = found.first() else { return Ok(()) };
            match self.store().delete(entry).await {
                Ok(()) | Err(StoreError::NotFound(_)) => return Ok(()),
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Gives up a block. It is no error if the block is gone or belongs to another holder.
    pub(crate) async fn give_up_if_own(
        &self,
        key: &AffinityKey,
        config: &IpamConfig,
        in_use: InUse,
    ) -> Result<()> {
        match self.give_up_retrying(key, config, in_use).await {
            Err(Error::ClaimedByOther(_) | Error::NoBlock(_) | Error::NoAffinity(_)) => Ok(()),
            other => other,
        }
    }

    async fn give_up_retrying(&self, key: &AffinityKey, config: &IpamConfig, in_use: InUse) -> Result<()> {
        for _ in 0..RETRIES {
            match self.release_affinity_if(key, config, ReleaseAffinity { in_use, sequence: None }).await {
                Err(error) if error.is_lost_race() => {}
                other => return other,
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Returns the configuration, and the enabled pool of a CIDR that is at least as large as the pool's blocks.
    async fn pool_with_blocks(&self, cidr: IpNet) -> Result<(IpamConfig, Pool)> {
        let [config, pools] = self.read([Query::Get(Key::IpamConfig), Query::Pools]).await?;
        let pools = pools::pools(pools);
        let pool = pools::enabled_pool_of(&pools, cidr.addr()).ok_or(Error::CidrOutsidePools(cidr))?;
        if cidr.prefix_len() > pool.block_size {
            return Err(Error::CidrTooSmall(cidr));
        }
        Ok((allocator::config(config)?, pool.clone()))
    }
}

/// The blocks of a pool in a CIDR. The CIDR can be larger than the pool.
fn blocks_of(pool: &Pool, cidr: IpNet) -> impl Iterator<Item = IpNet> {
    let within = if cidr.contains(&pool.cidr) { pool.cidr } else { cidr };
    blocks_in(within, pool.block_size)
}
