//! Which block size, pool and limit of blocks fit a cluster?

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

/// Why a block size is advised or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    #[serde(flatten)]
    pub row: BlockSizeRow,
    /// Why it is out of the question; empty if it is not.
    pub drawbacks: Vec<Objection>,
}

/// A drawback of a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objection {
    /// Pods stay without addresses.
    WaitingPods,
    StrandedNodes,
    /// Addresses are borrowed, each with a route of its own.
    Borrows,
    /// An ADD takes much longer than with the best size, or one in a hundred longer than a second.
    Slow,
    /// A full node needs more blocks than a node may hold.
    BlockLimit,
}

/// How far a block size is from not being the best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tipping {
    /// The second best size, and how much more it costs in wasted addresses and routes, in percent.
    pub second: u8,
    pub costs_more_percent: f64,
    /// The nearest number of pods per node among the runs with which another size was the best, and that size.
    pub pods_per_node: Option<u32>,
    pub block_size: Option<u8>,
}

/// Which block size, pool and limit of blocks fit a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    pub nodes: u32,
    pub pods_per_node: u32,
    pub max_pods_per_node: u32,
    /// The prefix length of blocks. If the pools are too small for each of the candidates, the one that would fit best
    /// in a pool that is large enough; `None` if none would.
    pub block_size: Option<u8>,
    /// Runs with each size, and in how many of them the advised one was the best.
    pub runs: u64,
    pub wins: u64,
    pub tipping: Option<Tipping>,
    /// The prefix length of the pool.
    pub pool_prefix: Option<u8>,
    /// Addresses that the pool has to have.
    pub pool_addresses: Option<Count>,
    /// Whether the pools suffice that the scenario has.
    pub pools_suffice: Option<bool>,
    /// Blocks that a full node needs, and one more: the limit of blocks where affinity is strict.
    pub block_limit: Option<u32>,
    pub candidates: Vec<Candidate>,
}

/// Simulates a cluster with each of some block sizes, and says which fits best: of those with nothing against them in any
/// run, the one that wastes the fewest addresses for its routes in all runs together. If the pools are too small for
/// each, it says which would fit in a larger one.
pub fn advise(scenario: &Scenario, sizes: &[u8], runs: u64) -> Result<Advice, ScenarioError> {
    let fresh = scenario.afresh();
    let has_v4 = fresh.pools_for_pods().any(|pool| cidr::is_v4(pool.cidr));
    let family = if has_v4 { Family::V4 } else { Family::V6 };
    let sizes = sizes_for(&fresh, family, sizes);
    let mut found = Trials::run(&fresh, &sizes, runs)?;
    let candidates = found.candidates();
    if found.best().is_none() {
        found = Trials::run(&with_larger_pool(&fresh, family, &sizes), &sizes, runs)?;
    }
    let block_size = found.best();

    let pool_addresses = block_size.map(|size| addresses_needed(&fresh, size));
    let existing = pools_of(&fresh, family).fold(0, |sum: u128, cidr| sum.saturating_add(cidr::size(cidr)));
    Ok(Advice {
        nodes: fresh.node_count(),
        pods_per_node: fresh.pods_per_node,
        max_pods_per_node: fresh.max_pods_per_node,
        block_size,
        runs: found.pods_per_node.len() as u64,
        wins: block_size.map_or(0, |size| found.winners().filter(|(_, best)| *best == size).count() as u64),
        tipping: block_size.and_then(|size| found.tipping(size)),
        pool_prefix: pool_addresses.zip(block_size).map(|(addresses, size)| prefix_for(addresses, size)),
        pool_addresses: pool_addresses.map(Count),
        pools_suffice: pool_addresses.map(|needed| existing >= needed),
        block_limit: block_size.map(|size| blocks_of_full_node(&fresh, size) + 1),
        candidates,
    })
}

/// The runs with each of some block sizes.
struct Trials {
    /// Pods of each node on average, by run.
    pods_per_node: Vec<u32>,
    sizes: Vec<Trial>,
}

