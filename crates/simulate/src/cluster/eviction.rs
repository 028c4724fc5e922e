//! Eviction of pods in batches, as in `migrate --evict`.

use std::cell::Cell;
use std::rc::Rc;

use super::World;
use crate::answer::{Evicted, Eviction};
use crate::time::Micros;

/// The interval at which the new pods of a batch are counted.
const POLL: Micros = Micros::from_secs(1);

impl World {
    /// Begins an eviction. The returned cell gets the result when it ends.
    pub(crate) fn begin_eviction(self: &Rc<Self>, eviction: &Eviction) -> Rc<Cell<Option<Evicted>>> {
        let result = Rc::new(Cell::new(None));
        let world = Rc::clone(self);
        let eviction = eviction.clone();
        let result_of_task = Rc::clone(&result);
        self.engine.spawn(async move {
            let evicted = evict(&world, &eviction).await;
            result_of_task.set(Some(evicted));
        });
        result
    }

    /// Returns the IDs of the running pods with any of the eviction's addresses.
    fn pods_to_evict(&self, eviction: &Eviction) -> Vec<u32> {
        let mut ids = Vec::new();
        for (id, pod) in self.pods.borrow().all() {
            let mut addresses = pod.addresses.iter();
            if pod.runs && addresses.any(|address| eviction.addresses.contains(address)) {
                ids.push(id);
            }
        }
        ids
    }

    /// The time from a pod's getting addresses until it is ready: one of the given times, at random.
    fn time_until_ready(&self, eviction: &Eviction) -> Micros {
        let index = self.random_below(eviction.ready_after.len() as u64) as usize;
        eviction.ready_after.get(index).copied().unwrap_or_default()
    }
}

/// Returns the times at which the pods started that were created after the first `before` pods, as far as they have.
fn start_times(world: &World, before: usize) -> Vec<Micros> {
    let pods = world.pods.borrow();
    let new_pods = pods.created_after(before);
    new_pods.iter().filter_map(|pod| pod.started).collect()
}

/// Evicts the pods in batches, and waits after each batch until as many new pods are ready on other addresses. Gives up
/// if not all of them have started within the eviction's patience.
async fn evict(world: &Rc<World>, eviction: &Eviction) -> Evicted {
    let pods = world.pods_to_evict(eviction);
    let mut result = Evicted {
        pods: pods.len(),
        ..Evicted::default()
    };
    for batch in pods.chunks(eviction.batch.max(1)) {
        if result.moved > 0 {
            world.engine.sleep(eviction.pause).await;
        }
        let count_before = world.pods.borrow().count();
        let deleted: Vec<u32> = batch.iter().copied().filter(|id| world.delete(*id)).collect();
        for id in &deleted {
            world.replace(*id);
        }

        // Waits for any new pods, since a pod for which no node has room has no ID yet.
        let deadline = world.engine.now() + eviction.patience;
        let mut started = start_times(world, count_before);
        while started.len() < deleted.len() && world.engine.now() < deadline {
            world.engine.sleep(POLL).await;
            started = start_times(world, count_before);
        }
        result.moved += started.len();
        if started.len() < deleted.len() {
            result.took = world.engine.now();
            break;
        }

        // The next batch begins only when the slowest pod of this one is ready.
        let mut all_ready_at = world.engine.now();
        for start_time in started {
            all_ready_at = all_ready_at.max(start_time + world.time_until_ready(eviction));
        }
        world.engine.sleep(all_ready_at - world.engine.now()).await;
        result.took = all_ready_at;
    }
    result
}
