//! What happens to the cluster.

use std::rc::Rc;

use calipam_assign::{Allocator, Release};

use super::World;
use super::changes::replace_nodes;
use super::failure::Failure;
use crate::scenario::Event;
use crate::time::Micros;

/// How long a restart waits for the pods of one batch before it goes on without them.
pub(super) const BATCH: Micros = Micros::from_mins(2);
/// How often it checks whether they run.
pub(super) const POLL: Micros = Micros::from_secs(1);

impl World {
    /// Plans what the scenario says.
    pub(super) fn plan_events(self: &Rc<Self>) {
        for planned in self.scenario.events.clone() {
            if let Event::RestoreBackup { age } = planned.what {
                self.plan_restore(planned.at, age);
                continue;
            }
            let world = Rc::clone(self);
            self.engine.at(planned.at, move || world.happen(&planned.what));
        }
    }

    fn happen(self: &Rc<Self>, event: &Event) {
        // A scenario is refused that names a node which is not there.
        let node = event.node().and_then(|name| self.scenario.node_index(name)).unwrap_or_default();
        match event {
            Event::FailNode(_) => self.fail(vec![node], Failure::Stopped),
            Event::FailZone(zone) => self.fail(self.nodes_of_zone(*zone), Failure::Stopped),
            Event::PartitionNode(_) => self.fail(vec![node], Failure::CutOff),
            Event::RebootNode { away, .. } => self.reboot(node, *away),
            Event::DrainNode(_) => self.drain(node),
            Event::Restart { batch } => {
                self.engine.spawn(restart(Rc::clone(self), *batch));
            }
            Event::Burst(count) => (0..*count).for_each(|_| self.arrive()),
            Event::FreeAddresses(count) => {
                self.engine.spawn(free(Rc::clone(self), *count));
            }
            Event::MigrateMachines(count) => self.migrate_machines(*count),
            Event::ShareHandles(count) => self.share_handles(*count),
            Event::AddNodes(count) => self.add_nodes(*count),
            Event::ReplaceNodes { batch } => {
                self.engine.spawn(replace_nodes(Rc::clone(self), *batch));
            }
            Event::SlowDatastore { times, lasting } => self.slow_datastore(*times, *lasting),
            Event::StopDatastore { lasting } => self.server.stop_until(self.engine.now() + *lasting),
            Event::KillPlugins(count) => self.kill_plugins(*count),
            Event::Configure { strict_affinity, max_blocks_per_host, cooldown } => {
                self.configure(*strict_affinity, *max_blocks_per_host, *cooldown);
            }
            Event::AddPool(spec) => self.add_pool(spec),
            Event::DisablePool(cidr) => self.disable_pool(*cidr),
            Event::RestoreBackup { .. } => {}
        }
    }

    fn nodes_of_zone(&self, zone: u32) -> Vec<u32> {
        self.nodes.borrow().all().filter(|(_, node)| node.zone == zone).map(|(index, _)| index).collect()
    }

    /// The pods of a node go, and others arrive elsewhere.
    pub(super) fn drain(self: &Rc<Self>, node: u32) {
        self.nodes.borrow_mut().close(node);
        for pod in self.pods_of(node) {
            if self.delete(pod) {
                self.replace(pod);
            }
        }
    }

    pub(super) fn pods_of(&self, node: u32) -> Vec<u32> {
        self.nodes.borrow().get(node).pods.iter().copied().collect()
    }

    /// Pods that run, in the order of their names.
    pub(super) fn running(&self) -> Vec<u32> {
        self.pods.borrow().all().filter(|(_, pod)| pod.runs).map(|(id, _)| id).collect()
    }

    /// Plans that etcd gets back what it held `age` before. Endpoints of pods that started meanwhile are gone with it, and
    /// those of pods that left are back.
    fn plan_restore(self: &Rc<Self>, at: Micros, age: Micros) {
        let world = Rc::clone(self);
        self.engine.at(at - age, move || {
            let backup = world.server.data().clone();
            let endpoints: Vec<bool> = world.pods.borrow().all().map(|(_, pod)| pod.has_endpoint).collect();
            let restored = Rc::clone(&world);
            world.engine.at(at, move || {
                *restored.server.data_mut() = backup;
                // Who restores a cluster takes longer than notes count.
                restored.nodes.borrow_mut().forget_notes();
                for (id, pod) in restored.pods.borrow_mut().all_mut() {
                    pod.has_endpoint = endpoints.get(id as usize).is_some_and(|had| *had);
                }
            });
        });
    }

    /// Picks `count` of some pods.
    pub(super) fn pick(&self, mut from: Vec<u32>, count: u32) -> Vec<u32> {
        let mut picked = Vec::new();
        while picked.len() < count as usize && !from.is_empty() {
            let place = self.random_below(from.len() as u64) as usize;
            picked.push(from.swap_remove(place));
        }
        picked
    }
}

/// Replaces all pods, `batch` at a time.
async fn restart(world: Rc<World>, batch: u32) {
    for old in world.running().chunks(batch.max(1) as usize) {
        let before = world.pods.borrow().count();
        old.iter().for_each(|_| world.arrive());
        let new = world.pods.borrow().count() - before;
        let until = world.engine.now() + BATCH;
        let is_waiting =
            || world.pods.borrow().since(before).iter().take(new).any(|pod| pod.started.is_none());
        while is_waiting() && world.engine.now() < until {
            world.engine.sleep(POLL).await;
        }
        for id in old {
            world.delete(*id);
        }
    }
}

/// An operator releases the addresses of some running pods.
async fn free(world: Rc<World>, count: u32) {
    let allocator = Allocator::new(world.operator());
    for id in world.pick(world.running(), count) {
        let addresses = world.pods.borrow().get(id).addresses.to_vec();
        let requests: Vec<Release> = addresses.into_iter().map(Release::any).collect();
        // Nothing more comes of an error than of a person who sees one.
        let _ = allocator.release_ips(&requests).await;
    }
}
