//! The time until evicted pods run again elsewhere.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::run::simulate;
use crate::scenario::{Scenario, ScenarioError};
use crate::time::Micros;

/// Pods that are evicted in batches. The next batch goes when all pods of the last one are ready elsewhere.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The addresses whose pods are evicted.
    pub addresses: BTreeSet<IpAddr>,
    /// The number of pods of a batch.
    pub batch: usize,
    /// The time between two batches.
    pub pause: Micros,
    /// The time for which a batch may wait for addresses before the eviction stops.
    pub patience: Micros,
    /// The possible times from a pod's addresses until it is ready, chosen at random.
    pub ready_after: Vec<Micros>,
}

/// The result of an eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// The number of pods to evict.
    pub pods: usize,
    /// The number of pods that got other addresses. If some got none, the eviction stopped.
    pub moved: usize,
    /// The time until the last pod was ready, or the eviction stopped.
    pub took: Micros,
}

/// The time between two looks at the result.
const STEP: Micros = Micros::from_mins(10);

/// Evicts pods of the cluster that a scenario begins with.
pub fn evict(scenario: &Scenario, eviction: &Eviction) -> Result<Evicted, ScenarioError> {
    let mut result = None;
    // Nothing else happens meanwhile.
    let scenario = Scenario { duration: Some(STEP), grace: None, ..scenario.clone() };
    let world = simulate(&scenario, |world| result = Some(world.begin_eviction(eviction)))?;
    loop {
        if let Some(evicted) = result.as_ref().and_then(|result| result.get()) {
            return Ok(evicted);
        }
        world.engine.run_until(world.engine.now() + STEP);
    }
}
