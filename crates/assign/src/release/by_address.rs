//! Releasing given addresses (facts 3.6).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::sync::OnceLock;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::cidr;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;

use super::{By, ByBlock, Losses, Release, Released, Settings, block_after_release};
use crate::affinity::block_of;
use crate::allocator::{self, Allocator, RETRIES};
use crate::error::{Error, Partly, Result, unless_lost};
use crate::family::Family;
use crate::handle::KnownHandle;
use crate::pools;
use crate::store::{Query, Store};

impl<S: Store> Allocator<S> {
    /// Releases allocated addresses. If an address does not have the handle or sequence number that its request
    /// expects, no address in the same block is released. Addresses in other blocks still are.
    pub async fn release_ips(&self, requests: &[Release]) -> Result<Released, Box<Partly<Released>>> {
        let mut done = Released::default();
        match self.release_all(requests, &mut done).await {
            Ok(()) => Ok(done),
            Err(error) => Err(Box::new(Partly { done, error })),
        }
    }

    /// Releases addresses block by block, and adds to `done` what was released. Goes on with the next block after an
    /// error, and returns the first one.
    async fn release_all(&self, requests: &[Release], done: &mut Released) -> Result<()> {
        let [config, pools] = self.read([Query::Get(Key::IpamConfig), Query::Pools]).await?;
        let settings = Settings {
            config: allocator::config(config)?,
            pools: OnceLock::from(pools::pools(pools)),
        };
        let by_block = self.group_by_block(requests, &settings, done).await?;

        let mut result = Ok(());
        for (block, requests) in by_block {
            match self.release_from(block, &requests, &settings).await {
                Ok(not_allocated) => {
                    done.not_allocated.extend(not_allocated);
                    done.without_error.extend(requests);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Groups requests by the block of their address, and cleans their handle IDs. Adds addresses outside of all pools
    /// and blocks to `done` as not allocated.
    async fn group_by_block(
        &self,
        requests: &[Release],
        settings: &Settings,
        done: &mut Released,
    ) -> Result<ByBlock> {
        let pools = self.pools_of(settings).await?;
        let mut by_block = ByBlock::new();
        let mut listed: BTreeMap<Family, Vec<IpNet>> = BTreeMap::new();
        for request in requests {
            let mut request = request.clone();
            let handle = request.handle.map(|id| clean_id(&id).to_owned());
            request.handle = handle.filter(|id| !id.is_empty());

            let address = request.address;
            let pool = pools::pool_of(pools, address);
            let mut block = pool.and_then(|pool| cidr::block_around(address, pool.block_size));
            if block.is_none() {
                // An address outside of all pools can still be in a block. The blocks are listed once per family.
                let existing = match listed.entry(Family::of_address(address)) {
                    Entry::Occupied(blocks) => blocks.into_mut(),
                    Entry::Vacant(entry) => {
                        let family = *entry.key();
                        entry.insert(self.block_cidrs(family).await?)
                    }
                };
                block = existing.iter().copied().find(|cidr| cidr.contains(&address));
            }

            match block {
                Some(block) => by_block.entry(block).or_default().push(request),
                None => done.not_allocated.push(address),
            }
        }
        Ok(by_block)
    }

    /// The CIDRs of all blocks of a family, including those that cannot be decoded.
    async fn block_cidrs(&self, family: Family) -> Result<Vec<IpNet>> {
        let [found] = self.read([Query::Blocks(family)]).await?;
        Ok(found.iter().filter_map(block_of).collect())
    }

    /// Releases addresses in a block, and returns those that were not allocated.
    ///
    /// An address that is not allocated in the block can be allocated in one that dates from before the pool's block
    /// size was changed. Such an address is released there.
    async fn release_from(
        &self,
        block: IpNet,
        requests: &[Release],
        settings: &Settings,
    ) -> Result<Vec<IpAddr>> {
        let mut not_allocated = self.release_from_block(block, requests, settings).await?;
        let mut elsewhere = ByBlock::new();
        for address in &not_allocated {
            if let Some(old_block) = self.other_block_of(*address, block).await? {
                let requests = requests.iter().filter(|request| request.address == *address);
                elsewhere.entry(old_block).or_default().extend(requests.cloned());
            }
        }

        // What the old blocks released was allocated after all.
        for (old_block, in_old_block) in elsewhere {
            let still_not = self
                .release_from_block(old_block, &in_old_block, settings)
                .await?;
            let mut released: Vec<IpAddr> = in_old_block.iter().map(|request| request.address).collect();
            released.retain(|address| !still_not.contains(address));
            not_allocated.retain(|address| !released.contains(address));
        }
        Ok(not_allocated)
    }

    /// Returns the block in which the address is allocated, other than `block`.
    async fn other_block_of(&self, address: IpAddr, block: IpNet) -> Result<Option<IpNet>> {
        for other in self.blocks_around(address).await? {
            let allocation = other.value.allocation_of(address);
            let is_allocated = allocation.is_some_and(|allocation| !allocation.attribute.is_cooling());
            if is_allocated && other.value.cidr() != block {
                return Ok(Some(other.value.cidr()));
            }
        }
        Ok(None)
    }

    /// Releases addresses in one block, and returns those that were not allocated in it.
    async fn release_from_block(
        &self,
        cidr: IpNet,
        requests: &[Release],
        settings: &Settings,
    ) -> Result<Vec<IpAddr>> {
        for _ in 0..RETRIES {
            let Some(before) = self.block(cidr).await? else {
                return Ok(requests.iter().map(|request| request.address).collect());
            };
            let now = self.now();
            let current = before.value.without_cooled(now, settings.config.cooldown());
            let losses = losses(&current, requests)?;
            // Like Calico, writes the block unchanged if requests name an unassigned address twice.
            if losses.not_allocated.len() == requests.len() {
                return Ok(losses.not_allocated);
            }

            let mut handles = self.handles(losses.handles.keys()).await?;
            let after = block_after_release(
                &before.value,
                &losses.ordinals,
                By::Address,
                &settings.config,
                now,
            );
            if unless_lost(self.write_released(&before, &after).await)?.is_none() {
                continue;
            }
            for ((id, count), known) in losses.handles.iter().zip(&mut handles) {
                self.decrement_or_warn(id, cidr, *count, known).await;
            }
            self.keep_affinity_consistent(settings, &after).await;
            return Ok(losses.not_allocated);
        }
        Err(Error::TooManyConflicts)
    }

    /// Reads several handles in one round trip. A handle that cannot be decoded counts as unread: the decrement reads it
    /// again, and logs the error.
    async fn handles(&self, ids: impl Iterator<Item = &String>) -> Result<Vec<KnownHandle>> {
        let queries: Vec<Query> = ids.map(|id| Query::Get(Key::Handle(id.clone()))).collect();
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.store().read(&queries).await?;
        let mut handles = Vec::with_capacity(answers.len());
        for answer in answers {
            handles.push(match allocator::one(answer) {
                Ok(stored) => KnownHandle::from(stored),
                Err(_) => KnownHandle::Unread,
            });
        }
        Ok(handles)
    }
}

/// Collects the addresses to release in a block. Checks each address in Calico's order: sequence number, allocation,
/// handle.
fn losses(block: &Block, requests: &[Release]) -> Result<Losses> {
    // Of several requests for an address, the last one counts.
    let mut by_address: BTreeMap<IpAddr, &Release> = BTreeMap::new();
    for request in requests {
        by_address.insert(request.address, request);
    }

    let mut losses = Losses::default();
    for (address, request) in by_address {
        let Some(ordinal) = cidr::ordinal_of(block.cidr(), address) else {
            continue;
        };
        if let Some(sequence) = request.sequence
            && sequence != block.sequence_of(ordinal)
        {
            return Err(Error::Changed(address));
        }

        let allocation = block.allocation(ordinal);
        let Some(allocation) = allocation.filter(|allocation| !allocation.attribute.is_cooling()) else {
            losses.not_allocated.push(address);
            continue;
        };
        let handle = allocation.attribute.to_attribute().handle.unwrap_or_default();
        let id = clean_id(&handle);
        if let Some(expected) = &request.handle
            && expected != id
        {
            return Err(Error::Changed(address));
        }
        losses.ordinals.push(ordinal);
        if !id.is_empty() {
            *losses.handles.entry(id.to_owned()).or_default() += 1;
        }
    }
    Ok(losses)
}
