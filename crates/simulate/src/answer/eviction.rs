//! The time until evicted pods are running elsewhere.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::run::simulate;
use crate::error::Result;
use crate::scenario::Scenario;
use crate::time::Micros;

/// An eviction of pods in batches. Each batch waits until all pods of the previous one are ready elsewhere.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The addresses whose pods are evicted.
    pub addresses: BTreeSet<IpAddr>,
    /// The number of pods in a batch.
    pub batch: usize,
    /// The time between two batches.
    pub pause: Micros,
    /// The longest time that a batch waits for addresses before the eviction stops.
    pub patience: Micros,
    /// The possible times from a pod's getting addresses until it is ready. One is chosen at random for each pod.
    pub ready_after: Vec<Micros>,
}

/// The result of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// The number of pods to evict.
    pub pods: usize,
    /// The number of pods that got other addresses. Fewer than `pods` if the eviction stopped.
    pub moved: usize,
    /// The time until the last pod was ready, or until the eviction stopped.
    pub took: Micros,
}

/// The interval between checks for the result.
const STEP: Micros = Micros::from_mins(10);

/// Evicts pods from the cluster with which a scenario begins, and returns the outcome once the eviction has ended.
pub fn evict(scenario: &Scenario, eviction: &Eviction) -> Result<Evicted> {
    // Without a collector, nothing else happens during the eviction.
    let scenario = Scenario {
        duration: Some(STEP),
        grace: None,
        ..scenario.clone()
    };
    let mut result_cell = None;
    let world = simulate(&scenario, |world| {
        result_cell = Some(world.begin_eviction(eviction));
    })?;

    // The cell is empty until the eviction ends.
    loop {
        if let Some(evicted) = result_cell.as_ref().and_then(|cell| cell.get()) {
            return Ok(evicted);
        }
        world.engine.run_until(world.engine.now() + STEP);
    }
}
