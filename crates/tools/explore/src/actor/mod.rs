//! The actors in a world.

mod call;
mod collector;
mod command;
mod other_writers;
mod plugin;
mod task;
mod trial;

use std::sync::Arc;

pub(crate) use self::call::pod_object;
pub use self::call::{Call, Program};
pub(crate) use self::collector::cidr;
pub use self::collector::{claim, claim_again, collect, disown, operate, release_empty};
pub(crate) use self::command::rebuild_all;
pub use self::command::{Command, again, calipam, undone};
pub use self::other_writers::{Edit, edit};
pub use self::plugin::{add, clean_up, del, del_by_address, gc, writes_endpoint_late};
pub(crate) use self::plugin::{give, served};
pub use self::task::Task;
pub(crate) use self::trial::would_assign;
use crate::world::World;

/// Starts the work of an actor, given its number.
pub type Begin = Box<dyn Fn(Arc<World>, usize) -> Task>;

/// A process or a person that acts on the cluster.
pub struct Actor {
    /// A name for reports.
    pub name: String,
    pub begin: Begin,
    /// Starts the work that follows a kill, such as DEL after an ADD. If this work is killed too, it starts again.
    pub after_kill: Option<Begin>,
}

impl Actor {
    /// Creates an actor that does nothing after it is killed.
    pub fn new<F: Future<Output = ()> + 'static>(
        name: impl Into<String>,
        begin: impl Fn(Arc<World>, usize) -> F + 'static,
    ) -> Self {
        let begin: Begin = Box::new(move |world, actor| Task::plain(begin(world, actor)));
        Self { name: name.into(), begin, after_kill: None }
    }

    /// Creates a process. After a kill, another process follows.
    pub fn process<F: Future<Output = ()> + 'static, G: Future<Output = ()> + 'static>(
        name: impl Into<String>,
        begin: impl Fn(Arc<World>, usize) -> F + 'static,
        after_kill: impl Fn(Arc<World>, usize) -> G + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            begin: Box::new(move |world, actor| Task::process(begin(world, actor))),
            after_kill: Some(Box::new(move |world, actor| Task::process(after_kill(world, actor)))),
        }
    }

    /// Removes the work that follows a kill.
    #[must_use]
    pub fn abandoned(self) -> Self {
        Self { after_kill: None, ..self }
    }

    /// Sets the work that follows a kill.
    #[must_use]
    pub fn after_kill<F: Future<Output = ()> + 'static>(
        self,
        begin: impl Fn(Arc<World>, usize) -> F + 'static,
    ) -> Self {
        Self { after_kill: Some(Box::new(move |world, actor| Task::plain(begin(world, actor)))), ..self }
    }
}
