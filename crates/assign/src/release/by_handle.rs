//! Releasing and finding the addresses of a handle (facts 3.7).

use std::net::IpAddr;
use std::sync::OnceLock;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;
use calipam_model::handle::{Handle, clean_id};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use super::{By, Settings, block_after_release, unless_undecodable};
use crate::allocator::{self, Allocator, RETRIES};
use crate::auto::affinities_of;
use crate::error::{Error, Result, unless_lost};
use crate::family::Family;
use crate::handle::{KnownHandle, ordinals_of};
use crate::store::{Query, Store};

/// The policy for addresses that a handle counts but no block records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftovers {
    /// The addresses stay counted, as in Calico.
    Keep,
    /// The counts are removed. A concurrent allocation fails to write its block and starts again.
    Remove,
}

impl<S: Store> Allocator<S> {
    /// Releases all addresses of a handle, as Calico does. If the handle counts more addresses than the blocks record
    /// under it, it keeps the surplus counts. A block that cannot be decoded is logged and skipped, and the handle
    /// keeps its count for the block.
    ///
    /// # Errors
    /// [`Error::NoHandle`] if there is no such handle; otherwise the first error of a block, after trying all blocks.
    pub async fn release_by_handle(&self, handle: &str) -> Result<()> {
        self.release_handle(handle, Leftovers::Keep).await
    }

    /// Releases all addresses of a handle and removes its surplus counts, which finishes an interrupted release.
    pub async fn release_by_handle_fully(&self, handle: &str) -> Result<()> {
        self.release_handle(handle, Leftovers::Remove).await
    }

    /// Releases all addresses of a handle, block by block. Goes on with the next block after an error, and returns the
    /// first one.
    async fn release_handle(&self, handle: &str, leftovers: Leftovers) -> Result<()> {
        let id = clean_id(handle);
        let [found, config] = self
            .read([
                Query::Get(Key::Handle(id.to_owned())),
                Query::Get(Key::IpamConfig),
            ])
            .await?;
        let found = allocator::one::<Handle>(found)?.ok_or_else(|| Error::NoHandle(id.to_owned()))?;
        let settings = Settings {
            config: allocator::config(config)?,
            pools: OnceLock::new(),
        };

        let cidrs: Vec<IpNet> = found.value.blocks().map(|(cidr, _)| cidr).collect();
        let blocks = self.each_block(&cidrs).await?;
        let mut known = KnownHandle::Stored(found);
        let mut result = Ok(());
        for (cidr, block) in cidrs.into_iter().zip(blocks) {
            let released = match block {
                Ok(block) => {
                    self.release_handle_and_leftovers(id, cidr, block, leftovers, &settings, &mut known)
                        .await
                }
                Err(error) => Err(error),
            };
            result = result.and(unless_undecodable(released));
        }
        result
    }

    /// Releases the addresses of a handle in a block and, if leftovers are to be removed, lowers the handle's count.
    async fn release_handle_and_leftovers(
        &self,
        id: &str,
        cidr: IpNet,
        mut block: Option<Versioned<Block>>,
        leftovers: Leftovers,
        settings: &Settings,
        known: &mut KnownHandle,
    ) -> Result<()> {
        loop {
            self.release_handle_in(id, cidr, block, settings, known).await?;
            if leftovers == Leftovers::Keep || self.recount(id, cidr, known).await? == 0 {
                return Ok(());
            }
            // A write from an earlier call may have taken effect since.
            block = self.block(cidr).await?;
        }
    }

