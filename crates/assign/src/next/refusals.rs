//! The refusals of nodes: why the next pod gets no address. They are remembered by what they depend on.

use std::collections::BTreeMap;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::BlockContent;
use calipam_model::node::Node;
use calipam_model::plugin::Plugin;
use calipam_model::pool::{Pool, PoolUse};

use super::answer::Refused;
use super::claims::BlockLimit;
use super::open_pool::OpenPool;
use super::{NextAddress, NotKnown, Outlook};
use crate::auto::assignable;
use crate::family::Family;

/// The data that a node's refusal depends on. Nodes with equal keys get the same answer.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct RefusalKey {
    family: Family,
    /// The pools that the request names; empty if it names none.
    named: Vec<IpNet>,
    /// The open pools that select the node, by position.
    selecting: Vec<usize>,
    /// The number of blocks that the node holds in these pools, if the node is at its block limit.
    held: Option<u32>,
    windows: bool,
    limit: BlockLimit,
    plugin: Plugin,
    /// True if the request is of a certain namespace, which the pools in `selecting` select.
    of_namespace: bool,
}

/// The state of a node's own blocks.
enum OwnBlocks {
    /// At least one block has a free address.
    Free,
    /// All blocks are full. Contains the number of blocks that count towards the block limit.
    Full(u32),
    /// The allocator would change affinities or blocks before it assigned an address.
    Odd,
    /// The content of a block is not known.
    Unknown,
}

