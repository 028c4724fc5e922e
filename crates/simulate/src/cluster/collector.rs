//! The collector of kube-controllers (facts 3.10, 3.12, 3.17). It decides by caches, which lag behind; on Kubernetes it asks for each pod once more
//! before it releases an address.

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

/// How long it waits for more of the same before it begins.
const TOGETHER: Micros = Micros::from_secs(1);
/// How long it waits until it tries again what it could not do.
const AGAIN: Micros = Micros::from_secs(5);
/// Most addresses that it releases at once.
const BATCH: usize = 10_000;

/// The collector, with what it has seen.
struct State {
    world: Rc<World>,
    grace: Micros,
    allocator: Allocator<Client>,
    /// Since when blocks are empty that their node does not need.
    empty_since: BTreeMap<IpNet, Micros>,
}

/// A leaked address of a pod.
struct Leak {
    pod: u32,
    release: Release,
    /// The node of the pod is in the cluster.
    has_node: bool,
}

/// What the caches say.
#[derive(Default)]
struct Found {
    leaks: Vec<Leak>,
    /// Blocks with addresses whose cooldown is over.
    cooled: Vec<IpNet>,
    /// Nodes that the cluster has no more, and that hold nothing that may be in use.
    nodes: Vec<String>,
    /// Blocks to give up, with their node.
    blocks: Vec<(IpNet, String)>,
}

impl World {
    /// Plans the regular runs of the collector.
    pub(super) fn plan_collector(self: &Rc<Self>) {
        let Some(grace) = self.scenario.grace else { return };
        let allocator = Allocator::new(Client::for_controllers(&self.server));
        let state = State { world: Rc::clone(self), grace, allocator, empty_since: BTreeMap::new() };
        self.engine.spawn(run(state));
    }

    fn cooldown(&self) -> SignedDuration {
        self.server.data().config().unwrap_or_default().cooldown()
    }

    /// A node or a pod is gone: the collector begins soon.
    pub(super) fn collect_soon(&self) {
        self.is_collecting.set(true);
    }
}

async fn run(mut state: State) {
    let engine = state.world.engine.clone();
    let mut next = interval(state.grace);
    loop {
        // A signal is checked once in a while, so that several come together.
        while engine.now() < next && !state.world.is_collecting.replace(false) {
            engine.sleep(TOGETHER).await;
        }
        if engine.now() >= next {
            next = engine.now() + interval(state.grace);
        }
        if !state.collect().await {
            engine.sleep(AGAIN).await;
            state.world.is_collecting.set(true);
        }
    }
}

impl State {
    /// Releases what is leaked; false if something is left to do.
    async fn collect(&mut self) -> bool {
        let found = self.find();
        let world = &self.world;
        world.engine.sleep(world.server.draw(world.server.costs.read)).await;

        let mut is_done = true;
        for batch in self.confirmed(found.leaks).await.chunks(BATCH) {
            is_done &= self.allocator.release_ips(batch).await.is_ok();
        }
        for block in found.cooled {
            self.free_cooled(block).await;
        }
        for (block, node) in found.blocks {
            // Where another client was faster there is nothing to do.
            let _ = self.allocator.release_affinity(block, &node, InUse::Refuse).await;
        }
        for node in found.nodes {
            match self.allocator.release_host_affinities(AffinityType::Host, &node, InUse::Refuse).await {
                Ok(()) | Err(Error::NoAffinity(_)) => {}
                Err(_) => is_done = false,
            }
        }
        is_done
    }

    /// The leaks that are still leaks. The pods of nodes that are gone are not asked for again.
    async fn confirmed(&self, leaks: Vec<Leak>) -> Vec<Release> {
        let mut confirmed = Vec::new();
        for Leak { pod, release, has_node } in leaks {
            if has_node && self.world.server.kind == DatastoreKind::Kubernetes {
                self.allocator.store().look_up().await;
            }
            if self.world.pods.borrow().is_leaked(pod, release.address) {
                confirmed.push(release);
            }
        }
        confirmed
    }

    /// Writes a block without the addresses whose cooldown is over. Where another client was faster, that one has done it.
    async fn free_cooled(&self, block: IpNet) {
        let store = self.allocator.store();
        let Ok(found) = store.read(&[Query::Get(Key::Block(block))]).await else { return };
        let Some(entry) = found.into_iter().flatten().next() else { return };
        if let Record::Block(block) = &entry.record {
            let block = block.without_cooled(store.now(), self.world.cooldown()).into_owned();
            let _ = store.update(&Record::Block(Arc::new(block)), &entry.revision).await;
        }
    }

