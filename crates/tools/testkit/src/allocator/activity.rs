//! The operations that the workers of a churn are running, for tests that read at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calipam_model::parallel::lock;

/// Pause between two checks whether an operation has ended.
const POLL: Duration = Duration::from_millis(20);

/// The operations in progress. All clones refer to the same churn.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The start of each worker's operation, by the worker's number.
    begun: Arc<Mutex<BTreeMap<usize, Instant>>>,
    stopped: Arc<AtomicBool>,
    /// Number of operations that have ended, successful or not.
    done: Arc<AtomicU64>,
}

/// One operation. It ends when this value is dropped, even if it failed.
pub(super) struct Operation<'a> {
    activity: &'a Activity,
    worker: usize,
}

impl Activity {
    /// Makes the workers stop as soon as [enough](super::Churn::enough) has been done.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the number of operations that have ended, successful or not.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
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
        Operation { activity: self, worker }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        lock(&self.activity.begun).remove(&self.worker);
        self.activity.done.fetch_add(1, Ordering::Relaxed);
    }
}
