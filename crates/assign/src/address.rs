//! Assignment of one given address (facts 3.3).

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;

use crate::allocator::{self, Allocator, RETRIES};
use crate::auto::{self, attribute, check_owner};
use crate::error::{Error, Result};
use crate::event::{Event, PoolPassedOver};
use crate::family::Family;
use crate::handle::{Increment, KnownHandle};
use crate::pools;
use crate::request::AssignIp;
use crate::store::{Query, Store};

impl<S: Store> Allocator<S> {
    /// Assigns one given address. If its block does not exist, claims it for the host. Reservations are ignored.
    ///
    /// # Errors
    /// If the address is taken or in no enabled pool, if the pool's allowed uses or strict affinity forbid the
    /// assignment, or if the handle is at its limit.
    pub async fn assign_ip(&self, request: &AssignIp) -> Result<()> {
        let address = request.address;
        let mut queries = vec![Query::Get(Key::IpamConfig), Query::Pools];
        if let Some(id) = &request.handle {
            queries.push(Query::Get(Key::Handle(id.clone())));
        }
        // The answers are in the order of the queries. A request without a handle has none about it.
        let mut answers = self.store().read(&queries).await?.into_iter();
        let config = answers.next().unwrap_or_default();
        let pools = pools::pools(answers.next().unwrap_or_default());
        let mut handle = match answers.next() {
            Some(answer) => allocator::one(answer)?.into(),
            None => KnownHandle::Unread,
        };

        let pool = self.pool_for(request, &pools)?;
        let config = allocator::config(config)?;
        if request.windows && !config.serves_windows() {
            return Err(Error::WindowsNeedsStrictAffinity);
        }
        let cidr = cidr::block_around(address, pool.block_size).ok_or(Error::AddressOutsidePools(address))?;
        self.assign_in(request, cidr, &config, &mut handle).await
    }

