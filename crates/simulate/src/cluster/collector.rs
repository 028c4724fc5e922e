//! The collector of kube-controllers (facts 3.10, 3.12, 3.17). Its decisions are based on caches, which lag behind. On
//! Kubernetes, it reads each pod once more before releasing an address.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use calipam_assign::{Allocator, Error, InUse, Query, Record, Release, Store};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use jiff::SignedDuration;

use super::World;
use super::pods::Pod;
use crate::datastore::Client;
use crate::scenario::interval;
use crate::time::Micros;

/// The interval at which the collector looks for a signal to begin.
const POLL: Micros = Micros::from_secs(1);
/// The time until the collector tries again after an error.
const RETRY: Micros = Micros::from_secs(5);
/// The largest number of addresses that the collector releases at once.
const BATCH: usize = 10_000;

/// The collector and its state.
struct State {
    world: Rc<World>,
    grace: Micros,
    allocator: Allocator<Client>,
    /// Empty blocks, with the time since which the collector has found them empty.
    empty_since: BTreeMap<IpNet, Micros>,
}

/// An address that a pod leaked.
struct Leak {
    pod: u32,
    release: Release,
    /// True if the pod's node is in the cluster.
    has_node: bool,
}

/// The garbage that the collector finds in its caches.
#[derive(Default)]
struct Garbage {
    leaks: Vec<Leak>,
    /// Blocks with addresses whose cooldown is over.
    cooled: Vec<IpNet>,
    /// Nodes that are no longer in the cluster and hold no address in use.
    nodes: Vec<String>,
    /// Blocks to give up, with their nodes.
    blocks: Vec<(IpNet, String)>,
}

impl World {
    /// Starts the collector, unless the scenario has none.
    pub(super) fn plan_collector(self: &Rc<Self>) {
        let Some(grace) = self.scenario.grace else { return };
        let allocator = Allocator::new(Client::for_controllers(&self.server));
        let state = State {
            world: Rc::clone(self),
            grace,
            allocator,
            empty_since: BTreeMap::new(),
        };
        self.engine.spawn(run(state));
    }

    fn cooldown(&self) -> SignedDuration {
        self.server.data().config().unwrap_or_default().cooldown()
    }

    /// Signals the collector to run soon, since a node or a pod was deleted.
    pub(super) fn collect_soon(&self) {
        self.is_collecting.set(true);
    }
}

/// Runs the collector of kube-controllers until the end of the simulation.
async fn run(mut state: State) {
    let engine = state.world.engine.clone();
    let mut next = interval(state.grace);
    loop {
        // Looks for signals only at intervals, so that one run handles several signals.
        while engine.now() < next && !state.world.is_collecting.replace(false) {
            engine.sleep(POLL).await;
        }
        if engine.now() >= next {
            next = engine.now() + interval(state.grace);
        }
        if !state.collect().await {
            engine.sleep(RETRY).await;
            state.world.is_collecting.set(true);
        }
    }
}

impl State {
    /// Finds garbage and releases it: leaks, addresses whose cooldown is over, blocks that nodes do not need, and the
    /// blocks of deleted nodes. Returns false if the collector has to try again.
    async fn collect(&mut self) -> bool {
        let garbage = self.find_garbage();
        let server = &self.world.server;
        self.world.engine.sleep(server.draw(server.costs.read)).await;

        let mut is_done = true;
        for batch in self.confirmed(garbage.leaks).await.chunks(BATCH) {
            is_done &= self.allocator.release_ips(batch).await.is_ok();
        }
        for block in garbage.cooled {
            self.free_cooled(block).await;
        }
        for (block, node) in garbage.blocks {
            // If another client has changed the block, the collector leaves it.
            let _ = self.allocator.release_affinity(block, &node, InUse::Refuse).await;
        }
        for node in garbage.nodes {
            match self
                .allocator
                .release_host_affinities(AffinityType::Host, &node, InUse::Refuse)
                .await
            {
                Ok(()) | Err(Error::NoAffinity(_)) => {}
                Err(_) => is_done = false,
            }
        }
        is_done
    }

    /// Looks up the pods of leaks again, and returns requests to release the addresses that are still leaked. A look-up
    /// takes time, except on etcd and for pods whose node is no longer in the cluster.
    async fn confirmed(&self, leaks: Vec<Leak>) -> Vec<Release> {
        let mut confirmed = Vec::new();
        for leak in leaks {
            if leak.has_node && self.world.server.kind == DatastoreKind::Kubernetes {
                self.allocator.store().look_up().await;
            }
            // The pod can have started with this address since the collector looked.
            if self.world.pods.borrow().is_leaked(leak.pod, leak.release.address) {
                confirmed.push(leak.release);
            }
        }
        confirmed
    }

    /// Writes a block without the addresses whose cooldown is over. Ignores errors: if another client wrote the block
    /// first, that client has also freed these addresses.
    async fn free_cooled(&self, block: IpNet) {
        let store = self.allocator.store();
        let Ok(found) = store.read(&[Query::Get(Key::Block(block))]).await else {
            return;
        };
        let Some(entry) = found.into_iter().flatten().next() else {
            return;
        };
        if let Record::Block(block) = &entry.record {
            let block = block
                .without_cooled(store.now(), self.world.cooldown())
                .into_owned();
            let _ = store
                .update(&Record::Block(Arc::new(block)), &entry.revision)
                .await;
        }
    }

