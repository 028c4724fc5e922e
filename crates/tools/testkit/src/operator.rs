//! Operations of Calico's allocator that human operators start. No program of calipam needs them, but tests use them to
//! prepare clusters, and recorded runs of Calico contain them.

use calipam_assign::{Allocator, Entry, Error, InUse, Partly, Query, Record, Store, StoreError};
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use ipnet::IpNet;

/// The maximum number of attempts if other clients keep writing first, the same as Calico's.
const RETRIES: usize = 100;

/// The blocks that were claimed, and those that belong to other holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub claimed: Vec<IpNet>,
    pub of_others: Vec<IpNet>,
}

/// The reason why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The settings would allow addresses neither from new blocks nor from blocks of other nodes.
    #[error("Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time")]
    NeitherStrictNorAutomatic,
    #[error("MaxBlocksPerHost requires StrictAffinity to be enabled")]
    LimitNeedsStrictAffinity,
    #[error(transparent)]
    Allocator(#[from] Error),
}

/// Claims all blocks of a CIDR for a holder.
///
/// # Errors
/// Returns an error if no enabled pool contains the CIDR, if the CIDR is smaller than a block, or if the datastore
/// fails. Blocks that were claimed before the error stay claimed.
pub async fn claim_affinity(
    allocator: &Allocator<impl Store>,
    cidr: IpNet,
    kind: AffinityType,
    holder: &str,
) -> Result<Claimed, Box<Partly<Claimed>>> {
    let mut done = Claimed::default();
    let claim_all = async {
        let (_, pool) = allocator.pool_with_blocks(cidr).await?;
        // The CIDR can be larger than the pool.
        let within = if cidr.contains(&pool.cidr) {
            pool.cidr
        } else {
            cidr
        };
        for cidr in within.trunc().subnets(pool.block_size).into_iter().flatten() {
            let key = AffinityKey {
                kind: kind.clone(),
                node: holder.to_owned(),
                cidr,
            };
            match claim_one(allocator, &key).await {
                Ok(()) => done.claimed.push(cidr),
                Err(Error::ClaimedByOther(_) | Error::Overlap { .. }) => done.of_others.push(cidr),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    match claim_all.await {
        Ok(()) => Ok(done),
        Err(error) => Err(Box::new(Partly { done, error })),
    }
}

/// Releases the affinities of all nodes for the blocks of a pool.
pub async fn release_pool_affinities(allocator: &Allocator<impl Store>, pool: IpNet) -> Result<(), Error> {
    let config = allocator.config().await?;
    let found = allocator.store().read(&[Query::HostAffinities]).await?;
    let key = |entry: Entry| match entry.record {
        Record::Affinity(affinity) => Some(affinity.key),
        _ => None,
    };
    let mut keys: Vec<AffinityKey> = found.into_iter().flatten().filter_map(key).collect();
    keys.retain(|key| pool.contains(&key.cidr.addr()));
    keys.sort_by_cached_key(|key| Key::Affinity(key.clone()).to_string());
    // If a block has two affinities, Calico releases the one that is listed last.
    for key in keys.iter().rev() {
        allocator.give_up(key, &config, InUse::Release).await?;
    }
    Ok(())
}

/// Releases all blocks of a host, and deletes its etcd entry. Its addresses stay allocated.
pub async fn remove_host(
    allocator: &Allocator<impl Store>,
    kind: AffinityType,
    holder: &str,
) -> Result<(), Error> {
    for _ in 0..RETRIES {
        allocator
            .release_host_affinities(kind.clone(), holder, InUse::Release)
            .await?;
        let found = allocator
            .store()
            .read(&[Query::Get(Key::IpamHost(holder.to_owned()))])
            .await?;
        let Some(entry) = found.iter().flatten().next() else {
            return Ok(());
        };
        match allocator.store().delete(entry).await {
            Ok(()) | Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) if error.is_lost_race() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::TooManyConflicts)
}

/// Changes the configuration. Like Calico, writes even an unchanged configuration if it has a setting for virtual
/// machines.
///
/// # Errors
/// Returns an error if the settings exclude each other, or another client changes them at the same time.
pub async fn set_config(
    allocator: &Allocator<impl Store>,
    change: impl FnOnce(&mut IpamConfig),
) -> Result<(), SettingsError> {
    let found = allocator
        .store()
        .read(&[Query::Get(Key::IpamConfig)])
        .await
        .map_err(Error::from)?;
    let before = allocator.config().await?;
    let mut config = before;
    change(&mut config);
    if config == before && before.kubevirt_persistence.is_none() {
        return Ok(());
    }
    if !config.strict_affinity && !config.auto_allocate_blocks {
        return Err(SettingsError::NeitherStrictNorAutomatic);
    }
    if config.max_blocks_per_host > 0 && !config.strict_affinity {
        return Err(SettingsError::LimitNeedsStrictAffinity);
    }
    let record = Record::Config(config);
    let written = match found.iter().flatten().next() {
        Some(entry) => allocator.store().update(&record, &entry.revision).await,
        None => allocator.store().create(&record).await,
    };
    Ok(written.map(drop).map_err(Error::from)?)
}

async fn claim_one(allocator: &Allocator<impl Store>, key: &AffinityKey) -> Result<(), Error> {
    for _ in 0..RETRIES {
        match allocator.claim(key, false).await {
            Err(Error::Store(error)) if error.is_lost_race() => {}
            other => return other.map(drop),
        }
    }
    Err(Error::TooManyConflicts)
}
