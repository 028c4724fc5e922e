//! The owners of assigned addresses: reading them, and setting them for KubeVirt (facts 2.14).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;

use crate::allocator::{self, Allocator, RETRIES};
use crate::error::{Error, Result, unless_lost};
use crate::pools;
use crate::record::Record;
use crate::store::{Query, Store};

pub type OwnerAttributes = BTreeMap<String, String>;

/// A change to the attributes of an address's active or alternate owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NewOwner {
    #[default]
    Keep,
    Set(OwnerAttributes),
    Clear,
}

/// Changes to both owners of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerUpdates {
    /// The owner that uses the address.
    pub active: NewOwner,
    /// The other owner during a live migration.
    pub alternate: NewOwner,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

/// The owner that an address must have before a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    #[default]
    Any,
    /// No owner, or one without attributes.
    None,
    Pod(PodName),
}

/// Conditions for changing owners. If an owner is kept, the condition for it is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerConditions {
    pub active: Expected,
    pub alternate: Expected,
}

impl<S: Store> Allocator<S> {
    /// The owner record of an assigned address.
    ///
    /// # Errors
    /// [`Error::NotAssigned`], [`Error::InCooldown`], or an error if no pool or block contains the address.
    pub async fn assignment_attributes(&self, address: IpAddr) -> Result<Attribute> {
        let (config, pool) = self.config_and_pool(address).await?;
        let pool = pool.ok_or(Error::NoPoolOf(address))?;
        let stored = self.block_of(address, &pool).await?;
        let block = stored.value.without_cooled(self.now(), config.cooldown());
        let held = block.allocation_of(address).ok_or(Error::NotAssigned(address))?;
        if held.attribute.is_cooling() {
            return Err(Error::InCooldown(address));
        }
        let mut record = held.attribute.to_attribute();
        record.handle = record.handle.map(|id| clean_id(&id).to_owned());
        Ok(record)
    }

    /// Changes the owner attributes of an address that belongs to a handle.
    ///
    /// # Errors
    /// [`Error::NotAssigned`], [`Error::NotOfHandle`], [`Error::Changed`] if an owner is not the expected one, or an
    /// error if no pool or block contains the address. In all these cases, nothing is changed.
    pub async fn set_owner_attributes(
        &self,
        address: IpAddr,
        handle: &str,
        updates: &OwnerUpdates,
        conditions: &OwnerConditions,
    ) -> Result<()> {
        let (config, pool) = self.config_and_pool(address).await?;
        let pool = pool.ok_or(Error::OwnerOutsidePools(address))?;
        for _ in 0..RETRIES {
            let mut block = self.block_of(address, &pool).await?;
            let current = block.value.without_cooled(self.now(), config.cooldown());
            let held = current
                .allocation_of(address)
                .ok_or(Error::NotAssigned(address))?;
            let record = held.attribute.to_attribute();
            if record.handle.as_deref().map(clean_id) != Some(handle) {
                return Err(Error::NotOfHandle {
                    address,
                    handle: handle.to_owned(),
                });
            }
            check_expected(&record.owner, &updates.active, &conditions.active, address)?;
            let expected_alternate = &conditions.alternate;
            check_expected(&record.alternate, &updates.alternate, expected_alternate, address)?;

            let now = self.now();
            let edited = block.value.update(|update| {
                update.collect_cooled(now, config.cooldown());
                update.edit_record(held.ordinal, |record| {
                    set(&mut record.owner, &updates.active);
                    set(&mut record.alternate, &updates.alternate);
                })
            });
            edited.map_err(|_| Error::NotAssigned(address))?;
            let record = Record::Block(Arc::new(block.value));
            if unless_lost(self.store().update(&record, &block.revision).await)?.is_some() {
                return Ok(());
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Returns the block that contains an address. If there are several, prefers the one of the pool's block size, then
    /// the smallest.
    async fn block_of(&self, address: IpAddr, pool: &Pool) -> Result<Versioned<Block>> {
        let cidr = cidr::block_around(address, pool.block_size).unwrap_or(IpNet::from(address));
        if let Some(block) = self.block(cidr).await? {
            return Ok(block);
        }
        if self.is_calico {
            return Err(Error::NoBlock(cidr));
        }
        self.blocks_around(address)
            .await?
            .pop()
            .ok_or(Error::NoBlock(cidr))
    }

    /// The configuration, and the enabled pool that contains an address.
    pub(crate) async fn config_and_pool(&self, address: IpAddr) -> Result<(IpamConfig, Option<Pool>)> {
        let [config, pools] = self.read([Query::Get(Key::IpamConfig), Query::Pools]).await?;
        let pools = pools::pools(pools);
        let pool = pools::enabled_pool_of(&pools, address).cloned();
        Ok((allocator::config(config)?, pool))
    }
}

/// Checks that the owner is the expected one, unless `update` keeps it.
///
/// # Errors
/// [`Error::Changed`] if it is not.
fn check_expected(
    owner: &Option<OwnerAttributes>,
    update: &NewOwner,
    expected: &Expected,
    address: IpAddr,
) -> Result<()> {
    if *update == NewOwner::Keep {
        return Ok(());
    }

    let attribute = |name: &str| owner.as_ref().and_then(|owner| owner.get(name));
    let is_unowned = owner.as_ref().is_none_or(BTreeMap::is_empty);
    let is_expected = match expected {
        Expected::Any => true,
        Expected::None => is_unowned,
        // Calico treats a pod with an empty namespace and an empty name as no pod.
        Expected::Pod(pod) if pod.namespace.is_empty() && pod.name.is_empty() => is_unowned,
        Expected::Pod(pod) => {
            attribute("pod") == Some(&pod.name) && attribute("namespace") == Some(&pod.namespace)
        }
    };
    if !is_expected {
        return Err(Error::Changed(address));
    }
    Ok(())
}

/// Applies an update to an owner in a record.
fn set(owner: &mut Option<OwnerAttributes>, update: &NewOwner) {
    match update {
        NewOwner::Keep => {}
        NewOwner::Set(attributes) => *owner = Some(attributes.clone()),
        NewOwner::Clear => *owner = None,
    }
}
