//! The collector of kube-controllers (facts 3.12, 3.17).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use calipam_assign::{Allocator, Error, InUse, Release};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;

use super::World;
use super::pods::Pod;
use crate::datastore::Client;
use crate::scenario::Collector;
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
    settings: Collector,
    allocator: Allocator<Client>,
    /// Since when blocks are empty that their node does not need.
    empty_since: BTreeMap<IpNet, Micros>,
}

/// What reading everything has found.
#[derive(Default)]
struct Found {
    leaks: Vec<Release>,
    /// Nodes that the cluster has no more, and that hold nothing that may be in use.
    nodes: Vec<String>,
    /// Blocks to give up, with their node.
    blocks: Vec<(IpNet, String)>,
}

impl World {
    /// Plans the regular runs of the collector.
    pub(super) fn plan_collector(self: &Rc<Self>) {
        let Some(settings) = self.scenario.collector.clone() else { return };
        let allocator = Allocator::new(Client::for_controllers(&self.server));
        let state = State { world: Rc::clone(self), settings, allocator, empty_since: BTreeMap::new() };
        self.engine.spawn(run(state));
    }

    /// A node or a pod is gone: the collector begins soon.
    pub(super) fn collect_soon(&self) {
        self.is_collecting.set(true);
    }
}

async fn run(mut state: State) {
    let engine = state.world.engine.clone();
    let mut next = state.settings.interval();
    loop {
        // A signal is checked once in a while, so that several come together.
        while engine.now() < next && !state.world.is_collecting.replace(false) {
            engine.sleep(TOGETHER).await;
        }
        if engine.now() >= next {
            next = engine.now() + state.settings.interval();
        }
        if !state.collect().await {
            engine.sleep(AGAIN).await;
            state.world.is_collecting.set(true);
        }
    }
}

impl State {
    /// Reads everything and releases what is leaked; false where something is left to do.
    async fn collect(&mut self) -> bool {
        let found = self.find();
        let mut is_done = true;
        for batch in found.leaks.chunks(BATCH) {
            is_done &= self.allocator.release_ips(batch).await.is_ok();
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

    fn find(&mut self) -> Found {
        let world = Rc::clone(&self.world);
        let (pods, nodes, data) = (world.pods.borrow(), world.nodes.borrow(), world.server.data());
        let present: BTreeSet<&str> =
            nodes.all().filter(|(_, node)| node.is_in_cluster).map(|(_, node)| &*node.name).collect();

        let mut found = Found::default();
        let mut nodes_in_use: BTreeSet<String> = BTreeSet::new();
        let mut blocks_of: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
        for block in data.blocks() {
            if let Some(host) = block.owner().and_then(|owner| owner.host()) {
                blocks_of.entry(host).or_default().push(block);
            }
            for held in block.allocations().filter(|held| !held.attribute.is_cooling()) {
                let Some(id) = pods.of_record(&held.attribute) else { continue };
                let node = held.attribute.get("node").map(|node| node.to_string()).unwrap_or_default();
                match pods.is_leaked(id, held.address) {
                    false => drop(nodes_in_use.insert(node)),
                    true if !present.contains(&*node) || self.is_old(pods.get(id)) => {
                        found.leaks.push(Release {
                            address: held.address,
                            handle: held.attribute.handle().map(|handle| handle.to_string()),
                            sequence: Some(held.sequence),
                        })
                    }
                    true => {}
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
        self.world.engine.now() - pod.gone_at.unwrap_or_default() >= self.settings.grace
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
                if now - since >= self.settings.grace && left > 1 {
                    left -= 1;
                    unneeded.push((cidr, (*node).to_owned()));
                }
            }
        }
        self.empty_since = empty_since;
        unneeded
    }
}
