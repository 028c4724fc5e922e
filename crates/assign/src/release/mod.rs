//! Releasing addresses (facts 3.6, 3.7).

mod by_address;
mod by_handle;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use crate::affinity::{InUse, ReleaseAffinity, ignoring_gone};
use crate::allocator::{Allocator, block_entry};
use crate::error::{Error, Result};
use crate::pools;
use crate::record::Record;
use crate::store::Store;

/// A request to release one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub address: IpAddr,
    /// The handle that must hold the address; `None` for any.
    pub handle: Option<String>,
    /// The sequence number that the allocation must have; `None` for any.
    pub sequence: Option<u64>,
}

impl Release {
    /// A request to release an address, whatever its handle and sequence number.
    pub fn any(address: IpAddr) -> Self {
        Self {
            address,
            handle: None,
            sequence: None,
        }
    }
}

/// The outcome of requests to release addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Addresses that were not assigned, or are already in cooldown.
    pub not_allocated: Vec<IpAddr>,
    /// The requests whose block was processed without an error.
    pub without_error: Vec<Release>,
}

/// The settings that a release depends on.
struct Settings {
    config: IpamConfig,
    /// The pools. A release by handle reads them only if it needs them.
    pools: OnceLock<Vec<Pool>>,
}

impl<S: Store> Allocator<S> {
    /// Writes a block from which addresses were released, or deletes it if it is empty and has no owner.
    async fn write_released(&self, before: &Versioned<Block>, after: &Block) -> Result<()> {
        if after.is_empty() && after.owner().is_none() {
            ignoring_gone(self.store().delete(&block_entry(before)).await)?;
        } else {
            self.store()
                .update(&Record::Block(Arc::new(after.clone())), &before.revision)
                .await?;
        }
        if let Some(notes) = &self.notes {
            notes.forget_exhaustion();
        }
        Ok(())
    }

    /// Returns the pools, which are read at most once per release.
    async fn pools_of<'s>(&self, settings: &'s Settings) -> Result<&'s [Pool]> {
        if let Some(pools) = settings.pools.get() {
            return Ok(pools);
        }
        let pools = self.pools().await?;
        Ok(settings.pools.get_or_init(|| pools))
    }

    /// Gives up an empty block whose pool no longer selects its node (facts 3.11). Errors are only logged, since the
    /// addresses are released already.
    async fn keep_affinity_consistent(&self, settings: &Settings, block: &Block) {
        if let Err(error) = self.try_keep_consistent(settings, block).await {
            tracing::warn!(block = %block.cidr(), %error, "cannot determine whether the node should keep the block");
        }
    }

    /// Gives up an empty block if its node is no longer selected by the block's pool, as Calico does after a release.
    async fn try_keep_consistent(&self, settings: &Settings, block: &Block) -> Result<()> {
        // A block in use stays with its owner.
        if !block.is_empty() {
            return Ok(());
        }
        let Some(BlockOwner::Host(node)) = block.owner() else {
            return Ok(());
        };
        let pools = self.pools_of(settings).await?;
        let Some(pool) = pools::enabled_pool_of(pools, block.cidr().addr()) else {
            return Ok(());
        };
        let selector = pool
            .selected_nodes()
            .map_err(|reason| pools::broken_selector(pool, reason))?;
        if selector.selects_all() {
            return Ok(());
        }
        let Some(found) = self.get::<Node>(Key::Node(node.clone())).await? else {
            return Ok(());
        };
        if selector.matches(&found.value.labels) {
            return Ok(());
        }
        let key = AffinityKey {
            kind: AffinityType::Host,
            node: node.clone(),
            cidr: block.cidr(),
        };
        let conditions = ReleaseAffinity {
            in_use: InUse::Refuse,
            sequence: None,
        };
        match self.release_affinity_if(&key, &settings.config, conditions).await {
            Err(Error::ClaimedByOther(_) | Error::NotEmpty(_) | Error::NoBlock(_) | Error::NoAffinity(_)) => {
                Ok(())
            }
            other => other,
        }
    }
}

/// Treats the release from a block that cannot be decoded as a success: writing to such a block is not safe, and a
/// failed release would be repeated forever.
pub(crate) fn unless_undecodable(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(
            error @ Error::Undecodable {
                key: Key::Block(_), ..
            },
        ) => {
            tracing::warn!(%error, "nothing is released in a block");
            Ok(())
        }
        outcome => outcome,
    }
}

/// The kind of request that releases addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Address,
    /// A request by handle. In this case, Calico does not change the sequence numbers of cooling addresses (facts 3.7).
    Handle,
}

/// Returns a block after the release of the addresses at `ordinals`, which begins their cooldown if there is one. Also
/// frees the addresses whose cooldown is over.
fn block_after_release(
    block: &Block,
    ordinals: &[u32],
    by: By,
    config: &IpamConfig,
    now: Timestamp,
) -> Block {
    let cooldown = config.cooldown();
    let mut after = block.clone();
    after.update(|update| {
        update.collect_cooled(now, cooldown);
        match (cooldown.is_positive(), by) {
            (true, By::Address) => update.cool(ordinals, now),
            (true, By::Handle) => update.cool_by_handle(ordinals, now),
            (false, By::Address) => update.release(ordinals),
            (false, By::Handle) => update.release_by_handle(ordinals),
        };
        update.touch();
    });
    after
}

/// The addresses that requests release in a block.
#[derive(Debug, Default)]
struct Losses {
    ordinals: Vec<u32>,
    /// The number of addresses that each handle loses.
    handles: BTreeMap<String, u32>,
    not_allocated: Vec<IpAddr>,
}

/// Release requests, by the block that contains their addresses.
type ByBlock = BTreeMap<IpNet, Vec<Release>>;
