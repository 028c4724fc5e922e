//! Estimates how long an eviction takes: simulates the cluster, with the time that its pods last took to start.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use calipam_datastore::workloads::WorkloadPod;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Snapshot;
use calipam_plan::migrate::Migration;
use calipam_simulate::answer::{self, Evicted};
use calipam_simulate::{Scenario, ScenarioError, Start, StartPod};
use jiff::SignedDuration;
use serde::{Serialize, Serializer};

use super::Eviction;

/// An estimate of how long an eviction takes. It ignores delays that disruption budgets and image pulls cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The number of pods that can be evicted.
    pub pods: usize,
    /// The number of these pods that do not move, because their batch or an earlier one finds no free addresses.
    pub not_moved: usize,
    /// The number of pods that are evicted at the same time.
    pub batch: usize,
    /// The median time from the creation of a pod until it was ready.
    #[serde(rename = "eachSeconds", serialize_with = "seconds")]
    pub each: SignedDuration,
    #[serde(rename = "totalSeconds", serialize_with = "seconds")]
    pub total: SignedDuration,
}

fn seconds<S: Serializer>(duration: &SignedDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(duration.as_secs())
}

/// The longest start time that is taken into account, in multiples of the median. A longer time means that the pod
/// became unready again later.
const OUTLIER: i32 = 10;
/// The time that a batch waits for addresses if no eviction is requested. A container runtime tries several times
/// within this time.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

impl Estimate {
    /// Estimates an eviction; `None` if it is not known for any of the pods how long it took to become ready.
    ///
    /// # Errors
    /// If the cluster cannot be simulated.
    pub(super) fn simulate(
        snapshot: &Snapshot,
        migration: &Migration,
        pods: &[&WorkloadPod],
        eviction: Option<&Eviction>,
    ) -> Result<Option<Self>, ScenarioError> {
        let mut ready_after: Vec<SignedDuration> = pods.iter().filter_map(|pod| pod.ready_after).collect();
        ready_after.sort_unstable();
        let Some(median) = ready_after.get(ready_after.len() / 2).copied() else {
            return Ok(None);
        };
        let longest_usual = median.saturating_mul(OUTLIER);
        ready_after.retain(|took| *took <= longest_usual);

        // Without an eviction, it is estimated with the usual options.
        let (batch, pause, patience) = match eviction {
            Some(eviction) => (eviction.batch, eviction.pause, eviction.patience),
            None => (1, SignedDuration::ZERO, PATIENCE),
        };
        let simulated = answer::Eviction {
            addresses: pods.iter().flat_map(|pod| pod.addresses.clone()).collect(),
            batch,
            pause: pause.into(),
            patience: patience.into(),
            ready_after: ready_after.into_iter().map(Into::into).collect(),
        };
        let scenario = scenario(snapshot, migration, pods);
        let Evicted { pods, moved, took } = answer::evict(&scenario, &simulated)?;
        Ok(Some(Self {
            pods,
            not_moved: pods - moved,
            batch,
            each: median,
            total: took.duration(),
        }))
    }
}

/// Adds or enables the new pool, and disables the old one.
fn switch_pools(pools: &mut Vec<Pool>, migration: &Migration) {
    if let Some(new) = &migration.new {
        pools.retain(|pool| pool.name != new.name);
        pools.push(Pool {
            disabled: false,
            ..new.clone()
        });
    }
    for pool in pools {
        if pool.name == migration.old.name {
            pool.disabled = true;
        }
    }
}

fn most_pods_on_a_node(pods: &[StartPod]) -> u32 {
    let mut pods_on_node: HashMap<&str, u32> = HashMap::new();
    for pod in pods {
        *pods_on_node.entry(&pod.node).or_default() += 1;
    }
    pods_on_node.into_values().max().unwrap_or_default()
}

/// Builds the scenario: the cluster with the old pool disabled and the new one enabled.
fn scenario(snapshot: &Snapshot, migration: &Migration, pods: &[&WorkloadPod]) -> Scenario {
    let mut start = Start::from_snapshot(snapshot);
    switch_pools(&mut start.pools, migration);
    // Pods whose addresses no block records take part, too.
    let recorded: BTreeSet<IpAddr> = start.pods.iter().flat_map(|pod| pod.addresses.clone()).collect();
    for pod in pods {
        if pod.addresses.iter().any(|address| recorded.contains(address)) {
            continue;
        }
        start.pods.push(StartPod {
            handle: pod.uid.clone(),
            node: pod.node.clone(),
            addresses: pod.addresses.clone(),
        });
    }

    let default = Scenario::default();
    let most_pods = most_pods_on_a_node(&start.pods);
    Scenario {
        datastore: snapshot.datastore,
        pods_per_node: 0,
        max_pods_per_node: default.max_pods_per_node.max(most_pods),
        start: Some(Arc::new(start)),
        ..default
    }
}
