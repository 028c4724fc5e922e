//! Releases addresses (facts 3.6, 3.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calipam_assign::{Record, Release, Store};
use calipam_model::IpNet;
use calipam_model::block::{Block, BlockUpdate};
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use super::{Calico, Result, Stop, found, retried};

impl Calico {
    /// Releases all addresses of a handle; [`Stop::Gone`] if it does not exist. If the handle counts too many
    /// addresses, the surplus count stays.
    pub(crate) async fn release_by_handle(&self, id: &str) -> Result<()> {
        let handle = self.handle(id).await?;
        let config = self.config().await?;
        for (cidr, _) in handle.value.blocks() {
            self.release_handle_in(id, cidr, &config).await?;
        }
        Ok(())
    }

    async fn release_handle_in(&self, id: &str, cidr: IpNet, config: &IpamConfig) -> Result<()> {
        retried(async || {
            let Some(block) = found(self.block(cidr).await)? else {
                return Ok(());
            };
            let own = block.value.handles().filter(|(_, handle)| *handle == *id);
            let ordinals: Vec<u32> = own.map(|(ordinal, _)| ordinal).collect();
            if ordinals.is_empty() {
                return Ok(());
            }
            let cool = |update: &mut BlockUpdate<'_>, now| update.cool_by_handle(&ordinals, now);
            found(self.write_without(block, &ordinals, config, cool).await)?;
            let _ = self.decrement(id, cidr, ordinals.len() as i64).await;
            Ok(())
        })
        .await
    }

    /// Writes a block without some addresses. Deletes the block if it is empty and has no owner.
    async fn write_without(
        &self,
        mut block: Versioned<Block>,
        ordinals: &[u32],
        config: &IpamConfig,
        cool: impl Fn(&mut BlockUpdate<'_>, Timestamp) -> Vec<u32>,
    ) -> Result<()> {
        let now = self.store.now();
        let cooldown = config.cooldown();
        let mut after = block.value.clone();
        after.update(|update| {
            update.collect_cooled(now, cooldown);
            if cooldown.is_positive() {
                cool(update, now)
            } else {
                update.release(ordinals)
            }
        });
        if after.is_empty() && after.owner().is_none() {
            return self
                .delete(Record::Block(Arc::new(block.value)), block.revision)
                .await;
        }
        block.value = after;
        self.update_block(block).await.map(drop)
    }

    /// Releases addresses that match their requests. A mismatch prevents all releases in the same block, but not those
    /// in other blocks.
    pub(super) async fn release_ips(&self, requests: &[Release]) -> Result<()> {
        let pools = self.pools().await?;
        let config = self.config().await?;
        let block_of = |request: &Release| {
            let pool = pools.iter().find(|pool| pool.cidr.contains(&request.address))?;
            cidr::block_around(request.address, pool.block_size)
        };
        let blocks: BTreeSet<IpNet> = requests.iter().filter_map(block_of).collect();
        let mut result = Ok(());
        for block in blocks {
            let of_block: Vec<&Release> = requests
                .iter()
                .filter(|request| block.contains(&request.address))
                .collect();
            result = result.and(self.release_in(block, &of_block, &config).await);
        }
        result
    }

    async fn release_in(&self, cidr: IpNet, requests: &[&Release], config: &IpamConfig) -> Result<()> {
        retried(async || {
            let Some(block) = found(self.block(cidr).await)? else {
                return Ok(());
            };
            let losses = losses(&self.current(&block.value, config), requests)?;
            if losses.is_empty() {
                return Ok(());
            }
            let ordinals: Vec<u32> = losses.keys().copied().collect();
            let cool = |update: &mut BlockUpdate<'_>, now| update.cool(&ordinals, now);
            self.write_without(block, &ordinals, config, cool).await?;
            let mut counts: BTreeMap<&String, i64> = BTreeMap::new();
            losses
                .values()
                .for_each(|handle| *counts.entry(handle).or_default() += 1);
            for (handle, count) in counts {
                let _ = self.decrement(handle, cidr, count).await;
            }
            Ok(())
        })
        .await
    }
}

/// Returns the ordinals to release, each with its handle.
fn losses(block: &Block, requests: &[&Release]) -> Result<BTreeMap<u32, String>> {
    let mut losses = BTreeMap::new();
    for request in requests {
        let ordinal = cidr::ordinal_of(block.cidr(), request.address).ok_or(Stop::Refused)?;
        if request
            .sequence
            .is_some_and(|sequence| sequence != block.sequence_of(ordinal))
        {
            return Err(Stop::Refused);
        }
        let Some(held) = block
            .allocation(ordinal)
            .filter(|held| !held.attribute.is_cooling())
        else {
            continue;
        };
        let handle = held.attribute.to_attribute().handle.unwrap_or_default();
        if request.handle.as_ref().is_some_and(|wanted| *wanted != handle) {
            return Err(Stop::Refused);
        }
        losses.insert(ordinal, handle);
    }
    Ok(losses)
}
