//! How full the pools are, and what they can still give.

use calipam_model::cidr;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::allocatable::Chances;
use super::{Count, Taken};
use crate::index::IndexedBlock;
use crate::rules::capacity::Capacity;
use crate::{Context, Options};

/// All pools.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolList {
    /// The pools, ascending by CIDR.
    pub pools: Vec<PoolView>,
    /// Blocks that lie in no pool, of either family; `None` where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsidePools>,
}

/// A pool. `total` = `in_use` + `cooling` + `windows_reserved` + `reserved` + `unknown` + `free`, as long as
/// no reservation lies over an allocated address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// Its CIDR.
    pub cidr: String,
    /// Prefix length of blocks that are created today.
    pub block_size: u8,
    /// Calico allocates from it.
    pub enabled: bool,
    /// Addresses are taken from it without being asked for by name.
    pub automatic: bool,
    /// What its addresses may be used for.
    pub allowed_uses: Vec<&'static str>,
    /// Which nodes may use it.
    pub node_selector: String,
    /// Blocks in it.
    pub blocks: usize,
    /// All its addresses.
    pub total: Count,
    /// Allocated to an owner.
    pub in_use: Count,
    /// Released, but not free yet.
    pub cooling: Count,
    /// Reserved by Windows nodes.
    pub windows_reserved: Count,
    /// Left out by IP reservations.
    pub reserved: Count,
    /// In blocks that are corrupt or do not decode.
    pub unknown: Count,
    /// Neither of these.
    pub free: Count,
    /// Of the free ones, those that a node can get now.
    pub allocatable: Count,
    /// Why not all free ones are allocatable.
    pub limited_by: Vec<String>,
}

/// Blocks that lie in no pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutsidePools {
    /// How many.
    pub blocks: usize,
    /// Addresses of them.
    pub total: Count,
    /// Allocated to an owner.
    pub in_use: Count,
    /// Released, but not free yet.
    pub cooling: Count,
    /// Free: nobody can get them.
    pub free: Count,
}

/// The pools of a snapshot.
pub fn pools(snapshot: &Snapshot) -> PoolList {
    let context = Context::new(snapshot, &Options::default());
    let capacity = Capacity::new(&context);
    let chances = Chances::new(&context);
    let mut pools: Vec<&Pool> = snapshot.pools.iter().map(|p| &p.value).collect();
    pools.sort_by(|a, b| (a.cidr, &a.name).cmp(&(b.cidr, &b.name)));
    PoolList {
        pools: pools.into_iter().map(|pool| view(&context, &capacity, &chances, pool)).collect(),
        outside: outside(&context),
    }
}

fn view(
    context: &Context<'_>,
    capacity: &Capacity<'_, '_>,
    chances: &Chances<'_, '_>,
    pool: &Pool,
) -> PoolView {
    let usage = capacity.usage(pool);
    let total = cidr::size(pool.cidr);
    let inside = || context.index.blocks.iter().filter(|b| pool.cidr.contains(&b.key));
    let (mut cooling, mut windows) = (0, 0);
    for taken in inside().filter_map(|b| b.sound).map(Taken::of) {
        cooling += u128::from(taken.cooling);
        windows += u128::from(taken.windows);
    }
    let free = usage.free();
    let (allocatable, limited_by) = chances.of(capacity, pool, free);
    PoolView {
        name: pool.name.clone(),
        cidr: pool.cidr.to_string(),
        block_size: pool.block_size,
        enabled: pool.is_enabled(),
        automatic: pool.automatic,
        allowed_uses: pool.allowed_uses.iter().map(|used| name_of_use(*used)).collect(),
        node_selector: pool.node_selector.clone(),
        blocks: inside().count(),
        total: Count(total),
        in_use: Count(usage.in_use.saturating_sub(cooling + windows)),
        cooling: Count(cooling),
        windows_reserved: Count(windows),
        reserved: Count(total.saturating_sub(usage.usable)),
        unknown: Count(usage.unknown),
        free: Count(free),
        allocatable: Count(allocatable),
        limited_by,
    }
}

fn name_of_use(used: PoolUse) -> &'static str {
    match used {
        PoolUse::Workload => "Workload",
        PoolUse::Tunnel => "Tunnel",
        PoolUse::LoadBalancer => "LoadBalancer",
    }
}

fn outside(context: &Context<'_>) -> Option<OutsidePools> {
    let is_outside = |b: &&IndexedBlock<'_>| context.index.pools_around(b.key).next().is_none();
    let mut sum = OutsidePools::default();
    for block in context.index.blocks.iter().filter(is_outside) {
        sum.blocks += 1;
        sum.total.0 += cidr::size(block.key);
        if let Some(block) = block.sound {
            let taken = Taken::of(block);
            sum.in_use.0 += u128::from(taken.in_use);
            sum.cooling.0 += u128::from(taken.cooling);
            sum.free.0 += block.free().len() as u128;
        }
    }
    (sum.blocks > 0).then_some(sum)
}
