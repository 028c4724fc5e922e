//! The work of several workers that start and stop pods, and claim and release blocks: its limits, its log, and the
//! operations in progress.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calipam_model::parallel::lock;

use super::ledger::Ledger;
use super::users::Ending;

/// Pause between two checks whether an operation has ended.
const POLL: Duration = Duration::from_millis(20);

/// The work for the workers, and its limits.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Number of concurrent workers, each with its own thread. They share the nodes of the cluster.
    pub workers: usize,
    /// Number of operations of each worker; fewer if the churn is [stopped](Activity::stop).
    pub operations: usize,
    /// The workers continue until this returns true for their shared log. Since the operations are random, a test
    /// states here the outcome that it relies on.
    pub enough: fn(&ChurnLog) -> bool,
    /// No operation begins later than this, even if the workers have not done enough.
    pub limit: Duration,
    /// Longest pause after a write.
    pub pause: Duration,
    /// Number of leaks per thousand pods that end. The pod disappears, and its addresses are not released.
    pub leaks: u64,
    /// Approximate number of pods that each worker keeps; 0 means no target.
    pub pods: usize,
    /// The seed of all choices and of the pods' names. Two churns on one cluster need different seeds. There are 40
    /// seeds.
    pub seed: u64,
    /// The operations in progress. With a clone of this field, a reader can see them, and stop the workers before the
    /// limit.
    pub activity: Activity,
}

impl Default for Churn {
    fn default() -> Self {
        Self {
            workers: 4,
            operations: 100,
            enough: |_| true,
            limit: Duration::from_secs(20),
            pause: Duration::from_millis(4),
            leaks: 0,
            pods: 0,
            seed: 1,
            activity: Activity::default(),
        }
    }
}

/// The operations that the workers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChurnLog {
    /// Number of started pods. Each was assigned an address.
    pub started: u64,
    /// Number of existing pods that were started again in a new sandbox. They also count as stopped.
    pub restarted: u64,
    /// Number of pods that stopped in any way. Their addresses were released, except those of `lost` pods.
    pub stopped: u64,
    /// Stopped pods that had finished.
    pub finished: u64,
    /// Stopped pods that were evicted.
    pub evicted: u64,
    /// Stopped pods that leaked their addresses.
    pub lost: u64,
    /// Number of claimed blocks.
    pub claimed: u64,
    /// Number of released blocks.
    pub released: u64,
    /// Number of writes of blocks, affinities and handles that took effect.
    pub writes: u64,
    /// The owner of each address, and all violations.
    pub ledger: Ledger,
}

impl ChurnLog {
    /// Returns the number of addresses assigned and released.
    pub fn operations(&self) -> u64 {
        self.started + self.stopped - self.lost
    }

    /// Counts a pod that stops.
    pub(super) fn count(&mut self, ending: Ending) {
        self.stopped += 1;
        match ending {
            Ending::Deleted => {}
            Ending::Restarted => self.restarted += 1,
            Ending::Finished => self.finished += 1,
            Ending::Evicted => self.evicted += 1,
            Ending::Lost => self.lost += 1,
        }
    }
}

/// The operations that the workers of a churn are running, for tests that read at the same time. All clones refer to
/// the same churn.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The start of each worker's operation, by the worker's number.
    begun: Arc<Mutex<BTreeMap<usize, Instant>>>,
    stopped: Arc<AtomicBool>,
    /// Number of operations that have ended, successful or not.
    done: Arc<AtomicU64>,
    /// The errors with which workers gave up.
    failures: Arc<Mutex<Vec<String>>>,
}

/// One operation. It ends when this value is dropped, even if it failed.
pub(super) struct Operation<'a> {
    activity: &'a Activity,
    worker: usize,
}

impl Activity {
    /// Makes the workers stop as soon as [enough](Churn::enough) has been done.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the number of operations that have ended, successful or not.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the errors with which workers gave up. What such a worker was doing stays half done.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    pub(super) fn fail(&self, error: &anyhow::Error) {
        lock(&self.failures).push(format!("{error:#}"));
    }

    /// Waits until every operation that began before `moment` has ended, however slow the machine is.
    pub async fn ended(&self, moment: Instant) {
        while lock(&self.begun).values().any(|begun| *begun < moment) {
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self, worker: usize, now: Instant) -> Operation<'_> {
        lock(&self.begun).insert(worker, now);
        Operation {
            activity: self,
            worker,
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        lock(&self.activity.begun).remove(&self.worker);
        self.activity.done.fetch_add(1, Ordering::Relaxed);
    }
}
