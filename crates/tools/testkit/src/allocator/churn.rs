//! Several workers that start and stop pods, claim blocks and give them up, until they have done enough.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::activity::Activity;
use super::ledger::Ledger;
use super::store::{Result, Store, Target};
use super::worker::{Shared, Worker};
use crate::cluster::rng::Rng;
use crate::cluster::{Cluster, ClusterSpec};

/// How much the workers do. All of it is bounded.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Workers at once, each with a thread of its own; they share the nodes of the cluster among them.
    pub workers: usize,
    /// Operations of each worker; fewer where the churn is [stopped](Activity::stop).
    pub operations: usize,
    /// The workers go on until this holds of what all of them have done. Which operations there are is left to chance;
    /// what a test relies on belongs here.
    pub enough: fn(&ChurnLog) -> bool,
    /// No operation begins later than this, whatever has been done.
    pub limit: Duration,
    /// Longest pause after a write.
    pub pause: Duration,
    /// Of a thousand pods that end, so many leak: they are gone without their addresses having been released.
    pub leaks: u64,
    /// For how many seconds pods say they have had their addresses when they get them. Above the grace period of a
    /// check, nothing protects what is half done.
    pub ages: Range<u64>,
    /// How many pods each worker keeps, about; if it is 0, that is left to chance.
    pub pods: usize,
    /// What the workers' choices follow from, and the names of their pods: those of two churns on one cluster need
    /// different seeds, of 40 that there are.
    pub seed: u64,
    /// What the workers are doing: a clone of it tells a reader, and stops them before the limit.
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
            ages: 3600..7200,
            pods: 0,
            seed: 1,
            activity: Activity::default(),
        }
    }
}

/// What the workers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChurnLog {
    /// Pods started: addresses assigned.
    pub started: u64,
    /// Of those, pods that were started again in a new sandbox, which counts as stopped, too.
    pub restarted: u64,
    /// Pods stopped in any way: addresses released, but for those of `lost` pods.
    pub stopped: u64,
    /// Of those, pods that finished.
    pub finished: u64,
    /// Of those, pods that were evicted.
    pub evicted: u64,
    /// Of those, pods that leaked their addresses.
    pub lost: u64,
    /// Blocks claimed.
    pub claimed: u64,
    /// Blocks given up.
    pub released: u64,
    /// Writes of blocks, affinities and handles that took effect.
    pub writes: u64,
    /// Writes of those that another worker was faster with.
    pub conflicts: u64,
    /// What the longest operation took.
    pub longest: Duration,
    /// Who has which address, and what went wrong.
    pub ledger: Ledger,
}

impl ChurnLog {
    /// Addresses assigned, and addresses released.
    pub fn operations(&self) -> u64 {
        self.started + self.stopped - self.lost
    }
}

impl Churn {
    /// Works on the etcd at `endpoint`, which holds `cluster`, and waits until all is done. Every operation is
    /// finished then. Works inside and outside of async runtimes; to read meanwhile, give it a thread of its own.
    pub fn run(&self, endpoint: &str, cluster: &Cluster) -> Result<ChurnLog> {
        let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        self.run_on(Target::Etcd(endpoint), cluster.spec(), &nodes)
    }

    /// Works on any datastore, which must hold the pool of `spec` and the nodes, as [`run`](Self::run) does. On
    /// Kubernetes the [namespaces](crate::kube::seed) of the pods must exist.
    pub fn run_on(&self, target: Target<'_>, spec: &ClusterSpec, nodes: &[String]) -> Result<ChurnLog> {
        let shared = Shared::new(*spec, nodes);
        thread::scope(|scope| {
            let shared = &shared;
            let work = |number| {
                let work = move || self.work(target, shared, number);
                thread::Builder::new().name(format!("allocator {number}")).spawn_scoped(scope, work)
            };
            let workers: Vec<_> = (0..self.workers).map(work).collect();
            let ended = workers.into_iter().map(|worker| {
                let worker = worker.expect("a test may start threads");
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            // Where one failed the scope waits for the others.
            ended.collect::<Result<()>>()
        })?;
        Ok(shared.log.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(&self, target: Target<'_>, shared: &Shared, number: usize) -> Result<()> {
        let rng = Rng::of(self.seed, number as u64);
        let store = Store::new(target.connect(shared.spec)?, rng.clone(), self.pause);
        Worker::new(store, rng, self, shared, number).run(Instant::now() + self.limit)
    }
}

/// Locks what is shared; a thread that panicked with it fails the test anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
