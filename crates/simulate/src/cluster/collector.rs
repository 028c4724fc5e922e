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
    /// Plans the regular runs of the collector.
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
    /// Releases garbage. Returns false if the collector has to try again.
    async fn collect(&mut self) -> bool {
        let found = self.find();
        let world = &self.world;
        world
            .engine
            .sleep(world.server.draw(world.server.costs.read))
            .await;

        let mut is_done = true;
        for batch in self.confirmed(found.leaks).await.chunks(BATCH) {
            is_done &= self.allocator.release_ips(batch).await.is_ok();
        }
        for block in found.cooled {
            self.free_cooled(block).await;
        }
        for (block, node) in found.blocks {
            // If another client has changed the block, the collector leaves it.
            let _ = self.allocator.release_affinity(block, &node, InUse::Refuse).await;
        }
        for node in found.nodes {
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

    /// Confirms leaks, and returns requests to release them. Does not read pods whose node is no longer in the cluster.
    async fn confirmed(&self, leaks: Vec<Leak>) -> Vec<Release> {
        let mut confirmed = Vec::new();
        for Leak {
            pod,
            release,
            has_node,
        } in leaks
        {
            if has_node && self.world.server.kind == DatastoreKind::Kubernetes {
                self.allocator.store().look_up().await;
            }
            if self.world.pods.borrow().is_leaked(pod, release.address) {
                confirmed.push(release);
            }
        }
        confirmed
    }

    /// Writes a block without the addresses whose cooldown is over. If another client wrote the block first, that
    /// client has also freed these addresses.
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

    fn find(&mut self) -> Garbage {
        let world = Rc::clone(&self.world);
        let pods = world.pods.borrow();
        let nodes = world.nodes.borrow();
        let data = world.server.data();
        let present: BTreeSet<&str> = nodes
            .all()
            .filter(|(_, node)| node.is_in_cluster)
            .map(|(_, node)| &*node.name)
            .collect();

        let mut found = Garbage::default();
        let mut nodes_in_use: BTreeSet<String> = BTreeSet::new();
        let mut blocks_of: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        let now = world.engine.now().timestamp();
        let cooldown = world.cooldown();
        for block in data.blocks() {
            if block.has_cooling()
                && block
                    .allocations()
                    .any(|held| held.attribute.has_cooled(now, cooldown))
            {
                found.cooled.push(block.cidr());
            }
            if let Some(host) = block.host() {
                blocks_of.entry(host).or_default().push(block);
            }
            for held in block.allocations().filter(|held| !held.attribute.is_cooling()) {
                let Some(id) = pods.of_record(&held.attribute) else {
                    continue;
                };
                let node = held
                    .attribute
                    .get("node")
                    .map(|node| node.to_string())
                    .unwrap_or_default();
                if !pods.is_leaked(id, held.address) {
                    nodes_in_use.insert(node);
                    continue;
                }
                let has_node = present.contains(&*node);
                if has_node && !self.is_old(pods.get(id)) {
                    continue;
                }
                let release = Release {
                    address: held.address,
                    handle: held.attribute.handle().map(|handle| handle.to_string()),
                    sequence: Some(held.sequence),
                };
                found.leaks.push(Leak {
                    pod: id,
                    release,
                    has_node,
                });
            }
        }

        let is_gone = |node: &&&str| !present.contains(**node) && !nodes_in_use.contains(**node);
        found.nodes = blocks_of
            .keys()
            .filter(is_gone)
            .map(|node| (*node).to_owned())
            .collect();
        blocks_of.retain(|node, _| present.contains(node));
        found.blocks = self.find_unneeded(&blocks_of);
        found
    }

    /// True if the pod was deleted at least one grace period ago.
    fn is_old(&self, pod: &Pod) -> bool {
        self.world.engine.now() - pod.gone_at.unwrap_or_default() >= self.grace
    }

    /// Returns the blocks that have been empty for at least the grace period, and whose node has another block. Notes since
    /// when each block has been empty, for the next call.
    fn find_unneeded(&mut self, blocks_of: &BTreeMap<&str, Vec<&Block>>) -> Vec<(IpNet, String)> {
        let now = self.world.engine.now();
        let noted_before = std::mem::take(&mut self.empty_since);
        let mut unneeded = Vec::new();
        for (node, blocks) in blocks_of {
            let mut number_kept = blocks.len();
            for block in blocks.iter().filter(|block| block.is_empty()) {
                let cidr = block.cidr();
                let since = noted_before.get(&cidr).copied().unwrap_or(now);
                self.empty_since.insert(cidr, since);

                let is_old = now - since >= self.grace;
                if is_old && number_kept > 1 {
                    number_kept -= 1;
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
                pods.of_record(&held.attribute)
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
