//! Triggers the event of a scenario.

use std::rc::Rc;

use calipam_assign::{Allocator, Release};

use super::World;
use super::failure::Failure;
use crate::datastore::Client;
use crate::scenario::Event;
use crate::time::Micros;

/// The age of the backup that is restored.
const BACKUP: Micros = Micros::from_mins(4);
/// The number of pods whose addresses are released by hand, or that share their handle with another pod.
const PODS: u32 = 3;
/// The time from the start of a pod until it is moved to another node.
const MOVED: Micros = Micros::from_mins(1);
/// The time from moving a pod until its old node stops it.
const LATE: Micros = Micros::from_secs(30);

impl World {
    /// Plans the event of the scenario, if it has one.
    pub(super) fn plan_event(self: &Rc<Self>) {
        let Some(planned) = self.scenario.event.clone() else {
            return;
        };
        if planned.what == Event::RestoreBackup {
            return self.plan_restore(planned.at);
        }
        let world = Rc::clone(self);
        self.engine.at(planned.at, move || world.trigger(&planned.what));
    }

    /// Triggers an event other than a restore, which needs a backup before it; see [`Self::plan_restore`].
    fn trigger(self: &Rc<Self>, event: &Event) {
        // `Scenario::check` refuses an unknown node.
        let node_index = |name: &str| self.scenario.node_index(name).unwrap_or_default();
        match event {
            Event::FailNode(name) => self.fail(node_index(name), Failure::Stopped),
            Event::PartitionNode(name) => self.fail(node_index(name), Failure::CutOff),
            Event::FreeAddresses => {
                self.engine.spawn(release_by_hand(Rc::clone(self)));
            }
            Event::ShareHandles => self.share_handles(),
            // `plan_event` never passes it here.
            Event::RestoreBackup => {}
        }
    }

    pub(super) fn pods_of(&self, node: u32) -> Vec<u32> {
        self.nodes.borrow().get(node).pods.iter().copied().collect()
    }

    /// Plans an etcd backup and its restore. The restore removes the endpoints of pods that started after the backup,
    /// and brings back those of pods that left after it.
    fn plan_restore(self: &Rc<Self>, restored_at: Micros) {
        let world = Rc::clone(self);
        self.engine.at(restored_at - BACKUP, move || {
            let backup = world.server.data().clone();
            let mut had_endpoint: Vec<bool> = Vec::new();
            for (_, pod) in world.pods.borrow().all() {
                had_endpoint.push(pod.has_endpoint);
            }

            let restored = Rc::clone(&world);
            world.engine.at(restored_at, move || {
                *restored.server.data_mut() = backup;
                // A restore takes so long that the plugins' notes have expired.
                restored.nodes.borrow_mut().forget_notes();
                for (id, pod) in restored.pods.borrow_mut().all_mut() {
                    // Pods created after the backup are not in the list.
                    pod.has_endpoint = had_endpoint.get(id as usize).copied().unwrap_or(false);
                }
            });
        });
    }

    /// Picks [`PODS`] running pods at random, or all if there are fewer.
    fn pick_running_pods(&self) -> Vec<u32> {
        let mut running: Vec<u32> = Vec::new();
        for (id, pod) in self.pods.borrow().all() {
            if pod.runs {
                running.push(id);
            }
        }

        let mut picked = Vec::new();
        while picked.len() < PODS as usize && !running.is_empty() {
            let index = self.random_below(running.len() as u64) as usize;
            picked.push(running.swap_remove(index));
        }
        picked
    }

    /// Starts pods of a StatefulSet, and moves each to another node. The first node stops the old pod only after the
    /// new one has started, and then releases the handle that both share, with the new pod's address.
    fn share_handles(self: &Rc<Self>) {
        for number in 0..PODS {
            let handle: Rc<str> = format!("default.web-{number}").into();
            let Some(old) = self.start_somewhere(&handle) else {
                return;
            };
            let world = Rc::clone(self);
            self.engine.at(self.engine.now() + MOVED, move || {
                if world.start_somewhere(&handle).is_some() {
                    let late = Rc::clone(&world);
                    world.engine.at(world.engine.now() + LATE, move || {
                        late.delete(old);
                    });
                }
            });
        }
    }

    fn start_somewhere(self: &Rc<Self>, handle: &Rc<str>) -> Option<u32> {
        let node = self.nodes.borrow().choose(&mut self.random.borrow_mut())?;
        Some(self.start_on(node, Some(Rc::clone(handle))))
    }
}

/// Releases addresses of some running pods, as an operator could by hand.
async fn release_by_hand(world: Rc<World>) {
    let is_labelled = true;
    let allocator = Allocator::new(Client::for_plugin(&world.server, is_labelled));
    for id in world.pick_running_pods() {
        let addresses = world.pods.borrow().get(id).addresses.to_vec();
        let requests: Vec<Release> = addresses.into_iter().map(Release::any).collect();
        // An operator would see an error, and would not retry.
        let _ = allocator.release_ips(&requests).await;
    }
}
