//! The locks of nodes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use calipam_assign::plugin::Host;
use calipam_testkit::memory::MemoryStore;

use super::{Footprint, World};

/// The lock of a node, which the plugin calls on the node take one after another.
pub struct NodeLock {
    world: Arc<World>,
    actor: usize,
    name: String,
}

/// A guard of the lock. Dropping it releases the lock.
pub struct LockGuard(NodeLock);

impl NodeLock {
    pub fn new(world: &Arc<World>, actor: usize, node: &str) -> Self {
        Self { world: Arc::clone(world), actor, name: format!("lock/{node}") }
    }

    /// The lock of a node on which nothing else runs.
    pub(crate) fn alone() -> Self {
        Self::new(&Arc::new(World::free(MemoryStore::default())), 0, "")
    }
}

/// The host on which a plugin call runs. It sets no time limits.
impl Host for NodeLock {
    type LockGuard = LockGuard;
    type Error = Infallible;

    async fn lock(&self) -> LockGuard {
        let Self { world, actor, name } = self;
        let footprint = Footprint::default().write(name.clone());
        let _ = world.turn(*actor, format!("take {name}"), footprint).locking(name).answered().await;
        world.state().locks.insert(name.clone(), *actor);
        world.record_answer(*actor, "locked");
        LockGuard(Self { world: Arc::clone(world), actor: *actor, name: name.clone() })
    }

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let NodeLock { world, name, .. } = &self.0;
        world.state().locks.remove(name);
        world.touch(&Footprint::default().write(name.clone()));
    }
}
