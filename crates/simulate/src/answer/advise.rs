//! Advice on a cluster's block size, pool and block limit.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_assign::Family;
use calipam_check::views::Count;
use calipam_model::IpNet;
use calipam_model::cidr;
use serde::Serialize;

use super::block_size::with_each_size;
use super::several::variants;
use super::{BlockSizeRow, Run, percent};
use crate::error::Result;
use crate::scenario::{PoolSpec, Scenario};
use crate::time::Micros;

/// A block size is slow if its mean ADD time exceeds this many thousandths of the fastest size's mean.
const SLOW_MEAN_PERMILLE: u64 = 1_250;
/// A block size is also slow if the 99th percentile of its ADD times exceeds this time.
const SLOW_P99: Micros = Micros::from_secs(1);
/// The number of wasted addresses that cost as much as a route, which takes memory and time on every node.
const ROUTE_COST: u64 = 8;
/// The divisor for spare addresses: an advised pool has one fourth more addresses than the nodes need. The spare
/// addresses are for nodes that are added, and for pods that replace those of failed nodes while the old addresses are
/// still allocated.
const SPARE_DIVISOR: u128 = 4;

/// A block size with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    #[serde(flatten)]
    pub row: BlockSizeRow,
    /// The reasons to rule out this size, if any.
    pub drawbacks: Vec<Drawback>,
}

/// A drawback of a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drawback {
    /// Some pods still wait for addresses at the end.
    WaitingPods,
    StrandedNodes,
    /// Addresses are borrowed, each with its own route.
    Borrows,
    /// ADDs take much longer than with the fastest size, or one in a hundred takes longer than a second.
    Slow,
    /// A full node needs more blocks than a node may hold.
    BlockLimit,
}

/// The margin by which the best block size wins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tipping {
    /// The second-best size.
    pub second: u8,
    /// The additional cost of the second-best size in wasted addresses and routes, in percent.
    pub costs_more_percent: f64,
    /// The number of pods per node in a run in which another size was the best; of several such runs, the one nearest
    /// to the scenario's number.
    pub pods_per_node: Option<u32>,
    /// The best size in the same run.
    pub block_size: Option<u8>,
}

/// Advice on a cluster's block size, pool and block limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    pub nodes: u32,
    pub pods_per_node: u32,
    pub max_pods_per_node: u32,
    /// The advised prefix length of blocks. If every candidate has drawbacks, this is the best size in a larger pool;
    /// `None` if every candidate has drawbacks in the larger pool as well.
    pub block_size: Option<u8>,
    /// The number of runs with each size.
    pub runs: u64,
    /// The number of runs in which the advised size was the best.
    pub wins: u64,
    pub tipping: Option<Tipping>,
    /// The prefix length of the pool.
    pub pool_prefix: Option<u8>,
    /// The number of addresses that the pool must have.
    pub pool_addresses: Option<Count>,
    /// True if the scenario's pools have at least that many addresses.
    pub pools_suffice: Option<bool>,
    /// The number of blocks that a full node needs, plus one: the block limit under strict affinity.
    pub block_limit: Option<u32>,
    pub candidates: Vec<Candidate>,
}

/// Simulates a cluster with each block size, and finds the best: of the sizes without drawbacks in any run, the one
/// with the lowest total cost of wasted addresses and routes. If every size has drawbacks, finds the best one in a
/// larger pool.
pub fn advise(scenario: &Scenario, sizes: &[u8], runs: u64) -> Result<Advice> {
    let fresh = scenario.afresh();
    let has_v4 = fresh.pools_for_pods().any(|pool| cidr::is_v4(pool.cidr));
    let family = if has_v4 { Family::V4 } else { Family::V6 };
    let sizes = sizes_in_pools(&fresh, family, sizes);

    let mut trials = Trials::run(&fresh, &sizes, runs)?;
    // The candidates that are shown are always those in the cluster's own pools.
    let candidates = trials.candidates();
    if trials.best().is_none() {
        trials = Trials::run(&with_larger_pool(&fresh, family, &sizes), &sizes, runs)?;
    }

    // The advice without a best size. It is returned if every size has drawbacks even in a larger pool.
    let advice = Advice {
        nodes: fresh.node_count(),
        pods_per_node: fresh.pods_per_node,
        max_pods_per_node: fresh.max_pods_per_node,
        block_size: None,
        runs: trials.pods_per_node.len() as u64,
        wins: 0,
        tipping: None,
        pool_prefix: None,
        pool_addresses: None,
        pools_suffice: None,
        block_limit: None,
        candidates,
    };
    let Some(block_size) = trials.best() else {
        return Ok(advice);
    };

    let needed = addresses_needed(&fresh, block_size);
    let existing = pools_of(&fresh, family).fold(0, |sum: u128, cidr| sum.saturating_add(cidr::size(cidr)));
    Ok(Advice {
        block_size: Some(block_size),
        wins: trials.winners().filter(|(_, best)| *best == block_size).count() as u64,
        tipping: trials.tipping(block_size),
        pool_prefix: Some(prefix_for(needed, block_size)),
        pool_addresses: Some(Count(needed)),
        pools_suffice: Some(existing >= needed),
        block_limit: Some(blocks_of_full_node(&fresh, block_size) + 1),
        ..advice
    })
}

