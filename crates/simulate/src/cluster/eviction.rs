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
        let set = Rc::clone(&result);
        self.engine
            .spawn(async move { set.set(Some(evict(&world, &eviction).await)) });
        result
    }

    /// The running pods with any of the eviction's addresses.
    fn evicted(&self, eviction: &Eviction) -> Vec<u32> {
        let mut evicted = Vec::new();
        for (id, pod) in self.pods.borrow().all() {
            let mut addresses = pod.addresses.iter();
            if pod.runs && addresses.any(|address| eviction.addresses.contains(address)) {
                evicted.push(id);
            }
        }
        evicted
    }

    /// The time from a pod's getting addresses until it is ready: one of the given times, at random.
    fn time_until_ready(&self, eviction: &Eviction) -> Micros {
        let place = self.random_below(eviction.ready_after.len() as u64) as usize;
        eviction.ready_after.get(place).copied().unwrap_or_default()
    }
}

/// Returns the times at which the pods started that were created after the first `before` pods, as far as they have.
fn start_times(world: &World, before: usize) -> Vec<Micros> {
    let pods = world.pods.borrow();
    let new_pods = pods.since(before);
    new_pods.iter().filter_map(|pod| pod.started).collect()
}

/// Evicts the pods in batches, and waits after each batch until its pods are ready on other addresses.
async fn evict(world: &Rc<World>, eviction: &Eviction) -> Evicted {
    let pods = world.evicted(eviction);
    let mut evicted = Evicted {
        pods: pods.len(),
        ..Evicted::default()
    };
    for batch in pods.chunks(eviction.batch.max(1)) {
        if evicted.moved > 0 {
            world.engine.sleep(eviction.pause).await;
        }
        let before = world.pods.borrow().count();
        let gone: Vec<u32> = batch.iter().copied().filter(|id| world.delete(*id)).collect();
        for id in gone.iter() {
            world.replace(*id);
        }

        // Pods that no node has room for are not in the list of pods yet.
        let until = world.engine.now() + eviction.patience;
        let mut started = start_times(world, before);
        while started.len() < gone.len() && world.engine.now() < until {
            world.engine.sleep(POLL).await;
            started = start_times(world, before);
        }
        evicted.moved += started.len();
        if started.len() < gone.len() {
            evicted.took = world.engine.now();
            break;
        }
        let ready = started
            .into_iter()
            .map(|started| started + world.time_until_ready(eviction));
        evicted.took = ready.max().unwrap_or_default().max(world.engine.now());
        world.engine.sleep(evicted.took - world.engine.now()).await;
    }
    evicted
}