    fn find(&mut self) -> Found {
        let world = Rc::clone(&self.world);
        let (pods, nodes, data) = (world.pods.borrow(), world.nodes.borrow(), world.server.data());
        let present: BTreeSet<&str> =
            nodes.all().filter(|(_, node)| node.is_in_cluster).map(|(_, node)| &*node.name).collect();

        let mut found = Found::default();
        let mut nodes_in_use: BTreeSet<String> = BTreeSet::new();
        let mut blocks_of: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        let (now, cooldown) = (world.engine.now().timestamp(), world.cooldown());
        for block in data.blocks() {
            if block.has_cooling() && block.allocations().any(|held| held.attribute.has_cooled(now, cooldown))
            {
                found.cooled.push(block.cidr());
            }
            if let Some(host) = block.owner().and_then(|owner| owner.host()) {
                blocks_of.entry(host).or_default().push(block);
            }
            for held in block.allocations().filter(|held| !held.attribute.is_cooling()) {
                let Some(id) = pods.of_record(&held.attribute) else { continue };
                let node = held.attribute.get("node").map(|node| node.to_string()).unwrap_or_default();
                match pods.is_leaked(id, held.address) {
                    false => drop(nodes_in_use.insert(node)),
                    true => {
                        let has_node = present.contains(&*node);
                        if has_node && !self.is_old(pods.get(id)) {
                            continue;
                        }
                        let release = Release {
                            address: held.address,
                            handle: held.attribute.handle().map(|handle| handle.to_string()),
                            sequence: Some(held.sequence),
                        };
                        found.leaks.push(Leak { pod: id, release, has_node });
                    }
                }
            }
        }

        let is_gone = |node: &&&str| !present.contains(**node) && !nodes_in_use.contains(**node);
        found.nodes = blocks_of.keys().filter(is_gone).map(|node| (*node).to_owned()).collect();
        blocks_of.retain(|node, _| present.contains(node));
        found.blocks = self.find_unneeded(&blocks_of);
        found
    }

    /// The pod is gone for as long as the grace period.
    fn is_old(&self, pod: &Pod) -> bool {
        self.world.engine.now() - pod.gone_at.unwrap_or_default() >= self.grace
    }

    /// Blocks that are empty for as long as the grace period, where their node has another one.
    fn find_unneeded(&mut self, blocks_of: &BTreeMap<&str, Vec<&Block>>) -> Vec<(IpNet, String)> {
        let now = self.world.engine.now();
        let mut unneeded = Vec::new();
        let mut empty_since = BTreeMap::new();
        for (node, blocks) in blocks_of {
            let mut left = blocks.len();
            for block in blocks.iter().filter(|block| block.is_empty()) {
                let cidr = block.cidr();
                let since = self.empty_since.get(&cidr).copied().unwrap_or(now);
                empty_since.insert(cidr, since);
                if now - since >= self.grace && left > 1 {
                    left -= 1;
                    unneeded.push((cidr, (*node).to_owned()));
                }
            }
        }
        self.empty_since = empty_since;
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Event, Planned, PoolSpec, Scenario};

    /// Six nodes with ten pods each, of which those of one leave after six minutes.
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
        assert!(world.pods_of(0).into_iter().filter(|pod| world.delete(*pod)).count() >= 8);
        world
    }

    #[test]
    fn what_has_cooled_is_freed_where_nothing_else_writes_the_block() {
        let world = world(|scenario| scenario.cooldown = Micros::from_secs(30));
        let is_cooling = || world.server.data().blocks().any(|block| block.has_cooling());
        world.engine.run_until(Micros::from_secs(6 * 60 + 20));
        assert!(is_cooling());
        world.engine.run_until(Micros::from_mins(8));
        assert!(!is_cooling());
    }

    /// Addresses that are allocated to pods that are gone.
    fn leaked(world: &World) -> usize {
        let (data, pods) = (world.server.data(), world.pods.borrow());
        let held = data.blocks().flat_map(|block| block.allocations());
        let is_leaked = |id: u32, address| pods.is_leaked(id, address);
        held.filter(|held| pods.of_record(&held.attribute).is_some_and(|id| is_leaked(id, held.address)))
            .count()
    }

    #[test]
    fn on_kubernetes_each_pod_is_asked_for_before_its_address_goes() {
        let freed = |kind: DatastoreKind| {
            let restored = Micros::from_mins(9);
            let world = world(|scenario| {
                scenario.datastore = kind;
                scenario.latency = "controllers-qps=1,controllers-burst=1".into();
                scenario.event = Some(Planned { at: restored, what: Event::RestoreBackup });
            });
            world.engine.run_until(restored + Micros::from_millis(1));
            assert!(leaked(&world) >= 8, "{}: those that had left", leaked(&world));
            while leaked(&world) > 0 {
                world.engine.run_until(world.engine.now() + Micros::from_millis(100));
            }
            world.engine.now()
        };
        let (etcd, kubernetes) = (freed(DatastoreKind::Etcd), freed(DatastoreKind::Kubernetes));
        assert!(kubernetes > etcd + Micros::from_secs(8), "{etcd} {kubernetes}");
    }
}
