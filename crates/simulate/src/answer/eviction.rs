//! How long does it take until pods that are evicted run again elsewhere?

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::run::simulate;
use crate::scenario::{Scenario, ScenarioError};
use crate::time::Micros;

/// Pods that are evicted in batches. The next batch goes when all pods of the last one are ready elsewhere.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The pods that have one of these.
    pub addresses: BTreeSet<IpAddr>,
    pub batch: usize,
    /// Between two batches.
    pub pause: Micros,
    /// How long a batch may wait for addresses before the eviction stops.
    pub patience: Micros,
    /// How long pods take from their addresses until they are ready: each takes as long as one of these, at random.
    pub ready_after: Vec<Micros>,
}

/// What an eviction comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Those that were to be evicted.
    pub pods: usize,
    /// Those that have other addresses at the end. Fewer than all if some got none: then the eviction stopped.
    pub moved: usize,
    /// Until the last one was ready, or the eviction stopped.
    pub took: Micros,
}

/// How long time passes between two looks at whether it has ended.
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