    /// Returns the enabled pool that contains the address, and records why other pools are passed over.
    ///
    /// # Errors
    /// If there is no such pool, or its allowed uses forbid the assignment.
    fn pool_for<'p>(&self, request: &AssignIp, pools: &'p [Pool]) -> Result<&'p Pool> {
        let address = request.address;
        let pass_over = |pool: &Pool, why: PoolPassedOver| {
            self.trace.record(|| Event::PoolPassedOver {
                pool: pool.name.clone(),
                cidr: pool.cidr,
                why,
            });
        };
        for pool in pools {
            if pool.cidr.contains(&address)
                && let Some(why) = PoolPassedOver::of_state(pool)
            {
                pass_over(pool, why);
            }
        }

        let pool = pools::enabled_pool_of(pools, address).ok_or(Error::AddressOutsidePools(address))?;
        if let Some(wanted) = request.intended_use
            && !pool.allows(wanted)
        {
            pass_over(pool, PoolPassedOver::Use(wanted));
            return Err(Error::UseNotAllowed {
                address,
                pool: pool.name.clone(),
                wanted,
                allowed: pool.allowed_uses.clone(),
            });
        }
        self.trace.record(|| Event::PoolServes {
            pool: pool.name.clone(),
            cidr: pool.cidr,
        });
        Ok(pool)
    }

    /// Assigns the address in its block at `cidr`, and tries again if other clients write first.
    async fn assign_in(
        &self,
        request: &AssignIp,
        cidr: IpNet,
        config: &IpamConfig,
        handle: &mut KnownHandle,
    ) -> Result<()> {
        for _ in 0..RETRIES {
            match self.try_assign(request, cidr, config, handle).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) if error.is_lost_race() => {}
                // Another client has just claimed the block. The next attempt finds it.
                Err(Error::ClaimedByOther(_)) if !self.is_calico => {}
                Err(error @ Error::InProgress { .. }) => tracing::debug!(%error, "trying again"),
                Err(error) => return Err(error),
            }
        }
        Err(Error::TooManyConflicts)
    }

    /// Makes one attempt to assign the address; false if another client wrote first.
    async fn try_assign(
        &self,
        request: &AssignIp,
        cidr: IpNet,
        config: &IpamConfig,
        handle: &mut KnownHandle,
    ) -> Result<bool> {
        let key = AffinityKey {
            kind: auto::holder_kind(request.intended_use),
            node: request.host.clone(),
            cidr,
        };
        let block = self.find_or_claim(request, &key).await?;
        let cidr = block.value.cidr();
        if !config.may_borrow() {
            check_owner(&block.value, &key.owner())?;
        }

        let record = attribute(request.handle.as_deref(), request.attributes.as_ref());
        let Some((ordinal, after)) = self.assigned_in_copy(&block.value, request.address, config, &record)
        else {
            if self.handle_has_address(&block.value, request, config) {
                return Ok(true);
            }
            return Err(Error::AlreadyAssigned(request.address));
        };

        if let Some(id) = &request.handle {
            match self
                .increment(id, cidr, 1, request.max_per_handle, handle)
                .await?
            {
                Increment::Done => {}
                Increment::Full => return self.check_full_handle(id, request).await,
            }
        }
        let is_made = self.write_assignment(&block, after, &[ordinal], &record).await?;
        if is_made {
            self.trace.record(|| Event::Assigned {
                block: cidr,
                owner: block.value.owner().cloned(),
                addresses: vec![request.address],
            });
        } else if let Some(id) = &request.handle {
            // Calico does not decrement the handle here.
            self.decrement_or_warn(id, cidr, 1, handle).await;
        }
        Ok(is_made)
    }

    /// Returns the block that contains the address. If there is none, claims the block of `key`.
    async fn find_or_claim(&self, request: &AssignIp, key: &AffinityKey) -> Result<Versioned<Block>> {
        let address = request.address;
        if let Some(block) = self.block_for(address, key.cidr).await? {
            self.trace.record(|| Event::BlockOfAddress {
                address,
                block: block.value.cidr(),
                owner: block.value.owner().cloned(),
            });
            return Ok(block);
        }
        self.trace.record(|| Event::NoBlockOfAddress {
            address,
            block: key.cidr,
        });
        // Calico reserves no addresses for Windows in a block that it makes for a given address.
        let windows = request.windows && address.is_ipv4() && !self.is_calico;
        self.claim(key, windows).await
    }

    /// Returns the block that contains an address. If there are several, prefers one in which the address is allocated,
    /// then the one at `cidr`, then the largest.
    async fn block_for(&self, address: IpAddr, cidr: IpNet) -> Result<Option<Versioned<Block>>> {
        // Calico looks only for the block of the pool's block size.
        if self.is_calico {
            return self.block(cidr).await;
        }
        let blocks = self.blocks_around(address).await?;
        let is_allocated_in = |block: &&Versioned<Block>| block.value.allocation_of(address).is_some();
        let is_at_cidr = |block: &&Versioned<Block>| block.value.cidr() == cidr;
        let chosen = blocks
            .iter()
            .find(is_allocated_in)
            .or_else(|| blocks.iter().find(is_at_cidr))
            .or(blocks.first());
        Ok(chosen.cloned())
    }

    /// Assigns an address to the owner `record` in a copy of the block, and returns the address's ordinal and the copy.
    /// `None` if the block does not contain the address, or if the address is taken.
    fn assigned_in_copy(
        &self,
        block: &Block,
        address: IpAddr,
        config: &IpamConfig,
        record: &Attribute,
    ) -> Option<(u32, Block)> {
        let now = self.now();
        let ordinal = cidr::ordinal_of(block.cidr(), address)?;
        let mut copy = block.clone();
        let assigned = copy.update(|update| {
            // The address can be one whose cooldown is over.
            update.collect_cooled(now, config.cooldown());
            update.assign(ordinal, record)
        });
        if assigned.is_err() {
            return None;
        }
        Some((ordinal, copy))
    }

    /// True if the request has a limit and its handle already has the address.
    fn handle_has_address(&self, block: &Block, request: &AssignIp, config: &IpamConfig) -> bool {
        let block = block.without_cooled(self.now(), config.cooldown());
        let Some(allocation) = block.allocation_of(request.address) else {
            return false;
        };
        let attribute = allocation.attribute.to_attribute();
        let (Some(recorded), Some(requested)) = (&attribute.handle, &request.handle) else {
            return false;
        };
        request.max_per_handle > 0 && calipam_model::handle::clean_id(recorded) == requested.as_str()
    }

    /// Returns true if a handle at its limit already has the requested address, so that nothing has to be assigned.
    ///
    /// # Errors
    /// If the handle has other addresses of the family instead, or none yet.
    async fn check_full_handle(&self, id: &str, request: &AssignIp) -> Result<bool> {
        let of_family = self.held_by(id, Family::of_address(request.address)).await?;
        if of_family.contains(&request.address) {
            return Ok(true);
        }
        if of_family.is_empty() {
            return Err(Error::InProgress {
                handle: id.to_owned(),
                existing: 0,
                required: 1,
            });
        }
        Err(Error::HandleIsFull {
            handle: id.to_owned(),
            address: request.address,
            max: request.max_per_handle,
        })
    }
}
