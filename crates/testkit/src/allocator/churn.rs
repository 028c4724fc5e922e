//! Several workers that start and stop pods, claim blocks and give them up, until they have done enough.

use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{Client, Error};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use super::store::Store;
use super::{affinity, pod};
use crate::cluster::rng::Rng;
use crate::cluster::{Cluster, ClusterSpec, Holder, WriteError, pod_name};

/// Pods of workers have numbers from here on, so that no two have one name.
const FIRST_POD: u64 = 10_000_000;
/// Numbers of pods that one worker has for itself.
const PODS: u64 = 50_000;

/// How much the workers do. All of it is bounded.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Workers at once; they share the nodes of the cluster among them.
    pub workers: usize,
    /// Operations of each worker.
    pub operations: usize,
    /// No operation begins later than this.
    pub limit: Duration,
    /// Longest pause behind a write.
    pub pause: Duration,
    /// What the workers' choices follow from.
    pub seed: u64,
}

impl Default for Churn {
    fn default() -> Self {
        Self {
            workers: 4,
            operations: 100,
            limit: Duration::from_secs(20),
            pause: Duration::from_millis(4),
            seed: 1,
        }
    }
}

/// What the workers did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChurnLog {
    /// Pods started.
    pub started: u64,
    /// Pods stopped.
    pub stopped: u64,
    /// Blocks claimed.
    pub claimed: u64,
    /// Blocks given up.
    pub released: u64,
    /// Writes that took effect.
    pub writes: u64,
    /// Writes that another worker was faster with.
    pub conflicts: u64,
}

impl ChurnLog {
    fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.stopped += other.stopped;
        self.claimed += other.claimed;
        self.released += other.released;
        self.writes += other.writes;
        self.conflicts += other.conflicts;
    }
}

impl Churn {
    /// Works on the etcd at `endpoint`, which holds `cluster`, and waits until all is done. Every operation is
    /// finished then. Works inside and outside of async runtimes; to read meanwhile, give it a thread of its own.
    ///
    /// # Errors
    /// Where etcd cannot be reached or refuses.
    pub fn run(&self, endpoint: &str, cluster: &Cluster) -> Result<ChurnLog, WriteError> {
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(self.work(endpoint, cluster))
            });
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    async fn work(&self, endpoint: &str, cluster: &Cluster) -> Result<ChurnLog, WriteError> {
        let client = Client::connect([endpoint], None).await?;
        let nodes: Vec<String> = cluster.nodes().iter().map(|n| n.name.clone()).collect();
        let mut workers = JoinSet::new();
        for number in 0..self.workers {
            let rng = Rng::of(self.seed, number as u64);
            let worker = Worker {
                store: Store::new(client.clone(), rng, self.pause),
                spec: *cluster.spec(),
                // Two workers share a node, so that they get into each other's way.
                node: nodes[number / 2 % nodes.len()].clone(),
                next_pod: FIRST_POD + number as u64 * PODS,
                pods: Vec::new(),
                log: ChurnLog::default(),
            };
            workers.spawn(worker.run(self.operations, Instant::now() + self.limit));
        }
        let mut log = ChurnLog::default();
        while let Some(done) = workers.join_next().await {
            log.add(&done.expect("a worker does not panic")?);
        }
        Ok(log)
    }
}

struct Worker {
    store: Store,
    spec: ClusterSpec,
    node: String,
    next_pod: u64,
    /// Pods that it started and has not stopped.
    pods: Vec<Holder>,
    log: ChurnLog,
}

impl Worker {
    async fn run(mut self, operations: usize, end: Instant) -> Result<ChurnLog, Error> {
        for _ in 0..operations {
            if Instant::now() > end {
                break;
            }
            match self.store.rng.below(20) {
                0..=8 => self.start(false).await?,
                9 => self.start(true).await?,
                10..=16 => self.stop().await?,
                17 => self.claim().await?,
                _ => self.release().await?,
            }
        }
        self.log.writes = self.store.writes;
        self.log.conflicts = self.store.conflicts;
        Ok(self.log)
    }

    /// CNI ADD, from an own block or, where `borrowed`, from one of another node.
    async fn start(&mut self, borrowed: bool) -> Result<(), Error> {
        let holder = self.holder();
        let lender = if borrowed { self.lender().await? } else { Some(self.node.clone()) };
        let Some(lender) = lender else { return Ok(()) };
        for net in affinity::of_node(&mut self.store, &lender).await? {
            let own = (!borrowed).then_some(self.node.as_str());
            if !borrowed && !affinity::revive(&mut self.store, &self.node, net).await? {
                continue;
            }
            if let Some(address) = pod::take(&mut self.store, net, &holder, own).await? {
                pod::start(&mut self.store, &self.spec, &holder, address).await?;
                self.pods.push(holder);
                self.log.started += 1;
                return Ok(());
            }
        }
        self.claim().await
    }

    /// Another node that has blocks.
    async fn lender(&mut self) -> Result<Option<String>, Error> {
        let keys = self.store.keys("/calico/ipam/v2/host/").await?;
        let holder = |key: &String| key.split('/').nth(5).map(str::to_owned);
        let mut others: Vec<String> =
            keys.iter().filter(|k| k.contains("/ipv4/")).filter_map(holder).collect();
        others.retain(|node| *node != self.node);
        Ok((!others.is_empty()).then(|| self.store.rng.pick(&others).clone()))
    }

    fn holder(&mut self) -> Holder {
        let name = pod_name(self.next_pod);
        self.next_pod += 1;
        let container = self.store.rng.hex(64);
        // Up to two hours old from the start: no grace period hides what is half done.
        let since = Timestamp::now() - SignedDuration::from_secs(self.store.rng.below(7200) as i64);
        Holder { name, node: self.node.clone(), container, since }
    }

    async fn stop(&mut self) -> Result<(), Error> {
        if self.pods.is_empty() {
            return Ok(());
        }
        let place = self.store.rng.below(self.pods.len() as u64) as usize;
        let holder = self.pods.swap_remove(place);
        pod::stop(&mut self.store, &holder).await?;
        self.log.stopped += 1;
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), Error> {
        let net = self.spec.spare_block_v4(self.store.rng.below(200) as u32);
        let claimed = affinity::claim(&mut self.store, &self.node, net).await?;
        self.log.claimed += u64::from(claimed);
        Ok(())
    }

    async fn release(&mut self) -> Result<(), Error> {
        for net in affinity::of_node(&mut self.store, &self.node).await? {
            if affinity::release(&mut self.store, &self.node, net).await? {
                self.log.released += 1;
                break;
            }
        }
        Ok(())
    }
}