/// Returns the block sizes, as prefix lengths, that fit into the family's largest pool. If the family is IPv6, converts
/// IPv4 sizes to those with the same number of addresses.
fn sizes_in_pools(scenario: &Scenario, family: Family, sizes: &[u8]) -> Vec<u8> {
    let largest_pool = pools_of(scenario, family).map(|cidr| cidr.prefix_len()).min();
    let pool_prefix = largest_pool.unwrap_or(0);

    let mut fitting_sizes = Vec::new();
    for size in sizes {
        let is_converted = family == Family::V6 && *size <= Family::V4.bits();
        let size_in_family = if is_converted {
            *size + (Family::V6.bits() - Family::V4.bits())
        } else {
            *size
        };
        if size_in_family >= pool_prefix {
            fitting_sizes.push(size_in_family);
        }
    }
    fitting_sizes
}

/// The runs with each block size.
struct Trials {
    /// The average number of pods per node, by run.
    pods_per_node: Vec<u32>,
    sizes: Vec<Trial>,
}

struct Trial {
    block_size: u8,
    runs: Vec<Run>,
    /// The drawbacks that occurred in any run.
    drawbacks: Vec<Drawback>,
}

/// Returns for each run the lowest average time of an ADD among all block sizes, with which slower sizes are compared.
fn quickest_of_each_run(by_size: &[(u8, Vec<Run>)], run_count: usize) -> Vec<Micros> {
    let mut quickest = Vec::with_capacity(run_count);
    for index in 0..run_count {
        let means = by_size.iter().map(|(_, runs)| runs[index].adds.time.mean);
        quickest.push(means.min().unwrap_or_default());
    }
    quickest
}

impl Trials {
    /// Simulates `run_count` variants of a scenario with each block size.
    fn run(scenario: &Scenario, sizes: &[u8], run_count: u64) -> Result<Self> {
        let by_size = with_each_size(scenario, sizes, run_count)?;
        let variants = variants(scenario, run_count);
        let pods_per_node: Vec<u32> = variants.iter().map(|variant| variant.pods_per_node).collect();
        let quickest_means = quickest_of_each_run(&by_size, pods_per_node.len());

        let mut trials = Vec::new();
        for (block_size, runs) in by_size {
            // A set, since several runs can have the same drawback.
            let mut found = BTreeSet::new();
            for (run, quickest_mean) in runs.iter().zip(&quickest_means) {
                found.extend(drawbacks(scenario, block_size, run, *quickest_mean));
            }
            trials.push(Trial {
                block_size,
                runs,
                drawbacks: found.into_iter().collect(),
            });
        }

        Ok(Self {
            sizes: trials,
            pods_per_node,
        })
    }

    /// The block sizes that were tried, with their results.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for trial in &self.sizes {
            candidates.push(Candidate {
                row: BlockSizeRow {
                    block_size: trial.block_size,
                    run: Run::combine(&trial.runs),
                },
                drawbacks: trial.drawbacks.clone(),
            });
        }
        candidates
    }

    /// The sizes without drawbacks.
    fn sound(&self) -> impl Iterator<Item = &Trial> {
        self.sizes.iter().filter(|trial| trial.drawbacks.is_empty())
    }

    /// The size without drawbacks that has the lowest total cost; the first among equals.
    fn best(&self) -> Option<u8> {
        self.sound()
            .min_by_key(|trial| trial.cost())
            .map(|trial| trial.block_size)
    }

    /// The number of pods per node in each run, and the size without drawbacks that cost least in that run.
    fn winners(&self) -> impl Iterator<Item = (u32, u8)> {
        self.pods_per_node.iter().enumerate().filter_map(|(run, pods)| {
            let best = self.sound().min_by_key(|trial| cost(&trial.runs[run]))?;
            Some((*pods, best.block_size))
        })
    }

    /// Finds how firm the advice for `best_size` is: the second-best size and its additional cost, and the number of
    /// pods per node, nearest to the scenario's, for which another size is best. `None` if no other size is without
    /// drawbacks.
    fn tipping(&self, best_size: u8) -> Option<Tipping> {
        let best = self.sound().find(|trial| trial.block_size == best_size)?;
        let others = self.sound().filter(|trial| trial.block_size != best_size);
        let second = others.min_by_key(|trial| trial.cost())?;
        let additional_cost = second.cost().saturating_sub(best.cost());

        // The first run has the scenario's own number of pods.
        let expected_pods = self.pods_per_node.first().copied().unwrap_or_default();
        let other_winners = self.winners().filter(|(_, winner)| *winner != best_size);
        let nearest = other_winners.min_by_key(|(pods, _)| (pods.abs_diff(expected_pods), *pods));

        Some(Tipping {
            second: second.block_size,
            costs_more_percent: percent(additional_cost, best.cost()),
            pods_per_node: nearest.map(|(pods, _)| pods),
            block_size: nearest.map(|(_, winner)| winner),
        })
    }
}

