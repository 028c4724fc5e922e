//! Node failures and the control plane's reaction.

use std::rc::Rc;

use calipam_model::IpNet;
use serde::Serialize;

use super::World;
use crate::scenario::{DETECTION, EVICTION};
use crate::time::Micros;

/// The time from a node's removal until Kubernetes' garbage collector removes its pods.
const ORPHANS: Micros = Micros::from_secs(40);

/// The state at some time after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// The time since the failure.
    pub after: Micros,
    /// The number of addresses that the failed node holds.
    pub held: u64,
    /// The number of blocks that the failed node holds.
    pub blocks: u64,
    /// The number of pods that should be running but are not: they have no addresses, or their node failed and they
    /// have not been replaced yet.
    pub waiting: u64,
}

/// The addresses and blocks that a node held when it failed.
pub(crate) struct HeldByFailed {
    node: Rc<str>,
    failed_at: Micros,
    /// The block, ordinal and sequence number of each address.
    allocations: Vec<(IpNet, u32, u64)>,
    blocks: Vec<IpNet>,
}

/// The kind of a node failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The machine stops.
    Stopped,
    /// The node is cut off, but its pods keep running.
    CutOff,
}

impl World {
    /// Plans samples from `begin` to the end of the scenario, which divide this time into `count` equal intervals.
    pub(crate) fn plan_samples(self: &Rc<Self>, begin: Micros, count: u64) {
        let duration = self.scenario.end() - begin;
        let interval = Micros(duration.0 / count);
        for number in 0..=count {
            let world = Rc::clone(self);
            self.engine
                .at(begin + interval * number, move || world.take_sample());
        }
    }

    /// Records how many of the addresses and blocks that the failed node had at its failure it still holds, and the
    /// number of waiting pods. Does nothing before the failure.
    fn take_sample(&self) {
        let waiting = self.waiting_pods();
        let mut measured = self.measured.borrow_mut();
        let Some(held) = &measured.held else { return };
        let data = self.server.data();
        let mut held_addresses = 0;
        for (cidr, ordinal, sequence) in &held.allocations {
            let Some(allocation) = data.block(*cidr).and_then(|block| block.allocation(*ordinal)) else {
                continue;
            };
            // Another sequence number means that the address was assigned again. An address that is cooling down is no
            // longer held, because it becomes free by itself.
            if allocation.sequence == *sequence && !allocation.attribute.is_cooling() {
                held_addresses += 1;
            }
        }

        let mut held_blocks = 0;
        for cidr in &held.blocks {
            let owner = data.block(*cidr).and_then(|block| block.host());
            if owner == Some(&*held.node) {
                held_blocks += 1;
            }
        }

        let point = Point {
            after: self.engine.now() - held.failed_at,
            held: held_addresses,
            blocks: held_blocks,
            waiting,
        };
        measured.points.push(point);
    }

    /// Lets a node fail: its plugins' calls end, and its pods, too, if it stopped. Plans what the cluster does after it
    /// has noticed: no pods for the node, eviction of its pods, and removal of the node if the scenario asks for it.
    pub(super) fn fail(self: &Rc<Self>, node: u32, failure: Failure) {
        self.note_held(node);
        let tasks = self.nodes.borrow_mut().fail(node);
        for task in tasks {
            self.engine.kill(task);
        }
        for pod in self.pods_of(node) {
            self.pods.borrow_mut().lose(pod, failure);
            if failure == Failure::Stopped {
                self.stop(pod);
            }
        }

        // The delays are those of Kubernetes.
        let react_after = |delay: Micros, reaction: fn(&Rc<Self>, u32)| {
            let world = Rc::clone(self);
            self.engine
                .at(self.engine.now() + delay, move || reaction(&world, node));
        };
        react_after(DETECTION, |world, node| world.nodes.borrow_mut().close(node));
        react_after(DETECTION + EVICTION, Self::evict);
        if let Some(removal) = self.scenario.removal {
            react_after(removal, Self::remove_node);
            react_after(removal + ORPHANS, Self::remove_orphans);
        }
    }

    /// Replaces the pods of a node. Their objects stay in the API server, since their containers can still be running.
    fn evict(self: &Rc<Self>, node: u32) {
        for pod in self.pods_of(node) {
            self.replace(pod);
        }
    }

    /// Removes a failed node from the cluster, which makes the collector look for garbage.
    fn remove_node(self: &Rc<Self>, node: u32) {
        // The nodes are borrowed only in this block, since the collector reads them.
        let name = {
            let mut nodes = self.nodes.borrow_mut();
            nodes.close(node);
            nodes.get_mut(node).is_in_cluster = false;
            Rc::clone(&nodes.get(node).name)
        };
        self.server.data_mut().nodes.remove(&*name);
        self.collect_soon();
    }

    fn remove_orphans(self: &Rc<Self>, node: u32) {
        for pod in self.pods_of(node) {
            self.replace(pod);
            self.forget(pod);
        }
        self.collect_soon();
    }

    /// Records the addresses and blocks of a node that is failing now, to count later how many are still held.
    /// Addresses that the node borrows are in blocks of other nodes.
    fn note_held(&self, node: u32) {
        let node = Rc::clone(&self.nodes.borrow().get(node).name);
        let mut blocks = Vec::new();
        // With sequence numbers, which tell whether an address was assigned again since.
        let mut allocations = Vec::new();
        for block in self.server.data().blocks() {
            if block.host() == Some(&*node) {
                blocks.push(block.cidr());
            }
            for allocation in block.allocations() {
                if allocation.attribute.get("node").is_some_and(|name| name == *node) {
                    allocations.push((block.cidr(), allocation.ordinal, allocation.sequence));
                }
            }
        }
        self.measured.borrow_mut().held = Some(HeldByFailed {
            node,
            failed_at: self.engine.now(),
            allocations,
            blocks,
        });
    }
}
