//! Taking addresses back (facts 3.6, 3.7).

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
use calipam_model::pool::Pool;
use calipam_model::snapshot::Versioned;
use jiff::Timestamp;

use crate::affinity::{InUse, ReleaseAffinity, ignoring_gone};
use crate::allocator::{Allocator, block_entry};
use crate::error::{Error, Result};
use crate::pools::{self, NodeSelector};
use crate::record::Record;
use crate::store::{Query, Store};

/// A request to take one address back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub address: IpAddr,
    /// The handle that must hold it; `None` for any.
    pub handle: Option<String>,
    /// The sequence number that its allocation must have; `None` for any.
    pub sequence: Option<u64>,
}

impl Release {
    /// A request for an address under any handle.
    pub fn any(address: IpAddr) -> Self {
        Self { address, handle: None, sequence: None }
    }
}

/// What became of requests to take addresses back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Addresses that were not assigned, or cool down already.
    pub not_allocated: Vec<IpAddr>,
    /// The requests whose block met no error.
    pub without_error: Vec<Release>,
}

/// What all blocks of a release need to know.
struct Ground {
    config: IpamConfig,
    /// Where they were read: most releases do not need them.
    pools: OnceLock<Vec<Pool>>,
}

impl<S: Store> Allocator<S> {
    /// Writes a block from which addresses were taken back. One that is empty and without owner is deleted.
    async fn write_released(&self, before: &Versioned<Block>, after: &Block) -> Result<()> {
        if after.is_empty() && after.owner().is_none() {
            ignoring_gone(self.store().delete(&block_entry(before)).await)?;
        } else {
            self.store().update(&Record::Block(Arc::new(after.clone())), &before.revision).await?;
        }
        if let Some(notes) = &self.notes {
            notes.forget_nothing();
        }
        Ok(())
    }

    /// The pools, which are read once in a release.
    async fn pools_of<'g>(&self, ground: &'g Ground) -> Result<&'g [Pool]> {
        if let Some(pools) = ground.pools.get() {
            return Ok(pools);
        }
        let [found] = self.read([Query::Pools]).await?;
        Ok(ground.pools.get_or_init(|| pools::pools(found)))
    }

    /// Gives up an empty block whose pool does not select its node any more (facts 3.11). What goes wrong is only told:
    /// the addresses are released already.
    async fn keep_affinity_consistent(&self, ground: &Ground, block: &Block) {
        if let Err(error) = self.try_keep_consistent(ground, block).await {
            tracing::warn!(block = %block.cidr(), %error, "whether the node should keep the block is not known");
        }
    }

    async fn try_keep_consistent(&self, ground: &Ground, block: &Block) -> Result<()> {
        // A block that is in use stays with its owner, so that nothing else matters.
        let Some(BlockOwner::Host(node)) = block.owner().filter(|_| block.is_empty()) else { return Ok(()) };
        let pools = self.pools_of(ground).await?;
        let Some(pool) = pools::enabled_pool_of(pools, block.cidr().addr()) else { return Ok(()) };
        let selector = NodeSelector::of(pool)?;
        if selector.selects_all() {
            return Ok(());
        }
        let Some(found) = self.node(node).await? else { return Ok(()) };
        if selector.selects(&found.labels) {
            return Ok(());
        }
        let key = AffinityKey { kind: AffinityType::Host, node: node.clone(), cidr: block.cidr() };
        let conditions = ReleaseAffinity { in_use: InUse::Refuse, sequence: None };
        match self.release_affinity_if(&key, &ground.config, conditions).await {
            Err(Error::ClaimedByOther(_) | Error::NotEmpty(_) | Error::NoBlock(_) | Error::NoAffinity(_)) => {
                Ok(())
            }
            other => other,
        }
    }
}

/// A block that cannot be decoded is passed over: to write to it is not safe, and a release that failed would be
/// repeated forever.
pub(crate) fn unless_undecodable(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error @ Error::Undecodable { key: Key::Block(_), .. }) => {
            tracing::warn!(%error, "nothing is released in a block");
            Ok(())
        }
        outcome => outcome,
    }
}

/// By what addresses are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Address,
    /// Calico leaves the sequence numbers of cooling addresses alone then (facts 3.7).
    Handle,
}

fn without(block: &Block, ordinals: &[u32], by: By, config: &IpamConfig, now: Timestamp) -> Block {
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

/// Counts of addresses by handle.
type Counts = BTreeMap<String, u32>;

/// Ordinals to release, and how many addresses each handle loses.
#[derive(Debug, Default)]
struct Losses {
    ordinals: Vec<u32>,
    handles: Counts,
    not_allocated: Vec<IpAddr>,
}

/// Requests by the block that has their addresses.
type ByBlock = BTreeMap<IpNet, Vec<Release>>;