impl<'s> Outlook<'s> {
    /// Returns the reason why a pod on a node gets no address, whatever its namespace; `Ok(None)` if pods in at least
    /// one namespace get one. `named` are the pools that the pod names; if it names none, the pools that select the node
    /// serve it.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub fn refusal(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
    ) -> Result<Option<Arc<Refused>>, NotKnown> {
        let any_namespace = None;
        self.remembered_refusal(node, family, named, any_namespace)
    }

    /// Returns the reason why a pod gets no address; `Ok(None)` if it gets one. `labels` are those of its namespace;
    /// `None` for a pod in whichever namespace. Asks the allocator only if no node with the same [`RefusalKey`] was
    /// asked before.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    fn remembered_refusal(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
        labels: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<Arc<Refused>>, NotKnown> {
        let ask = || self.ask(node, family, named, labels);
        if self.is_config_broken || self.fatal_reservation.is_some() {
            return Ok(ask());
        }
        if self
            .undecodable_affinities
            .contains_key(&(&AffinityType::Host, node.name.as_str()))
        {
            return Err(NotKnown);
        }
        let Some(open) = &self.open_pools[family as usize] else {
            // A selector does not parse. Calico then refuses each request that names no pool.
            return Ok(ask());
        };
        let selects = |open: &OpenPool<'_>| {
            open.nodes.matches(&node.labels) && labels.is_none_or(|labels| open.namespaces.matches(labels))
        };
        let mut selecting: Vec<usize> = Vec::new();
        let mut usable: Vec<&Pool> = Vec::new();
        for (position, open_pool) in open.iter().enumerate() {
            if !selects(open_pool) {
                continue;
            }
            selecting.push(position);
            if open_pool.is_usable() {
                usable.push(open_pool.pool);
            }
        }
        let pools = if named.is_empty() {
            usable
        } else {
            self.usable_named(named)
        };

        let limit = self.limit_of_node(node, family);
        let plugin = self.plugin_on(&node.name);
        let full_blocks = match self.own_blocks(node, plugin, family, &pools) {
            OwnBlocks::Unknown => return Err(NotKnown),
            OwnBlocks::Odd => return Ok(ask()),
            // A Windows node can be refused although it has free addresses.
            OwnBlocks::Free if node.is_windows() => return Ok(ask()),
            OwnBlocks::Free => return Ok(None),
            OwnBlocks::Full(full_blocks) => full_blocks,
        };
        // Without a pool, the reason depends on the pools that were passed over.
        if pools.is_empty() {
            return Ok(ask());
        }
        // Below the limit, the answer does not depend on the number of blocks.
        let held = if full_blocks >= self.most_blocks(limit) {
            Some(full_blocks)
        } else {
            None
        };
        let key = RefusalKey {
            family,
            named: named.to_vec(),
            selecting,
            held,
            windows: node.is_windows(),
            limit,
            plugin,
            of_namespace: labels.is_some(),
        };
        if let Some(remembered) = self.known_refusals.borrow().get(&key) {
            return Ok(remembered.clone());
        }
        let refusal = ask();
        self.known_refusals.borrow_mut().insert(key, refusal.clone());
        Ok(refusal)
    }

    /// The pools with these CIDRs, if each of them is enabled and allows workloads; otherwise none.
    fn usable_named(&self, named: &[IpNet]) -> Vec<&'s Pool> {
        let mut usable = Vec::new();
        for cidr in named {
            // Of several enabled pools with this CIDR, Calico uses the last one.
            let enabled = self
                .pools()
                .filter(|pool| pool.cidr == *cidr && pool.is_enabled());
            match enabled.last() {
                Some(pool) if pool.allows(PoolUse::Workload) => usable.push(pool),
                _ => return Vec::new(),
            }
        }
        usable
    }

    /// Returns the reason why a pod in a namespace gets no address if it names neither a pool nor an address;
    /// `Ok(None)` if it gets one.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub fn refusal_in(
        &self,
        namespace: &str,
        node: &Node,
        family: Family,
    ) -> Result<Option<Arc<Refused>>, NotKnown> {
        let mut open = self.open_pools[family as usize].iter().flatten();
        if open.all(|open| open.namespaces.selects_all()) {
            return self.refusal(node, family, &[]);
        }
        if let Some(namespace) = self.namespace(namespace) {
            return self.remembered_refusal(node, family, &[], Some(&namespace.labels));
        }
        if let Some(refused) = self.refusal(node, family, &[])? {
            return Ok(Some(refused));
        }
        let answer = self.next_in(namespace, node, family)?;
        Ok(answer.outcome.err().map(Arc::new))
    }

    /// Asks the allocator for one address, and returns its refusal; `None` if it gives an address.
    fn ask(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<Arc<Refused>> {
        let answer = if named.is_empty() && labels.is_none() {
            self.next_of_any(node, family)
        } else {
            self.next(&NextAddress {
                namespace_labels: labels,
                ..NextAddress::new(&node.name, family, named)
            })
        };
        answer.outcome.err().map(Arc::new)
    }

    /// Looks for a free address in the blocks of a node that are in `pools`, and counts these blocks. A free address
    /// decides, whatever the state of the other blocks.
    fn own_blocks(&self, node: &Node, plugin: Plugin, family: Family, pools: &[&Pool]) -> OwnBlocks {
        let now = self.indexed.snapshot.taken_at;
        let cooldown = self.config.cooldown();
        let mut is_odd = self
            .blocks_lacking_affinity
            .contains_key(&(&AffinityType::Host, node.name.as_str()));
        let mut is_unknown = false;
        let mut held = 0;
        for stored in self.indexed.affinities_of(&AffinityType::Host, &node.name) {
            let affinity = &stored.value;
            let key = &affinity.key;
            if Family::of(key.cidr) != family {
                continue;
            }
            if !pools.iter().any(|pool| pool.cidr.contains(&key.cidr.network())) {
                continue;
            }
            let content = self.indexed.block(key.cidr).map(|block| &block.value.content);
            let is_listed = plugin == Plugin::Calipam || self.is_listed(stored);
            if affinity.deleted || !is_listed {
                // Calico may find the block when it searches the pools for a new one.
                is_odd |= content.is_some_and(|content| key.is_of(content.owner()));
                continue;
            }

            held += 1;
            let Some(block) = content.and_then(BlockContent::as_calico_takes) else {
                let exists = content.is_some() || self.indexed.is_undecodable_block(key.cidr);
                if exists {
                    is_unknown = true;
                } else {
                    // The allocator creates the block, or gives up the affinity.
                    is_odd = true;
                }
                continue;
            };
            let is_confirmed = affinity.state == AffinityState::Confirmed && !affinity.is_unstated;
            if !is_confirmed || block.is_deleted() || block.owner() != Some(&key.owner()) {
                is_odd = true;
                continue;
            }
            if assignable(&block.without_cooled(now, cooldown), &self.reserved) > 0 {
                return OwnBlocks::Free;
            }
        }
        if is_unknown {
            OwnBlocks::Unknown
        } else if is_odd {
            OwnBlocks::Odd
        } else {
            OwnBlocks::Full(held)
        }
    }
}
