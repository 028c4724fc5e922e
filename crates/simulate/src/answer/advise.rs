//! Which block size, pool and limit of blocks fit a cluster?

use calipam_assign::Family;
use std::sync::Arc;

use calipam_check::views::Count;
use calipam_model::IpNet;
use calipam_model::cidr;

use super::{Advice, BlockSizeRow, Candidate, Objection, Threads, block_sizes};
use crate::scenario::{PoolSpec, Scenario, ScenarioError};
use crate::time::Micros;

/// An ADD with another block size may take so many thousandths of the quickest one, on average, before that is a drawback of
/// the size.
const SLOWER: u64 = 1_250;
/// How long one ADD in a hundred may take.
const LONGEST: Micros = Micros::from_secs(1);
/// Wasted addresses that weigh as much as a route, which costs every node of the cluster memory and time.
const ROUTE: u64 = 8;
/// Part of the pool that stays free for nodes that are added, and for the pods of failed nodes while their addresses are
/// held: one fourth.
const SPARE: u128 = 4;

/// Simulates a cluster with each of some block sizes, and says which fits best: of those with nothing against them, the
/// one that wastes the fewest addresses for its routes. Where the pools are too small for each, it says which would fit in
/// a larger one.
pub fn advise(scenario: &Scenario, sizes: &[u8], threads: Threads) -> Result<Advice, ScenarioError> {
    let fresh = scenario.afresh();
    let has_v4 = fresh.pools_for_pods().any(|pool| cidr::is_v4(pool.cidr));
    let family = if has_v4 { Family::V4 } else { Family::V6 };
    let sizes = sizes_for(&fresh, family, sizes);
    let candidates = candidates(&fresh, &sizes, threads)?;
    let block_size = match best(&candidates) {
        Some(size) => Some(size),
        None => best(&self::candidates(&with_larger_pool(&fresh, family, &sizes), &sizes, threads)?),
    };

    let pool_addresses = block_size.map(|size| addresses_needed(&fresh, size));
    let existing = pools_of(&fresh, family).fold(0, |sum: u128, cidr| sum.saturating_add(cidr::size(cidr)));
    Ok(Advice {
        nodes: fresh.node_count(),
        pods_per_node: fresh.pods_per_node,
        max_pods_per_node: fresh.max_pods_per_node,
        block_size,
        pool_prefix: pool_addresses.zip(block_size).map(|(addresses, size)| prefix_for(addresses, size)),
        pool_addresses: pool_addresses.map(Count),
        pools_suffice: pool_addresses.map(|needed| existing >= needed),
        block_limit: block_size.map(|size| blocks_of_full_node(&fresh, size) + 1),
        candidates,
    })
}

/// The pools of a family from which pods get addresses.
fn pools_of(scenario: &Scenario, family: Family) -> impl Iterator<Item = IpNet> {
    scenario.pools_for_pods().map(|pool| pool.cidr).filter(move |cidr| Family::of(*cidr) == family)
}

/// The sizes of the family that the pools have, none larger than the largest pool.
fn sizes_for(scenario: &Scenario, family: Family, sizes: &[u8]) -> Vec<u8> {
    let largest = pools_of(scenario, family).map(|cidr| cidr.prefix_len()).min().unwrap_or(0);
    let of_family = |size: &u8| if family == Family::V4 || *size > 32 { *size } else { *size + 96 };
    sizes.iter().map(of_family).filter(|size| *size >= largest).collect()
}

fn candidates(scenario: &Scenario, sizes: &[u8], threads: Threads) -> Result<Vec<Candidate>, ScenarioError> {
    let rows = block_sizes(scenario, sizes, threads)?.rows;
    let quickest = rows.iter().map(|row| row.run.adds.time.mean).min().unwrap_or_default();
    let candidate = |row: BlockSizeRow| Candidate { drawbacks: drawbacks(scenario, &row, quickest), row };
    Ok(rows.into_iter().map(candidate).collect())
}

/// The size with nothing against it that wastes the fewest addresses and routes; of equals the largest block.
fn best(candidates: &[Candidate]) -> Option<u8> {
    let cost = |row: &BlockSizeRow| row.run.blocks.wasted + row.run.blocks.routes * ROUTE;
    let sound = candidates.iter().filter(|candidate| candidate.drawbacks.is_empty());
    sound.min_by_key(|candidate| cost(&candidate.row)).map(|candidate| candidate.row.block_size)
}

fn drawbacks(scenario: &Scenario, row: &BlockSizeRow, quickest: Micros) -> Vec<Objection> {
    let (run, limit) = (&row.run, scenario.config().unwrap_or_default().block_limit());
    let time = &run.adds.time;
    let is_slow = time.mean.0 > quickest.0.saturating_mul(SLOWER) / 1_000 || time.p99 > LONGEST;
    [
        (run.waiting_pods > 0, Objection::WaitingPods),
        (run.blocks.stranded_nodes > 0, Objection::StrandedNodes),
        (run.blocks.borrowed > 0, Objection::Borrows),
        (is_slow, Objection::Slow),
        (blocks_of_full_node(scenario, row.block_size) > limit, Objection::BlockLimit),
    ]
    .into_iter()
    .filter_map(|(holds, objection)| holds.then_some(objection))
    .collect()
}

/// The same cluster with one pool of the family that is large enough for each of the sizes.
fn with_larger_pool(scenario: &Scenario, family: Family, sizes: &[u8]) -> Scenario {
    let prefix = sizes.iter().map(|size| prefix_for(addresses_needed(scenario, *size), *size)).min();
    let largest = pools_of(scenario, family).min_by_key(IpNet::prefix_len);
    let larger = largest
        .zip(prefix)
        .and_then(|(pool, prefix)| IpNet::new(pool.addr(), prefix.min(pool.prefix_len())).ok());

    let mut other = scenario.clone();
    other.pools.retain(|pool| Family::of(pool.cidr) != family);
    if let Some(start) = &mut other.start {
        Arc::make_mut(start).pools.retain(|pool| Family::of(pool.cidr) != family);
    }
    other.pools.extend(larger.map(|cidr| PoolSpec::new(cidr.trunc())));
    other
}

/// Blocks that a node needs for all the pods that it takes.
fn blocks_of_full_node(scenario: &Scenario, block_size: u8) -> u32 {
    scenario.max_pods_per_node.div_ceil(addresses(block_size))
}

/// Addresses of a block. Prefix lengths beyond 32 are of IPv6, whose blocks hold no more than those of IPv4.
fn addresses(block_size: u8) -> u32 {
    1u32.checked_shl((bits(block_size) - block_size.min(128)).into()).unwrap_or(u32::MAX)
}

/// The prefix length of a single address of the family to which a block size belongs.
fn bits(block_size: u8) -> u8 {
    if block_size > 32 { 128 } else { 32 }
}

/// Addresses of a pool in which every node has the blocks that it needs when it is full, with some to spare.
fn addresses_needed(scenario: &Scenario, block_size: u8) -> u128 {
    let blocks = u128::from(scenario.node_count()) * u128::from(blocks_of_full_node(scenario, block_size));
    let needed = blocks * u128::from(addresses(block_size));
    needed + needed.div_ceil(SPARE)
}

/// The prefix length of the smallest pool with so many addresses.
fn prefix_for(addresses: u128, block_size: u8) -> u8 {
    let needed = addresses.max(1).next_power_of_two().trailing_zeros();
    bits(block_size).saturating_sub(u8::try_from(needed).unwrap_or(u8::MAX))
}
