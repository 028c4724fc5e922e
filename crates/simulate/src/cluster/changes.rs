//! What changes while a cluster runs: nodes join and are replaced, the datastore is slow or away, plugins are killed,
//! settings and pools change.

use std::rc::Rc;

use calipam_model::IpNet;

use super::World;
use super::events::{BATCH, POLL};
use crate::scenario::PoolSpec;
use crate::time::Micros;

impl World {
    /// Nodes join.
    pub(super) fn add_nodes(&self, count: u32) {
        for _ in 0..count {
            let node = self.nodes.borrow_mut().add(&self.engine, &self.scenario);
            self.server.data_mut().add_node(node);
        }
    }

    /// After how long the plugin of the ADD that begins now is killed, if that is to happen: somewhere in a usual call.
    pub(super) fn next_is_killed(&self) -> Option<Micros> {
        let left = self.to_kill.get().checked_sub(1)?;
        self.to_kill.set(left);
        let costs = &self.server.costs;
        let [start, connect, read, write] =
            [costs.start, costs.connect, costs.read, costs.write].map(|latency| latency.median());
        Some(Micros(self.random_below((start + connect + read * 2 + write * 2).0)))
    }

    pub(super) fn kill_plugins(&self, count: u32) {
        self.to_kill.set(self.to_kill.get() + count);
    }

    /// Requests take so many times as long for a while.
    pub(super) fn slow_datastore(&self, times: u32, lasting: Micros) {
        self.server.slow_down(times);
        let server = Rc::clone(&self.server);
        self.engine.at(self.engine.now() + lasting, move || server.slow_down(1));
    }

    /// Settings of IPAM change.
    pub(super) fn configure(&self, strict: Option<bool>, most_blocks: Option<u32>, cooldown: Option<Micros>) {
        let mut data = self.server.data_mut();
        let mut config = data.config().unwrap_or_default();
        config.strict_affinity = strict.unwrap_or(config.strict_affinity);
        config.max_blocks_per_host = most_blocks.map_or(config.max_blocks_per_host, Into::into);
        if let Some(cooldown) = cooldown {
            config.cooldown_seconds = i64::try_from(cooldown.0 / 1_000_000).unwrap_or(i64::MAX);
        }
        data.configure(config);
    }

    pub(super) fn add_pool(&self, spec: &PoolSpec) {
        let number = self.server.data().pools().len();
        self.server.data_mut().change_pools(|pools| pools.push(spec.pool(number)));
    }

    pub(super) fn disable_pool(&self, cidr: IpNet) {
        self.server.data_mut().change_pools(|pools| {
            pools.iter_mut().filter(|pool| pool.cidr == cidr).for_each(|pool| pool.disabled = true);
        });
    }
}

/// Replaces all nodes, `batch` at a time.
pub(super) async fn replace_nodes(world: Rc<World>, batch: u32) {
    let is_there = |world: &World, node: u32| world.nodes.borrow().get(node).is_in_cluster;
    let old: Vec<u32> = world.nodes.borrow().all().map(|(index, _)| index).collect();
    for old in old.chunks(batch.max(1) as usize) {
        let old: Vec<u32> = old.iter().copied().filter(|node| is_there(&world, *node)).collect();
        world.add_nodes(old.len() as u32);
        old.iter().for_each(|node| world.drain(*node));
        let until = world.engine.now() + BATCH;
        let is_empty = |world: &World| old.iter().all(|node| world.pods_of(*node).is_empty());
        while !is_empty(&world) && world.engine.now() < until {
            world.engine.sleep(POLL).await;
        }
        old.iter().for_each(|node| world.remove_node(*node));
    }
}
