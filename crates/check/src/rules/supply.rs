//! What a pool can still give to nodes.

use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::{IpNet, cidr};

use super::capacity::Capacity;
use crate::Context;

/// A pool from which pods get addresses without asking for it by name.
#[derive(Debug)]
pub(super) struct Supply<'s> {
    /// The pool.
    pub pool: &'s Pool,
    /// Which nodes may use it.
    pub selector: Selector,
    /// Addresses that are known to be free.
    pub free: u128,
    /// There is room for one more block.
    pub claimable: bool,
    /// There is an empty block, which nodes may take over (Calico 3.32 and later).
    pub reclaimable: bool,
    /// There is a block with a free address.
    pub borrowable: bool,
}

/// The enabled, automatic pools of one family for workloads. `None` where the selector of one does not
/// parse: then Calico fails for all nodes, and nothing is said about them.
pub(super) fn supplies<'s>(
    context: &Context<'s>,
    capacity: &Capacity<'_, '_>,
    v4: bool,
) -> Option<Vec<Supply<'s>>> {
    let pools = context.snapshot.pools.iter().map(|p| &p.value);
    let pools = pools.filter(|p| cidr::is_v4(p.cidr) == v4);
    let pools = pools.filter(|p| p.is_enabled() && p.automatic && p.allows(PoolUse::Workload));
    pools
        .map(|pool| {
            let selector = Selector::parse(&pool.node_selector).ok()?;
            Some(supply(capacity, pool, selector))
        })
        .collect()
}

fn supply<'s>(capacity: &Capacity<'_, '_>, pool: &'s Pool, selector: Selector) -> Supply<'s> {
    let mut supply = Supply {
        pool,
        selector,
        free: capacity.usage(pool).free(),
        claimable: false,
        reclaimable: false,
        borrowable: false,
    };
    // Calico looks for blocks of the pool's present size only.
    let present = capacity.inside(pool.cidr).iter().filter(|s| s.key.prefix_len() == pool.block_size);
    let mut occupied: u128 = 0;
    for stored in present.filter(|s| !capacity.reserved.covers(s.key)) {
        occupied += 1;
        if let Some(block) = stored.block.and_then(|b| b.sound)
            && capacity.has_free(block)
        {
            supply.borrowable = true;
            supply.reclaimable |= block.is_empty();
        }
    }
    supply.claimable = places(capacity, pool) > occupied;
    supply
}

/// Blocks that fit into the pool beside what is reserved as a whole. A pool smaller than its blocks is
/// taken to have room: what Calico does with it is not worth a finding.
pub(crate) fn places(capacity: &Capacity<'_, '_>, pool: &Pool) -> u128 {
    let count = |cidr: IpNet| match pool.block_size.checked_sub(cidr.prefix_len()) {
        Some(bits) => 1u128.checked_shl(bits.into()).unwrap_or(u128::MAX),
        None => 0,
    };
    if pool.block_size < pool.cidr.prefix_len() {
        return u128::MAX;
    }
    let reserved = capacity.reserved.within(pool.cidr).map(count).fold(0, u128::saturating_add);
    count(pool.cidr).saturating_sub(reserved)
}
