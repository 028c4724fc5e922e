//! Conditions on the pools after a phase of `migrate` or an undo.

use std::net::IpAddr;

use calipam_check::index::Index;
use calipam_model::IpNet;
use calipam_model::cidr::{is_v4, overlap};
use calipam_model::hint::{Call, Hint};
use calipam_model::pool::Pool;
use calipam_model::snapshot::Snapshot;

use super::users::{User, users};
use crate::refusal::{Refused, Result};

/// The hint if the cluster would be left without a pool that serves the users.
pub(super) const OTHER_POOL_FIRST: &str = "create or enable another pool first, with --to-cidr or --to";

/// The refusal of a pool in whose CIDR a block of another size exists: Calico would use blocks of both sizes, and assign
/// addresses twice.
pub(super) fn block_in_the_way(block: IpNet, pool: &Pool) -> Refused {
    let Pool { cidr, block_size, .. } = pool;
    let message = format!("the block {block} still exists in {cidr}, where blocks must be /{block_size}");
    let hint = format!("Calico assigns addresses twice where blocks overlap; {{}} shows what {block} holds");
    Refused::new(message).hint(Hint::new(
        hint,
        [Call::to(["show", "--blocks", "--pool", &block.to_string()])],
    ))
}

/// Checks the pools after a change.
///
/// # Errors
/// If no pool of a family would remain enabled, or a pool would be created or enabled over blocks of another size.
pub fn check_pools(snapshot: &Snapshot, after: &[Pool]) -> Result<()> {
    for stored in &snapshot.pools {
        let pool = &stored.value;
        if pool.is_enabled() && !after.iter().any(|other| serves(other, pool.cidr)) {
            let message = format!("without {}, no pool of its family would be enabled", pool.name);
            return Err(Refused::new(message).hint(OTHER_POOL_FIRST));
        }
    }
    for pool in after {
        require_blocks_of_its_size(snapshot, pool)?;
    }
    Ok(())
}

/// Refuses a created or changed pool with blocks of another size, unless an earlier pool already allowed these blocks.
fn require_blocks_of_its_size(snapshot: &Snapshot, pool: &Pool) -> Result<()> {
    let mut earlier: Vec<&Pool> = snapshot.pools.iter().map(|stored| &stored.value).collect();
    earlier.retain(|old| {
        let is_as_enabled = old.is_enabled() || !pool.is_enabled();
        old.block_size == pool.block_size && is_as_enabled
    });
    let mut pools = earlier.iter();
    let is_unchanged = pools.any(|old| old.name == pool.name && old.cidr == pool.cidr);
    if is_unchanged {
        return Ok(());
    }

    for block in of_another_size(snapshot, pool) {
        // If a split is undone, its parts already had these blocks.
        if !earlier.iter().any(|old| old.cidr.contains(&block)) {
            return Err(block_in_the_way(block, pool));
        }
    }
    Ok(())
}

/// Returns true if the users of `cidr` can get addresses from the pool: it is enabled, and of the same family.
pub(super) fn serves(pool: &Pool, cidr: IpNet) -> bool {
    pool.is_enabled() && is_v4(pool.cidr) == is_v4(cidr)
}

/// Returns the blocks in a pool that do not have its block size, including blocks that only affinities name. Calico
/// would use blocks of both sizes, and assign addresses twice.
pub(super) fn of_another_size(snapshot: &Snapshot, pool: &Pool) -> impl Iterator<Item = IpNet> {
    let claimed = snapshot.affinities.iter().map(|affinity| affinity.value.key.cidr);
    let cidr = pool.cidr;
    let size = pool.block_size;
    snapshot
        .block_cidrs()
        .chain(claimed)
        .filter(move |block| overlap(*block, cidr) && block.prefix_len() != size)
}

/// Returns the users who need another address if the cluster's pools become `after`: their address is in an enabled pool
/// now, but would not be then.
pub fn leaving(index: &Index<'_>, after: &[Pool]) -> Vec<User> {
    let mut leaving = Vec::new();
    for stored in &index.snapshot.pools {
        let pool = &stored.value;
        if !pool.is_enabled() {
            continue;
        }
        for user in users(index, pool.cidr) {
            // Users on nodes that do not exist need no other address. A service is on no node.
            let is_of_gone_node = !user.node.is_empty() && !index.node_exists(&user.node);
            if !is_of_gone_node && !is_in_enabled_pool(user.address, after) {
                leaving.push(user);
            }
        }
    }
    leaving
}

fn is_in_enabled_pool(address: IpAddr, pools: &[Pool]) -> bool {
    pools
        .iter()
        .any(|pool| pool.is_enabled() && pool.cidr.contains(&address))
}
