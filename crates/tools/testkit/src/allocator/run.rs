//! Runs the workers of a churn until they have done enough.

use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::churn::{Churn, ChurnLog};
use super::store::Target;
use super::worker::{Shared, Worker};
use crate::cluster::ClusterSpec;

impl Churn {
    /// Works on a datastore with the pool of `spec` and the nodes, and returns when every operation has ended. Can be
    /// called from inside or outside an async runtime. To read at the same time, run it in a separate thread. On
    /// Kubernetes, the [namespaces](crate::kube::seed) of the pods must exist.
    pub fn run(&self, target: Target<'_>, spec: &ClusterSpec, nodes: &[String]) -> Result<ChurnLog> {
        let shared = Shared::new(*spec, nodes);
        thread::scope(|scope| {
            let shared = &shared;
            let work = |number| {
                let work = move || self.work(target, shared, number);
                thread::Builder::new()
                    .name(format!("allocator {number}"))
                    .spawn_scoped(scope, work)
            };
            let workers: Vec<_> = (0..self.workers).map(work).collect();
            let ended = workers.into_iter().map(|worker| {
                let worker = worker.expect("a test may start threads");
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            // If one worker fails, the scope waits for the others.
            ended.collect::<Result<()>>()
        })?;
        Ok(shared.log.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn work(&self, target: Target<'_>, shared: &Shared, number: usize) -> Result<()> {
        Worker::connect(target, self, shared, number)?.run(Instant::now() + self.limit)
    }
}