struct Trial {
    block_size: u8,
    runs: Vec<Run>,
    /// What is against the size in any run.
    drawbacks: Vec<Objection>,
}

impl Trials {
    fn run(scenario: &Scenario, sizes: &[u8], runs: u64) -> Result<Self, ScenarioError> {
        let shown = with_each_size(scenario, sizes, runs)?;
        let pods_per_node: Vec<u32> =
            variants(scenario, runs).iter().map(|variant| variant.pods_per_node).collect();
        let quickest: Vec<Micros> = (0..pods_per_node.len())
            .map(|run| shown.iter().map(|(_, runs)| runs[run].adds.time.mean).min().unwrap_or_default())
            .collect();
        let trial = |(block_size, runs): (u8, Vec<Run>)| {
            let found: BTreeSet<Objection> = runs
                .iter()
                .zip(&quickest)
                .flat_map(|(run, quickest)| drawbacks(scenario, block_size, run, *quickest))
                .collect();
            Trial { block_size, runs, drawbacks: found.into_iter().collect() }
        };
        Ok(Self { sizes: shown.into_iter().map(trial).collect(), pods_per_node })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |trial: &Trial| Candidate {
            row: BlockSizeRow { block_size: trial.block_size, run: Run::of_several(&trial.runs) },
            drawbacks: trial.drawbacks.clone(),
        };
        self.sizes.iter().map(candidate).collect()
    }

    /// Those with nothing against them.
    fn sound(&self) -> impl Iterator<Item = &Trial> {
        self.sizes.iter().filter(|trial| trial.drawbacks.is_empty())
    }

    /// The size that costs least in all runs together; of equals the largest block.
    fn best(&self) -> Option<u8> {
        self.sound().min_by_key(|trial| trial.cost()).map(|trial| trial.block_size)
    }

    /// By run: the pods of each node, and the size that costs least in it.
    fn winners(&self) -> impl Iterator<Item = (u32, u8)> {
        self.pods_per_node.iter().enumerate().filter_map(|(run, pods)| {
            let best = self.sound().min_by_key(|trial| cost(&trial.runs[run]))?;
            Some((*pods, best.block_size))
        })
    }

    /// How far a size is from not being the best.
    fn tipping(&self, size: u8) -> Option<Tipping> {
        let own = self.sound().find(|trial| trial.block_size == size)?.cost();
        let second =
            self.sound().filter(|trial| trial.block_size != size).min_by_key(|trial| trial.cost())?;
        let centre = self.pods_per_node.first().copied().unwrap_or_default();
        let others = self.winners().filter(|(_, best)| *best != size);
        let nearest = others.min_by_key(|(pods, _)| (pods.abs_diff(centre), *pods));
        Some(Tipping {
            second: second.block_size,
            costs_more_percent: percent(second.cost().saturating_sub(own), own),
            pods_per_node: nearest.map(|(pods, _)| pods),
            block_size: nearest.map(|(_, size)| size),
        })
    }
}

impl Trial {
    fn cost(&self) -> u64 {
        self.runs.iter().map(cost).sum()
    }
}

/// Wasted addresses, and routes as so many of them.
fn cost(run: &Run) -> u64 {
    run.blocks.wasted + run.blocks.routes * ROUTE
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

fn drawbacks(scenario: &Scenario, block_size: u8, run: &Run, quickest: Micros) -> Vec<Objection> {
    let (time, limit) = (&run.adds.time, scenario.config().unwrap_or_default().block_limit());
    let is_slow = time.mean.0 > quickest.0.saturating_mul(SLOWER) / 1_000 || time.p99 > LONGEST;
    [
        (run.waiting_pods > 0, Objection::WaitingPods),
        (run.blocks.stranded_nodes > 0, Objection::StrandedNodes),
        (run.blocks.borrowed > 0, Objection::Borrows),
        (is_slow, Objection::Slow),
        (blocks_of_full_node(scenario, block_size) > limit, Objection::BlockLimit),
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
