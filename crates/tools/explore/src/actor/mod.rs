//! The actors in a world.

mod call;
mod collector;
mod command;
mod plugin;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

pub(crate) use self::call::pod_object;
pub use self::call::{Call, Program};
pub(crate) use self::collector::cidr;
pub use self::collector::{claim, claim_again, collect, disown, edit, operate, release_empty};
pub(crate) use self::command::rebuild_all;
pub use self::command::{Command, again, calipam, undone};
pub use self::plugin::{add, clean_up, del, del_by_address, gc, writes_endpoint_late};
pub(crate) use self::plugin::{give, served, would_assign};
use crate::world::World;

/// Starts the work of an actor, given its number. The flag is true after a kill.
pub type Begin = Box<dyn Fn(Arc<World>, usize, bool) -> Work>;

/// A process or a person that acts on the cluster.
pub struct Actor {
    /// A name for reports.
    pub name: String,
    /// True if the work has its own tasks and timers.
    pub is_process: bool,
    pub begin: Begin,
    /// True if other work follows a kill, such as DEL after an ADD. If this work is killed too, it starts again.
    pub goes_on: bool,
}

impl Actor {
    /// Creates an actor that does nothing after it is killed.
    pub fn new<F: Future<Output = ()> + 'static>(
        name: impl Into<String>,
        begin: impl Fn(Arc<World>, usize) -> F + 'static,
    ) -> Self {
        Self::going_on(name, move |world, actor, _| begin(world, actor)).abandoned()
    }

    /// Creates an actor that also does something after it is killed.
    pub fn going_on<F: Future<Output = ()> + 'static>(
        name: impl Into<String>,
        begin: impl Fn(Arc<World>, usize, bool) -> F + 'static,
    ) -> Self {
        let begin: Begin = Box::new(move |world, actor, is_again| Box::pin(begin(world, actor, is_again)));
        Self {
            name: name.into(),
            is_process: false,
            begin,
            goes_on: true,
        }
    }

    /// Removes the work that follows a kill.
    #[must_use]
    pub fn abandoned(self) -> Self {
        Self {
            goes_on: false,
            ..self
        }
    }
}

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
        let runtime = || {
            Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
        };
        Self {
            work: Some(work),
            runtime: is_process.then(|| runtime().expect("a runtime")),
        }
    }

    /// Continues until the work waits for the explorer. Returns true if it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        let Some(work) = &mut self.work else { return true };
        let Some(runtime) = &self.runtime else {
            return work
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready();
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

impl Task {
    /// Continues a process until `event`. Returns true if the work has ended.
    pub(crate) fn resume_until(&mut self, event: impl Future<Output = ()>) -> bool {
        let (Some(work), Some(runtime)) = (&mut self.work, &self.runtime) else {
            return false;
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = work => true,
                () = event => false,
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