impl Trial {
    fn cost(&self) -> u64 {
        self.runs.iter().map(cost).sum()
    }
}

/// The cost of a run: wasted addresses, plus [`ROUTE_COST`] for each route.
fn cost(run: &Run) -> u64 {
    run.blocks.wasted + run.blocks.routes * ROUTE_COST
}

/// The CIDRs of a family's pools from which pods get addresses.
fn pools_of(scenario: &Scenario, family: Family) -> impl Iterator<Item = IpNet> {
    scenario
        .pools_for_pods()
        .map(|pool| pool.cidr)
        .filter(move |cidr| Family::of(*cidr) == family)
}

/// Returns the drawbacks of a block size in one run; none if the size can be advised. `quickest_mean` is the lowest
/// average time of an ADD among all sizes.
fn drawbacks(scenario: &Scenario, block_size: u8, run: &Run, quickest_mean: Micros) -> Vec<Drawback> {
    let mut drawbacks = Vec::new();
    if run.waiting_pods > 0 {
        drawbacks.push(Drawback::WaitingPods);
    }
    if run.blocks.stranded_nodes > 0 {
        drawbacks.push(Drawback::StrandedNodes);
    }
    if run.blocks.borrowed > 0 {
        drawbacks.push(Drawback::Borrows);
    }

    let time = &run.adds.time;
    let slow_mean = quickest_mean.0.saturating_mul(SLOW_MEAN_PERMILLE) / 1_000;
    if time.mean.0 > slow_mean || time.p99 > SLOW_P99 {
        drawbacks.push(Drawback::Slow);
    }

    let block_limit = scenario.config().unwrap_or_default().block_limit();
    if blocks_of_full_node(scenario, block_size) > block_limit {
        drawbacks.push(Drawback::BlockLimit);
    }
    drawbacks
}

/// Returns the same cluster, but with a single pool of the family, which is large enough for every size. The pool
/// begins where the largest one does. Pools of the other family stay.
fn with_larger_pool(scenario: &Scenario, family: Family, sizes: &[u8]) -> Scenario {
    let prefixes = sizes
        .iter()
        .map(|size| prefix_for(addresses_needed(scenario, *size), *size));
    let needed_prefix = prefixes.min();
    let largest_pool = pools_of(scenario, family).min_by_key(IpNet::prefix_len);

    let mut enlarged = scenario.clone();
    enlarged.pools.retain(|pool| Family::of(pool.cidr) != family);
    if let Some(start) = &mut enlarged.start {
        let pools = &mut Arc::make_mut(start).pools;
        pools.retain(|pool| Family::of(pool.cidr) != family);
    }

    if let (Some(largest_pool), Some(needed_prefix)) = (largest_pool, needed_prefix) {
        let prefix = needed_prefix.min(largest_pool.prefix_len());
        if let Ok(cidr) = IpNet::new(largest_pool.addr(), prefix) {
            enlarged.pools.push(PoolSpec::new(cidr.trunc()));
        }
    }
    enlarged
}

/// The number of blocks that a node needs at its pod limit.
fn blocks_of_full_node(scenario: &Scenario, block_size: u8) -> u32 {
    scenario.max_pods_per_node.div_ceil(addresses(block_size))
}

/// The number of addresses in a block. Prefix lengths beyond 32 are IPv6.
fn addresses(block_size: u8) -> u32 {
    1u32.checked_shl((bits(block_size) - block_size.min(128)).into())
        .unwrap_or(u32::MAX)
}

/// The prefix length of a single address in a block size's family.
fn bits(block_size: u8) -> u8 {
    if block_size > 32 { 128 } else { 32 }
}

/// The number of addresses that a pool needs for all blocks of full nodes, with some to spare.
fn addresses_needed(scenario: &Scenario, block_size: u8) -> u128 {
    let blocks = u128::from(scenario.node_count()) * u128::from(blocks_of_full_node(scenario, block_size));
    let needed = blocks * u128::from(addresses(block_size));
    needed + needed.div_ceil(SPARE_DIVISOR)
}

/// The prefix length of the smallest pool with at least this number of addresses.
fn prefix_for(addresses: u128, block_size: u8) -> u8 {
    let host_bits = addresses.max(1).next_power_of_two().trailing_zeros();
    bits(block_size).saturating_sub(u8::try_from(host_bits).unwrap_or(u8::MAX))
}