    /// Releases the addresses of a handle in a block. `first` is the block as the caller has read it.
    async fn release_handle_in(
        &self,
        id: &str,
        cidr: IpNet,
        first: Option<Versioned<Block>>,
        settings: &Settings,
        known: &mut KnownHandle,
    ) -> Result<()> {
        let mut first = Some(first);
        for _ in 0..RETRIES {
            let found = match first.take() {
                Some(found) => found,
                None => self.block(cidr).await?,
            };
            let Some(before) = found else { return Ok(()) };
            let now = self.now();
            let ordinals = ordinals_of(&before.value, id);
            if ordinals.is_empty() {
                return Ok(());
            }

            *known = self.latest(id, known).await?.into();
            let after = block_after_release(&before.value, &ordinals, By::Handle, &settings.config, now);
            if unless_lost(self.write_released(&before, &after).await)?.is_none() {
                continue;
            }
            self.decrement_or_warn(id, cidr, ordinals.len() as u32, known)
                .await;
            self.keep_affinity_consistent(settings, &after).await;
            return Ok(());
        }
        Err(Error::TooManyConflicts)
    }

    /// The addresses of a handle, ascending within each block. Skips blocks that no longer exist.
    ///
    /// # Errors
    /// [`Error::NoHandle`] if there is no such handle.
    pub async fn ips_by_handle(&self, handle: &str) -> Result<Vec<IpAddr>> {
        let cidrs = self.cidrs_of(handle).await?;
        let mut addresses = Vec::new();
        for block in self.blocks(&cidrs).await?.into_iter().flatten() {
            addresses.extend(addresses_of(&block.value, handle));
        }
        Ok(addresses)
    }

    /// A handle's addresses of one family; empty if there is no such handle.
    pub(crate) async fn held_by(&self, handle: &str, family: Family) -> Result<Vec<IpAddr>> {
        let mut held = match self.ips_by_handle(handle).await {
            Err(Error::NoHandle(_)) => Vec::new(),
            found => found?,
        };
        held.retain(|address| Family::of_address(*address) == family);
        Ok(held)
    }

    /// The addresses of a handle in readable blocks. Logs blocks that cannot be decoded.
    ///
    /// # Errors
    /// [`Error::NoHandle`] if there is no such handle.
    pub async fn readable_ips_by_handle(&self, handle: &str) -> Result<Vec<IpAddr>> {
        let blocks = self.readable_blocks(&self.cidrs_of(handle).await?).await?;
        Ok(blocks
            .iter()
            .flat_map(|block| addresses_of(block, handle))
            .collect())
    }

    async fn cidrs_of(&self, handle: &str) -> Result<Vec<IpNet>> {
        let found: Option<Versioned<Handle>> = self.get(Key::Handle(handle.to_owned())).await?;
        let found = found.ok_or_else(|| Error::NoHandle(handle.to_owned()))?;
        Ok(found.value.blocks().map(|(cidr, _)| cidr).collect())
    }

    /// The addresses that blocks of `host` record under a handle, even if the handle object is missing. Skips blocks
    /// that cannot be decoded.
    pub async fn search_handle(&self, handle: &str, host: &str) -> Result<Vec<IpAddr>> {
        let query = |family| Query::Affinities {
            kind: AffinityType::Host,
            holder: host.to_owned(),
            family,
        };
        let entries = self.read(Family::BOTH.map(query)).await?;
        let mut cidrs = Vec::new();
        for affinity in affinities_of(entries.into_iter().flatten()) {
            cidrs.push(affinity.value.key.cidr);
        }

        let mut addresses = Vec::new();
        for block in self.readable_blocks(&cidrs).await? {
            addresses.extend(addresses_of(&block, clean_id(handle)));
        }
        Ok(addresses)
    }

    /// Reads blocks, without those that do not exist or cannot be decoded.
    async fn readable_blocks(&self, cidrs: &[IpNet]) -> Result<Vec<Block>> {
        let mut readable = Vec::with_capacity(cidrs.len());
        for found in self.each_block(cidrs).await? {
            match found {
                Ok(Some(block)) => readable.push(block.value),
                Ok(None) => {}
                Err(error) => unless_undecodable(Err(error))?,
            }
        }
        Ok(readable)
    }
}

fn addresses_of(block: &Block, id: &str) -> Vec<IpAddr> {
    let address = |ordinal| calipam_model::cidr::address_at(block.cidr(), ordinal);
    ordinals_of(block, id).into_iter().map(address).collect()
}
