//! One run, and its results.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use calipam_check::views::Count;
use calipam_check::{Context, Options};
use calipam_model::cidr;

use super::ranks::{HIGHEST, MEDIAN, rank};
use super::{Adds, BlockUse, Requests, Run, Times, percent};
use crate::cluster::{Measured, Pod, Timed, World};
use crate::error::Result;
use crate::scenario::Scenario;
use crate::time::Micros;

/// Runs a scenario once.
pub fn run(scenario: &Scenario) -> Result<Run> {
    let world = simulate(scenario, |_| ())?;
    Ok(world.result())
}

/// Runs a scenario after `prepare` has planned more events. Returns the world at the end.
pub(super) fn simulate(scenario: &Scenario, prepare: impl FnOnce(&Rc<World>)) -> Result<Finished> {
    let world = World::new(&Arc::new(scenario.clone()))?;
    prepare(&world);
    world.run();
    Ok(Finished(world))
}

/// A world at the end of its run.
pub(super) struct Finished(Rc<World>);

impl Drop for Finished {
    /// Drops the planned events, because the events and the world hold references to each other.
    fn drop(&mut self) {
        self.0.engine.stop();
    }
}

impl std::ops::Deref for Finished {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl World {
    /// Returns the results of the run until now. `range` is only set by runs that are combined.
    pub(super) fn result(&self) -> Run {
        let measured = self.measured.borrow();
        let pods = self.pods.borrow();
        let snapshot = self.snapshot_of_blocks();
        // Nodes to which the allocator could give no address now.
        let stranded = Context::new(&snapshot, &Options::default()).nodes_without_addresses();
        Run {
            seed: self.scenario.seed,
            nodes: self.scenario.node_count(),
            pods: pods.all().filter(|(_, pod)| pod.runs).count() as u64,
            waiting_pods: self.waiting_pods(),
            time_to_address: summary_of_times(pods.created().filter_map(Pod::time_to_address)),
            simulated: self.engine.now(),
            adds: summary_of_adds(&measured),
            deleted: measured.deleted,
            datastore_requests: self.server.requests.get(),
            blocks: BlockUse {
                stranded_nodes: stranded.len() as u64,
                ..self.block_use()
            },
            clashes: self.ledger.borrow().clashes.len() as u64,
            range: None,
        }
    }

    /// Counts the blocks, the addresses in them, and the routes that they need.
    fn block_use(&self) -> BlockUse {
        let data = self.server.data();
        let mut pool_addresses: u128 = 0;
        for pool in data.pools.iter().filter(|pool| pool.is_enabled()) {
            pool_addresses = pool_addresses.saturating_add(cidr::size(pool.cidr));
        }
        let mut counted = BlockUse {
            pool_addresses: Count(pool_addresses),
            ..BlockUse::default()
        };

        let mut blocks_of_node: BTreeMap<&str, u64> = BTreeMap::new();
        for block in data.blocks() {
            let host = block.host();
            counted.blocks += 1;
            counted.addresses += u64::from(block.size());
            // The free addresses of a block without an owner are not wasted: any node can claim the block.
            if let Some(host) = host {
                *blocks_of_node.entry(host).or_default() += 1;
                counted.wasted += block.free().len() as u64;
            }
            for allocation in block.allocations() {
                if allocation.attribute.is_cooling() {
                    continue;
                }
                counted.allocated += 1;
                // An address in a block without an owner has its own route, but is not borrowed.
                let Some(host) = host else {
                    counted.routes += 1;
                    continue;
                };
                let node = allocation.attribute.get("node");
                if node.is_some_and(|node| node != *host) {
                    counted.borrowed += 1;
                    counted.routes += 1;
                }
            }
        }

        // Nodes announce one route for each of their blocks.
        counted.routes += blocks_of_node.values().sum::<u64>();
        counted.max_blocks_of_node = blocks_of_node.values().copied().max().unwrap_or(0);
        counted.wasted_percent = percent(counted.wasted, counted.addresses);
        counted.borrowed_percent = percent(counted.borrowed, counted.allocated);
        counted
    }
}

/// Sums up the ADD calls of a run: all together, those that found an address in their node's own blocks, and those that
/// listed blocks to claim a new one or to borrow.
fn summary_of_adds(measured: &Measured) -> Adds {
    let all = measured.started.iter();
    let in_own_block = all.clone().filter(|add| !add.listed);
    let with_list = all.clone().filter(|add| add.listed);
    Adds {
        started: measured.started.len() as u64,
        failed: measured.reasons.values().sum(),
        too_long: measured.too_long,
        reasons: measured.reasons.clone(),
        time: summary_of_times(all.clone().map(|add| add.time)),
        time_in_own_block: summary_of_times(in_own_block.clone().map(|add| add.time)),
        time_with_list: summary_of_times(with_list.clone().map(|add| add.time)),
        waited: summary_of_times(all.clone().map(|add| add.waited)),
        requests: summary_of_requests(all),
        requests_in_own_block: summary_of_requests(in_own_block),
        requests_with_list: summary_of_requests(with_list),
        conflicts: measured.conflicts,
    }
}

/// Summarizes times in microseconds. Without any, all numbers are 0.
fn summary_of_times(times: impl Iterator<Item = u32>) -> Times {
    let mut sorted: Vec<u32> = times.collect();
    sorted.sort_unstable();
    let count = sorted.len() as u64;
    let sum: u64 = sorted.iter().copied().map(u64::from).sum();
    let time_at = |permille: usize| Micros(rank(&sorted, permille).unwrap_or(0).into());
    Times {
        count,
        mean: Micros(sum.checked_div(count).unwrap_or(0)),
        median: time_at(MEDIAN),
        p90: time_at(900),
        p99: time_at(990),
        worst: time_at(HIGHEST),
    }
}

/// Summarizes the numbers of requests to the datastore that ADDs made. Without any ADD, all numbers are 0.
fn summary_of_requests<'a>(adds: impl Iterator<Item = &'a Timed>) -> Requests {
    let mut sorted: Vec<u16> = adds.map(|add| add.requests).collect();
    sorted.sort_unstable();
    let count = sorted.len() as u64;
    let sum: u64 = sorted.iter().copied().map(u64::from).sum();
    // The mean is rounded to two decimal places.
    let hundredths = (sum * 100 + count / 2).checked_div(count).unwrap_or(0);
    Requests {
        mean: hundredths as f64 / 100.0,
        median: rank(&sorted, MEDIAN).unwrap_or(0).into(),
        most: sorted.last().copied().unwrap_or(0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_few_and_many() {
        let found = summary_of_times((1..=200).rev());
        assert_eq!(
            (found.median, found.p99, found.worst),
            (Micros(100), Micros(198), Micros(200))
        );
        assert_eq!((found.count, found.mean), (200, Micros(100)));
        assert_eq!(summary_of_times([7].into_iter()).p99, Micros(7));
        assert_eq!(summary_of_times(std::iter::empty()), Times::default());
    }
}