    /// Searches the caches for garbage.
    fn find_garbage(&mut self) -> Garbage {
        let world = Rc::clone(&self.world);
        let pods = world.pods.borrow();
        let nodes = world.nodes.borrow();
        let data = world.server.data();
        let mut nodes_in_cluster: BTreeSet<&str> = BTreeSet::new();
        for (_, node) in nodes.all() {
            if node.is_in_cluster {
                nodes_in_cluster.insert(&node.name);
            }
        }

        let mut garbage = Garbage::default();
        let mut nodes_in_use: BTreeSet<String> = BTreeSet::new();
        let mut blocks_by_node: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        let now = world.engine.now().timestamp();
        let cooldown = world.cooldown();
        for block in data.blocks() {
            let mut allocations = block.allocations();
            if block.has_cooling() && allocations.any(|held| held.attribute.has_cooled(now, cooldown)) {
                garbage.cooled.push(block.cidr());
            }
            if let Some(host) = block.host() {
                blocks_by_node.entry(host).or_default().push(block);
            }

            for allocation in block.allocations() {
                if allocation.attribute.is_cooling() {
                    continue;
                }
                let Some(id) = pods.find_by_record(&allocation.attribute) else {
                    continue;
                };
                let node = allocation.attribute.get("node");
                let node = node.map(|node| node.to_string()).unwrap_or_default();
                if !pods.is_leaked(id, allocation.address) {
                    nodes_in_use.insert(node);
                    continue;
                }
                // The grace period is only for pods of nodes that exist.
                let has_node = nodes_in_cluster.contains(&*node);
                if has_node && !self.is_old(pods.get(id)) {
                    continue;
                }
                let release = Release {
                    address: allocation.address,
                    handle: allocation.attribute.handle().map(|handle| handle.to_string()),
                    sequence: Some(allocation.sequence),
                };
                garbage.leaks.push(Leak {
                    pod: id,
                    release,
                    has_node,
                });
            }
        }

        for node in blocks_by_node.keys() {
            if !nodes_in_cluster.contains(node) && !nodes_in_use.contains(*node) {
                garbage.nodes.push((*node).to_owned());
            }
        }
        blocks_by_node.retain(|node, _| nodes_in_cluster.contains(node));
        garbage.blocks = self.find_unneeded(&blocks_by_node);
        garbage
    }

    /// True if the pod was deleted at least one grace period ago.
    fn is_old(&self, pod: &Pod) -> bool {
        self.world.engine.now() - pod.deleted_at.unwrap_or_default() >= self.grace
    }

    /// Returns the blocks that have been empty for at least the grace period, and whose node has another block. Notes
    /// since when each block has been empty, for the next call.
    fn find_unneeded(&mut self, blocks_by_node: &BTreeMap<&str, Vec<&Block>>) -> Vec<(IpNet, String)> {
        let now = self.world.engine.now();
        let earlier_notes = std::mem::take(&mut self.empty_since);
        let mut unneeded = Vec::new();
        for (node, blocks) in blocks_by_node {
            let mut remaining = blocks.len();
            for block in blocks.iter().filter(|block| block.is_empty()) {
                let cidr = block.cidr();
                let since = earlier_notes.get(&cidr).copied().unwrap_or(now);
                self.empty_since.insert(cidr, since);

                // A node keeps its last block.
                let is_old = now - since >= self.grace;
                if is_old && remaining > 1 {
                    remaining -= 1;
                    unneeded.push((cidr, (*node).to_owned()));
                }
            }
        }
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Event, Planned, PoolSpec, Scenario};

    /// Six nodes with ten pods each. The pods of one node leave after six minutes.
    fn world(change: impl FnOnce(&mut Scenario)) -> Rc<World> {
        let mut scenario = Scenario {
            nodes: 6,
            pods_per_node: 10,
            pools: vec![PoolSpec::new("10.0.0.0/20".parse().unwrap())],
            grace: Some(Micros::from_mins(2)),
            ..Scenario::default()
        };
        change(&mut scenario);
        let world = World::new(&Arc::new(scenario)).unwrap();
        world.engine.run_until(Micros::from_mins(6));
        assert!(
            world
                .pods_of(0)
                .into_iter()
                .filter(|pod| world.delete(*pod))
                .count()
                >= 8
        );
        world
    }

    #[test]
    fn cooled_down_addresses_are_freed_if_nothing_else_writes_the_block() {
        let world = world(|scenario| scenario.cooldown = Micros::from_secs(30));
        let is_cooling = || world.server.data().blocks().any(|block| block.has_cooling());
        world.engine.run_until(Micros::from_secs(6 * 60 + 20));
        assert!(is_cooling());
        world.engine.run_until(Micros::from_mins(8));
        assert!(!is_cooling());
    }

    /// The number of addresses that are allocated to pods that no longer exist.
    fn leaked(world: &World) -> usize {
        let data = world.server.data();
        let pods = world.pods.borrow();
        data.blocks()
            .flat_map(|block| block.allocations())
            .filter(|held| {
                pods.find_by_record(&held.attribute)
                    .is_some_and(|id| pods.is_leaked(id, held.address))
            })
            .count()
    }

    #[test]
    fn each_pod_is_read_before_its_address_is_released_on_kubernetes() {
        let freed = |kind: DatastoreKind| {
            let restored = Micros::from_mins(9);
            let world = world(|scenario| {
                scenario.datastore = kind;
                scenario.latency = "controllers-qps=1,controllers-burst=1".into();
                scenario.event = Some(Planned {
                    at: restored,
                    what: Event::RestoreBackup,
                });
            });
            world.engine.run_until(restored + Micros::from_millis(1));
            assert!(leaked(&world) >= 8, "{}: pods that had left", leaked(&world));
            while leaked(&world) > 0 {
                world
                    .engine
                    .run_until(world.engine.now() + Micros::from_millis(100));
            }
            world.engine.now()
        };
        let etcd = freed(DatastoreKind::Etcd);
        let kubernetes = freed(DatastoreKind::Kubernetes);
        assert!(kubernetes > etcd + Micros::from_secs(8), "{etcd} {kubernetes}");
    }
}
