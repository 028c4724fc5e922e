//! The locks of nodes.

use std::sync::Arc;

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

    /// Waits for the lock.
    pub async fn take(&self) -> LockGuard {
        let Self { world, actor, name } = self;
        let footprint = Footprint::default().write(name.clone());
        world.turn(*actor, format!("take {name}"), footprint).locking(name).await;
        world.state().locks.insert(name.clone(), *actor);
        world.record_answer(*actor, "locked");
        LockGuard(Self { world: Arc::clone(world), actor: *actor, name: name.clone() })
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let NodeLock { world, name, .. } = &self.0;
        world.state().locks.remove(name);
        world.touch(&Footprint::default().write(name.clone()));
    }
}
