//! The work of an actor so far.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

pub type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The work of an actor. Dropping it kills the actor, and cancels everything that it has begun.
pub struct Task {
    work: Option<Work>,
    /// The runtime of a process: one thread, and a clock that advances while all of its tasks wait.
    runtime: Option<Runtime>,
}

/// A duration longer than any pause of calipam. After it, all tasks wait for the explorer.
const LONGER: Duration = Duration::from_secs(3_600);

impl Task {
    pub(crate) fn new(work: Work, is_process: bool) -> Self {
        let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build();
        Self { work: Some(work), runtime: is_process.then(|| runtime().expect("a runtime")) }
    }

    /// Continues until the work waits for the explorer. Returns true if it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        let Some(work) = &mut self.work else { return true };
        let Some(runtime) = &self.runtime else {
            return work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = work => true,
                () = tokio::time::sleep(LONGER) => false,
            }
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let _inside = self.runtime.as_ref().map(Runtime::enter);
        self.work = None;
    }
}
