//! The work of an actor so far.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The work of an actor. Dropping it kills the actor, and cancels everything that it has begun.
pub enum Task {
    Plain(Work),
    /// Work with its own tasks and timers.
    Process(Process),
}

/// A process: one thread, and a clock that advances while all of its tasks wait.
pub struct Process {
    work: Option<Work>,
    runtime: Runtime,
}

/// A duration longer than any pause of calipam. After it, all tasks wait for the explorer.
const LONGER: Duration = Duration::from_secs(3_600);

impl Task {
    pub(crate) fn plain(work: impl Future<Output = ()> + 'static) -> Self {
        Self::Plain(Box::pin(work))
    }

    pub(crate) fn process(work: impl Future<Output = ()> + 'static) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        Self::Process(Process { work: Some(Box::pin(work)), runtime: runtime.expect("a runtime") })
    }

    /// Continues until the work waits for the explorer. Returns true if it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        match self {
            Self::Plain(work) => {
                let mut context = Context::from_waker(Waker::noop());
                work.as_mut().poll(&mut context).is_ready()
            }
            Self::Process(Process { work, runtime }) => {
                let Some(work) = work else { return true };
                runtime.block_on(async {
                    tokio::select! {
                        biased;
                        () = work => true,
                        () = tokio::time::sleep(LONGER) => false,
                    }
                })
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        self.work = None;
    }
}
