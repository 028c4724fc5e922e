//! Which free addresses a node can get now: "free" is not "allocatable" (facts 3.4).

use std::collections::HashMap;

use calipam_model::block::BlockOwner;
use calipam_model::config::IpamConfig;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::{IpNet, cidr};

use crate::Context;
use crate::rules::capacity::Capacity;

/// What decides who can get which address.
pub(super) struct Chances<'c, 's> {
    context: &'c Context<'s>,
    config: IpamConfig,
    /// Blocks of a node by family and node.
    held: HashMap<(bool, &'c str), Vec<IpNet>>,
}

impl<'c, 's> Chances<'c, 's> {
    pub fn new(context: &'c Context<'s>) -> Self {
        let mut held: HashMap<(bool, &str), Vec<IpNet>> = HashMap::new();
        for block in &context.index.blocks {
            if let Some(host) = block.owner.and_then(BlockOwner::host) {
                held.entry((cidr::is_v4(block.key), host)).or_default().push(block.key);
            }
        }
        Self { context, config: context.snapshot.effective_ipam_config().unwrap_or_default(), held }
    }

    /// How many of the pool's free addresses can be had, and what keeps the others back.
    pub fn of(&self, capacity: &Capacity<'_, '_>, pool: &Pool, free: u128) -> (u128, Vec<String>) {
        if !pool.is_enabled() {
            return (0, vec!["the pool is not enabled".to_owned()]);
        }
        let Ok(selector) = Selector::parse(&pool.node_selector) else {
            return (0, vec![format!("the node selector {:?} does not parse", pool.node_selector)]);
        };
        let nodes = self.context.snapshot.nodes.iter().map(|n| &n.value);
        let chosen: Vec<&Node> = nodes.filter(|n| selector.matches(&n.labels)).collect();
        let for_services = pool.allows(PoolUse::LoadBalancer);
        if chosen.is_empty() && !for_services {
            return (0, vec!["the node selector matches no node".to_owned()]);
        }
        let mut limits = Vec::new();
        let (in_blocks, reachable) = self.in_blocks(capacity, pool, &chosen, for_services);
        if reachable < in_blocks {
            limits.push("strict affinity keeps nodes out of blocks that are not theirs".to_owned());
        }
        let space = free.saturating_sub(in_blocks);
        let claimable = self.claimable(pool, &chosen, for_services, space, &mut limits);
        (reachable + claimable, limits)
    }

    /// Free addresses in blocks of the pool, and those of them that somebody can get: the owner of the block,
    /// or, without strict affinity, any node that the pool selects.
    fn in_blocks(
        &self,
        capacity: &Capacity<'_, '_>,
        pool: &Pool,
        chosen: &[&Node],
        for_services: bool,
    ) -> (u128, u128) {
        let (mut all, mut reachable) = (0, 0);
        let inside = self.context.index.blocks.iter().filter(|b| pool.cidr.contains(&b.key));
        for (indexed, block) in inside.filter_map(|b| Some((b, b.sound?))) {
            let reserved =
                |ordinal: &&u32| capacity.reserved.contains(cidr::address_at(block.cidr(), **ordinal));
            let free = block.free().iter().filter(|ordinal| !reserved(ordinal)).count() as u128;
            all += free;
            let has_user = match indexed.owner {
                Some(BlockOwner::Host(host)) => chosen.iter().any(|node| node.name == *host),
                Some(BlockOwner::Virtual(_)) => for_services,
                Some(BlockOwner::Other(_)) | None => false,
            };
            if has_user || !self.config.strict_affinity {
                reachable += free;
            }
        }
        (all, reachable)
    }

    /// Addresses of space without blocks that nodes may claim within their block limits.
    fn claimable(
        &self,
        pool: &Pool,
        chosen: &[&Node],
        for_services: bool,
        space: u128,
        limits: &mut Vec<String>,
    ) -> u128 {
        if space == 0 {
            return 0;
        }
        if !self.config.auto_allocate_blocks {
            limits.push("automatic allocation of blocks is off".to_owned());
            return 0;
        }
        let limit = u128::from(self.config.block_limit());
        let v4 = cidr::is_v4(pool.cidr);
        let held = |name: &str| {
            let blocks = self.held.get(&(v4, name)).into_iter().flatten();
            blocks.filter(|block| pool.cidr.contains(*block)).count() as u128
        };
        // The owner of LoadBalancer blocks is one more that may claim, under the same limit.
        let names = chosen.iter().map(|n| n.name.as_str()).chain(for_services.then_some("load-balancer"));
        let blocks: u128 = names.map(|name| limit.saturating_sub(held(name))).sum();
        let host_bits = u32::from(pool.cidr.max_prefix_len() - pool.block_size);
        let addresses = 1u128.checked_shl(host_bits).unwrap_or(u128::MAX).saturating_mul(blocks);
        if addresses < space {
            limits.push(format!("nodes may hold {limit} blocks each"));
        }
        addresses.min(space)
    }
}
