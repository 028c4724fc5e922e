//! The pools, with their used and free addresses.

use calipam_assign::{Allocatable, Outlook, PoolLimit, PoolPassedOver};
use calipam_model::IpNet;
use calipam_model::block::Cooling;
use calipam_model::config::IpamConfig;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;
use serde::Serialize;

use super::Count;
use crate::occupancy::Occupancy;
use crate::{Context, Options};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolList {
    /// The pools, ascending by CIDR.
    pub pools: Vec<PoolView>,
    /// Blocks of both families that are in no pool; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsidePools>,
}

/// A pool. `total` = `in_use` + `cooling` + `windows_reserved` + `reserved` + `unknown` + `free`: each address counts
/// once, even if blocks overlap or a reservation covers an allocated address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    pub name: String,
    pub cidr: IpNet,
    /// The prefix length of new blocks.
    pub block_size: u8,
    /// True if Calico allocates from the pool.
    pub enabled: bool,
    /// True if the pool serves requests that do not name it.
    pub automatic: bool,
    pub allowed_uses: Vec<&'static str>,
    pub node_selector: String,
    pub blocks: usize,
    /// All addresses of the pool.
    pub total: Count,
    /// Allocated to an owner.
    pub in_use: Count,
    /// Released, but not free yet.
    pub cooling: Count,
    /// The times at which the first and the last of the cooling addresses become free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooled: Option<[Timestamp; 2]>,
    /// Reserved by Windows nodes.
    pub windows_reserved: Count,
    /// Covered by IP reservations, and not taken.
    pub reserved: Count,
    /// In blocks that are corrupt or cannot be decoded.
    pub unknown: Count,
    pub free: Count,
    /// The share of usable addresses that is taken, in percent, rounded down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// The state of a pool from which Calico does not allocate, as `disabled` or `terminating`.
    #[serde(skip)]
    pub closed: Option<String>,
    /// All addresses except those in IP reservations.
    #[serde(skip)]
    pub usable: Count,
    #[serde(skip)]
    pub usable_taken: Count,
    /// Free addresses that all nodes together can get now if they use no other pool. Pools share the block limit of a
    /// node, so the numbers of several pools must not be added up. `None` if the number is not known; `limited_by` then
    /// contains the reason.
    pub allocatable: Option<Count>,
    /// Free addresses for requests that name the pool, if it serves no other requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_name: Option<Count>,
    /// The reasons why not all free addresses are allocatable.
    pub limited_by: Vec<String>,
}

/// Blocks that are in no pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutsidePools {
    pub blocks: usize,
    /// All addresses of these blocks.
    pub total: Count,
    /// Allocated to an owner.
    pub in_use: Count,
    /// Released, but not free yet.
    pub cooling: Count,
    /// Free. Calico assigns them only to the owner of a block that begins in a pool.
    pub free: Count,
}

pub fn pools(snapshot: &Snapshot) -> PoolList {
    pools_in(&Context::new(snapshot, &Options::default()))
}

/// Lists the pools with the number of addresses in each state, and the blocks outside of them.
pub(crate) fn pools_in(context: &Context<'_>) -> PoolList {
    let occupancy = Occupancy::new(context);
    let outlook = Outlook::new(context.snapshot);
    let config = context.snapshot.effective_ipam_config().unwrap_or_default();
    let pools = context.index.pools().into_iter();
    PoolList {
        pools: pools
            .map(|pool| view_pool(&occupancy, outlook.as_ref(), &config, context.now, pool))
            .collect(),
        outside: outside(context, &occupancy),
    }
}

/// Describes a pool: its settings, and the numbers of addresses that are taken, free, and can still be assigned.
fn view_pool(
    occupancy: &Occupancy<'_, '_>,
    outlook: Option<&Outlook<'_>>,
    config: &IpamConfig,
    now: Timestamp,
    pool: &Pool,
) -> PoolView {
    let tally = occupancy.tally(pool.cidr);
    let blocks = occupancy.inside(pool.cidr);
    let sound = blocks.iter().filter_map(|stored| stored.block?.current());
    let cooling = Cooling::of(sound, now, config.cooldown()).filter(|_| tally.cooling > 0);
    let allocatable = match outlook {
        Some(outlook) => outlook.allocatable(pool, tally.free),
        None => Allocatable::unknown(PoolLimit::NotKnown),
    };
    PoolView {
        name: pool.name.clone(),
        cidr: pool.cidr,
        block_size: pool.block_size,
        enabled: pool.is_enabled(),
        automatic: pool.automatic,
        allowed_uses: pool.allowed_uses.iter().map(|used| used.name()).collect(),
        node_selector: pool.node_selector.clone(),
        blocks: blocks.len(),
        total: Count(tally.total),
        in_use: Count(tally.in_use),
        cooling: Count(tally.cooling),
        cooled: cooling.map(|cooling| [cooling.first, cooling.last]),
        windows_reserved: Count(tally.windows_reserved),
        reserved: Count(tally.reserved),
        unknown: Count(tally.unknown),
        free: Count(tally.free),
        percent: tally.whole_percent(),
        closed: closed(pool),
        usable: Count(tally.usable),
        usable_taken: Count(tally.usable_taken),
        allocatable: allocatable.addresses.map(Count),
        by_name: allocatable.by_name.map(Count),
        limited_by: allocatable.limits.iter().map(PoolLimit::to_string).collect(),
    }
}

/// The state of a pool from which Calico does not allocate, as tables name it; `None` if it does.
pub(super) fn closed(pool: &Pool) -> Option<String> {
    Some(match PoolPassedOver::of_state(pool)? {
        PoolPassedOver::Deleting => "terminating".to_owned(),
        PoolPassedOver::NotAllocatable(reason) if reason.is_empty() => "not allocatable".to_owned(),
        PoolPassedOver::NotAllocatable(reason) => format!("not allocatable: {reason}"),
        _ => "disabled".to_owned(),
    })
}

/// Sums up the blocks that no pool fully contains, including those that are corrupt or cannot be decoded. `None` if
/// there are none.
fn outside(context: &Context<'_>, occupancy: &Occupancy<'_, '_>) -> Option<OutsidePools> {
    let mut sum = OutsidePools::default();
    for stored in &occupancy.stored {
        let is_in_pool = context.index.pools_around(stored.key).next().is_some();
        if is_in_pool {
            continue;
        }
        let tally = occupancy.block(stored);
        sum.blocks += 1;
        for (part, number) in [
            (&mut sum.total, tally.total),
            (&mut sum.in_use, tally.in_use),
            (&mut sum.cooling, tally.cooling),
            (&mut sum.free, tally.free),
        ] {
            part.0 = part.0.saturating_add(number);
        }
    }
    if sum.blocks == 0 {
        return None;
    }
    Some(sum)
}
