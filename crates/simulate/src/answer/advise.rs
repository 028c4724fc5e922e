//! Which block size, pool and limit of blocks fit a cluster?

use calipam_model::cidr;
use calipam_model::config::DEFAULT_MAX_BLOCKS_PER_HOST;

use super::{Advice, BlockSizeRow, Candidate, Objection, block_sizes};
use crate::scenario::{PoolSpec, Scenario, ScenarioError};

/// An ADD with another block size may take so many thousandths of the quickest one before that speaks against the size.
const SLOWER: u64 = 1_250;
/// Part of the pool that stays free for nodes that are added, and for the pods of failed nodes while their addresses are
/// held: one fourth.
const SPARE: u128 = 4;

/// Simulates a cluster with each of some block sizes, and says which fits best: of those with nothing against them, the
/// one that wastes the fewest addresses for its routes.
///
/// # Errors
/// Where there can be no such cluster.
pub fn advise(scenario: &Scenario, sizes: &[u8]) -> Result<Advice, ScenarioError> {
    let fresh = afresh(scenario);
    let widest =
        fresh.pools.iter().filter(|pool| cidr::is_v4(pool.cidr)).map(|pool| pool.cidr.prefix_len()).max();
    let sizes: Vec<u8> =
        sizes.iter().copied().filter(|size| widest.is_none_or(|widest| *size >= widest)).collect();
    let rows = block_sizes(&fresh, &sizes)?.rows;
    let quickest = rows.iter().map(|row| row.run.adds.time.p99.0).min().unwrap_or(0);
    let candidates: Vec<Candidate> =
        rows.into_iter().map(|row| Candidate { against: against(&fresh, &row, quickest), row }).collect();

    // A route costs every node of the cluster memory and time; a wasted address costs the pool one address.
    let cost = |row: &BlockSizeRow| row.run.blocks.wasted + row.run.blocks.routes * 8;
    let best =
        candidates.iter().filter(|candidate| candidate.against.is_empty()).min_by_key(|c| cost(&c.row));
    let block_size = best.map(|candidate| candidate.row.block_size);
    let pool_addresses = block_size.map(|size| addresses_needed(&fresh, size));
    let existing = best.map(|candidate| candidate.row.run.blocks.pool_addresses);
    Ok(Advice {
        nodes: fresh.nodes,
        pods_per_node: fresh.pods_per_node,
        max_pods_per_node: fresh.max_pods_per_node,
        block_size,
        pool_prefix: pool_addresses.map(prefix_for),
        pool_addresses,
        pools_suffice: pool_addresses.zip(existing).map(|(needed, existing)| existing >= needed),
        block_limit: block_size.map(|size| blocks_of_full_node(&fresh, size) + 1),
        candidates,
    })
}

/// The same nodes, pods and pools as a cluster has, but from the begin, since its blocks have the size they have.
fn afresh(scenario: &Scenario) -> Scenario {
    let Some(start) = &scenario.start else { return scenario.clone() };
    let nodes = start.nodes.len() as u32;
    let running = u32::try_from(start.pods.len()).unwrap_or(u32::MAX).div_ceil(nodes.max(1));
    let pods_per_node = (running + scenario.pods_per_node).max(1);
    let of_cluster = start
        .pools
        .iter()
        .filter(|pool| pool.is_enabled())
        .map(|pool| PoolSpec { block_size: Some(pool.block_size), ..PoolSpec::new(pool.cidr) });
    let pools = of_cluster.chain(scenario.pools.iter().cloned()).collect();
    Scenario {
        nodes,
        pods_per_node,
        max_pods_per_node: scenario.max_pods_per_node.max(pods_per_node),
        pools,
        events: Vec::new(),
        start: None,
        ..scenario.clone()
    }
}

fn against(scenario: &Scenario, row: &BlockSizeRow, quickest: u64) -> Vec<Objection> {
    let (run, limit) = (&row.run, scenario.max_blocks_per_host);
    let limit = if limit == 0 { DEFAULT_MAX_BLOCKS_PER_HOST } else { limit };
    [
        (run.waiting_pods > 0, Objection::WaitingPods),
        (run.blocks.stranded_nodes > 0, Objection::StrandedNodes),
        (run.blocks.borrowed > 0, Objection::Borrows),
        (run.adds.time.p99.0 > quickest.saturating_mul(SLOWER) / 1_000, Objection::Slow),
        (blocks_of_full_node(scenario, row.block_size) > limit, Objection::BlockLimit),
    ]
    .into_iter()
    .filter_map(|(holds, objection)| holds.then_some(objection))
    .collect()
}

/// Blocks that a node needs for all the pods that it takes.
fn blocks_of_full_node(scenario: &Scenario, block_size: u8) -> u32 {
    scenario.max_pods_per_node.div_ceil(addresses(block_size))
}

fn addresses(block_size: u8) -> u32 {
    1 << (32 - u32::from(block_size.min(32)))
}

/// Addresses of a pool in which every node has the blocks that it needs when it is full, with some to spare.
fn addresses_needed(scenario: &Scenario, block_size: u8) -> u128 {
    let blocks = u128::from(scenario.nodes) * u128::from(blocks_of_full_node(scenario, block_size));
    let needed = blocks * u128::from(addresses(block_size));
    needed + needed.div_ceil(SPARE)
}

/// The prefix length of the smallest IPv4 pool with so many addresses.
fn prefix_for(addresses: u128) -> u8 {
    let bits = addresses.max(1).next_power_of_two().trailing_zeros();
    32 - u8::try_from(bits.min(32)).unwrap_or(32)
}
