//! Nodes that fail, and what the control plane makes of it.

use std::collections::BTreeSet;
use std::rc::Rc;

use calipam_model::IpNet;

use super::World;
use crate::time::Micros;

/// How long after the object of a node the pods go that were bound to it (the collector of pods of Kubernetes).
const ORPHANS: Micros = Micros::from_secs(40);

/// What nodes that failed held when they did.
#[derive(Default)]
pub(crate) struct HeldByFailed {
    pub nodes: BTreeSet<String>,
    /// Block, ordinal and sequence number of each address.
    allocations: Vec<(IpNet, u32, u64)>,
    blocks: Vec<IpNet>,
}

/// What is held and what waits at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub at: Micros,
    /// Addresses that failed nodes still hold.
    pub held: u64,
    /// Blocks that failed nodes still hold.
    pub blocks: u64,
    /// Pods that should run and do not.
    pub waiting: u64,
}

/// How nodes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Their machines stop.
    Stopped,
    /// They are cut off, and their pods run on.
    CutOff,
}

impl World {
    pub(super) fn fail(self: &Rc<Self>, failed: Vec<u32>, failure: Failure) {
        self.note_held(&failed);
        for node in &failed {
            {
                let mut nodes = self.nodes.borrow_mut();
                let state = nodes.get_mut(*node);
                state.is_alive = false;
                state.failures += 1;
            }
            let tasks = self.nodes.borrow_mut().take_tasks(*node);
            tasks.into_iter().for_each(|task| self.engine.kill(task));
            for pod in self.pods_of(*node) {
                self.pods.borrow_mut().lose(pod, failure);
                if failure == Failure::Stopped {
                    self.stop(pod);
                }
            }
        }

        let count = |node: u32| (node, self.nodes.borrow().get(node).failures);
        let failed: Rc<[(u32, u32)]> = failed.into_iter().map(count).collect();
        let later = |after: Micros, what: fn(&Rc<Self>, u32)| {
            let (world, failed) = (Rc::clone(self), Rc::clone(&failed));
            self.engine.at(self.engine.now() + after, move || {
                // A node may be back since.
                let is_down = |(node, failures): &&(u32, u32)| {
                    let nodes = world.nodes.borrow();
                    !nodes.get(*node).is_alive && nodes.get(*node).failures == *failures
                };
                failed.iter().filter(is_down).for_each(|(node, _)| what(&world, *node));
            });
        };
        let (detection, eviction) = (self.scenario.detection, self.scenario.eviction);
        later(detection, |world, node| world.nodes.borrow_mut().close(node));
        later(detection + eviction, |world, node| world.evict(node));
        if let Some(removal) = self.scenario.removal {
            later(removal, Self::remove_node);
            later(removal + ORPHANS, Self::remove_orphans);
        }
    }

    /// A machine stops, and is back after a while.
    pub(super) fn reboot(self: &Rc<Self>, node: u32, away: Micros) {
        self.fail(vec![node], Failure::Stopped);
        let world = Rc::clone(self);
        self.engine.at(self.engine.now() + away, move || world.come_back(node));
    }

    fn come_back(self: &Rc<Self>, node: u32) {
        {
            let mut nodes = self.nodes.borrow_mut();
            if !nodes.get(node).is_in_cluster {
                return;
            }
            nodes.get_mut(node).is_alive = true;
            nodes.reopen(node);
        }
        self.pods_of(node).into_iter().for_each(|pod| self.start_again(pod));
    }

    /// The pods of a node are replaced; their objects stay, since nothing says that their containers have ended.
    fn evict(self: &Rc<Self>, node: u32) {
        self.pods_of(node).into_iter().for_each(|pod| self.replace(pod));
    }

    pub(super) fn remove_node(self: &Rc<Self>, node: u32) {
        let name = {
            let mut nodes = self.nodes.borrow_mut();
            nodes.close(node);
            nodes.get_mut(node).is_in_cluster = false;
            Rc::clone(&nodes.get(node).name)
        };
        self.server.data_mut().remove_node(&name);
        self.collect_soon();
    }

    fn remove_orphans(self: &Rc<Self>, node: u32) {
        for pod in self.pods_of(node) {
            self.replace(pod);
            self.forget(pod);
        }
        self.collect_soon();
    }

    /// Notes what nodes hold that fail now.
    fn note_held(&self, failed: &[u32]) {
        let mut measured = self.measured.borrow_mut();
        let held = measured.held.get_or_insert_default();
        let names: BTreeSet<String> =
            failed.iter().map(|node| self.nodes.borrow().get(*node).name.to_string()).collect();
        let data = self.server.data();
        for block in data.blocks() {
            if block.owner().and_then(|owner| owner.host()).is_some_and(|host| names.contains(host)) {
                held.blocks.push(block.cidr());
            }
            for allocation in block.allocations() {
                let node = allocation.attribute.get("node");
                if node.is_some_and(|node| names.contains(&node.to_string())) {
                    held.allocations.push((block.cidr(), allocation.ordinal, allocation.sequence));
                }
            }
        }
        held.nodes.extend(names);
    }

    /// How it stands now.
    pub(super) fn sample(&self) -> Sample {
        let measured = self.measured.borrow();
        let data = self.server.data();
        let waiting = self.waiting_pods();
        let mut sample = Sample { at: self.engine.now(), held: 0, blocks: 0, waiting };
        let Some(held) = &measured.held else { return sample };
        let is_held = |(cidr, ordinal, sequence): &&(IpNet, u32, u64)| {
            let found = data.block(*cidr).and_then(|block| block.allocation(*ordinal));
            // A cooling address is free again by and by.
            found.is_some_and(|found| found.sequence == *sequence && !found.attribute.is_cooling())
        };
        sample.held = held.allocations.iter().filter(is_held).count() as u64;
        let has_owner = |cidr: &&IpNet| {
            let owner = data.block(**cidr).and_then(|block| block.owner().and_then(|owner| owner.host()));
            owner.is_some_and(|host| held.nodes.contains(host))
        };
        sample.blocks = held.blocks.iter().filter(has_owner).count() as u64;
        sample
    }
}
