//! The actors in a world.

mod call;
mod collector;
mod command;
mod other_writers;
mod plugin;
mod task;

use std::sync::Arc;

pub(crate) use self::call::pod_object;
pub use self::call::{Call, Program};
pub(crate) use self::collector::cidr;
pub use self::collector::{claim, claim_again, collect, disown, operate, release_empty};
pub(crate) use self::command::rebuild_all;
pub use self::command::{Command, again, calipam, undone};
pub use self::other_writers::edit;
pub use self::plugin::{add, clean_up, del, del_by_address, gc, writes_endpoint_late};
pub(crate) use self::plugin::{give, served, would_assign};
pub use self::task::{Task, Work};
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
        Self { name: name.into(), is_process: false, begin, goes_on: true }
    }

    /// Removes the work that follows a kill.
    #[must_use]
    pub fn abandoned(self) -> Self {
        Self { goes_on: false, ..self }
    }
}
