//! Nodes that cannot get another address although their pools have free ones.
//!
//! Own blocks come first, then what [`beyond_own_blocks`] gives. If anything about a node's chances is unknown, it
//! counts as served.

use std::collections::HashSet;

use calipam_assign::{ClaimCapacity, Family, NodeSelector, beyond_own_blocks};
use calipam_model::affinity::AffinityType;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::ALLOCATION_SOURCES;
use calipam_model::{IpNet, cidr};

use super::{Claimants, HeldBlock, Occupancy, PoolCapacity};
use crate::Context;
use crate::finding::{NoFurtherAddress, NodePoolEvidence};

/// A pool from which pods get addresses without asking for it by name.
struct Supply<'s> {
    pool: &'s Pool,
    /// Which nodes may use it.
    selector: NodeSelector,
    /// Addresses that are known to be free.
    free: u128,
    stock: PoolCapacity,
}

/// What the nodes of a cluster may still get.
pub(crate) struct Stranded<'a, 'c, 's> {
    occupancy: &'a Occupancy<'c, 's>,
    claimants: &'a Claimants<'c, 's>,
    config: IpamConfig,
    /// The pools of IPv4 and of IPv6.
    supplies: [Option<Vec<Supply<'s>>>; 2],
    /// What a node with an affinity that cannot be decoded may use is unknown.
    unclear: HashSet<&'s str>,
}

impl<'a, 'c, 's> Stranded<'a, 'c, 's> {
    /// `None` if something that the allocator looks at was not read, or cannot be decoded.
    pub(crate) fn new(
        context: &'c Context<'s>,
        occupancy: &'a Occupancy<'c, 's>,
        claimants: &'a Claimants<'c, 's>,
    ) -> Option<Self> {
        let snapshot = context.snapshot;
        let config = snapshot.effective_ipam_config()?;
        let is_reservation = |key: &Option<Key>| matches!(key, Some(Key::Reservation(_)));
        if !ALLOCATION_SOURCES.into_iter().all(|source| snapshot.has_read(source))
            || context.index.pools_incomplete
            || snapshot.defects.iter().any(|defect| is_reservation(&defect.key))
        {
            return None;
        }

        let unclear = snapshot.defects.iter().filter_map(|defect| match &defect.key {
            Some(Key::Affinity(key)) => Some(key.node.as_str()),
            _ => None,
        });
        let supplies = Family::BOTH.map(|family| supplies(context, occupancy, family));
        Some(Self { occupancy, claimants, config, supplies, unclear: unclear.collect() })
    }

    /// The pools of one family that could give the node an address and do not; empty if it gets one, or needs none: pods
    /// on a virtual kubelet have none of Calico's. `None` if that is not known.
    pub(crate) fn pools_of(&self, node: &Node, family: Family) -> Option<Vec<NodePoolEvidence>> {
        if self.unclear.contains(node.name.as_str()) {
            return None;
        }
        if node.is_virtual_kubelet() {
            return Some(Vec::new());
        }
        let held = self.claimants.held_by(&AffinityType::Host, &node.name);
        let one = OneNode { all: self, node, held };
        self.supplies[family as usize].as_ref().map(|pools| one.check(pools))
    }
}

/// The enabled, automatic pools of one family for workloads. `None` if the selector of one does not
/// parse: then Calico fails for all nodes, and nothing is said about them.
fn supplies<'s>(
    context: &Context<'s>,
    occupancy: &Occupancy<'_, '_>,
    family: Family,
) -> Option<Vec<Supply<'s>>> {
    let pools = context.snapshot.pools.iter().map(|p| &p.value);
    let pools = pools.filter(|p| Family::of(p.cidr) == family);
    let pools = pools.filter(|p| p.is_enabled() && p.automatic && p.allows(PoolUse::Workload));
    let supply = |pool: &'s Pool| {
        let selector = NodeSelector::of(pool).ok()?;
        let free = occupancy.total_tally(pool.cidr).free;
        Some(Supply { pool, selector, free, stock: occupancy.stock(pool, |_| false) })
    };
    pools.map(supply).collect()
}

/// One node.
struct OneNode<'a, 'c, 's> {
    all: &'a Stranded<'a, 'c, 's>,
    node: &'a Node,
    held: &'a [HeldBlock<'c, 's>],
}

/// Whether the node gets one more address.
enum Verdict {
    Served,
    Stranded(NoFurtherAddress),
}

impl OneNode<'_, '_, '_> {
    /// The pools of one family that could help the node and do not; empty if it is served.
    fn check(&self, pools: &[Supply<'_>]) -> Vec<NodePoolEvidence> {
        let selecting: Vec<&Supply<'_>> =
            pools.iter().filter(|p| p.selector.selects(&self.node.labels)).collect();
        if selecting.iter().all(|pool| pool.free == 0) {
            return Vec::new();
        }
        let (usable, too_small): (Vec<&Supply<'_>>, Vec<&Supply<'_>>) =
            selecting.iter().copied().partition(|supply| !self.reserves_all(supply.pool));
        let mut reason = match too_small.is_empty() {
            true => NoFurtherAddress::NoBlockLeft,
            false => NoFurtherAddress::WindowsReserves,
        };
        for request in requests(&usable) {
            match self.request(&request) {
                Verdict::Served => return Vec::new(),
                Verdict::Stranded(why) => reason = why,
            }
        }
        selecting.iter().map(|pool| self.evidence(pool, reason)).collect()
    }

    /// True if a Windows node reserves every address of the pool's blocks: the first three and the last one.
    fn reserves_all(&self, pool: &Pool) -> bool {
        self.node.is_windows() && cidr::is_v4(pool.cidr) && pool.block_size + 2 >= pool.cidr.max_prefix_len()
    }

    /// What becomes of a request that may use these pools.
    fn request(&self, pools: &[&Supply<'_>]) -> Verdict {
        let is_usable = |block: IpNet| pools.iter().any(|p| p.pool.cidr.contains(&block.network()));
        for held in self.held.iter().filter(|held| is_usable(held.cidr)) {
            // Calico creates a block that only an affinity names. What a corrupt one holds is unknown.
            let Some(block) = held.block.and_then(|block| block.current()) else { return Verdict::Served };
            if self.all.occupancy.open(block) > 0 {
                return Verdict::Served;
            }
        }
        self.beyond_own_blocks(pools)
    }

    /// The own blocks are full: whether there is another way.
    fn beyond_own_blocks(&self, pools: &[&Supply<'_>]) -> Verdict {
        let usable: Vec<&Pool> = pools.iter().map(|supply| supply.pool).collect();
        let headroom = self.all.claimants.headroom_in(self.held, &usable);
        // A pool smaller than its blocks is taken to have room: what Calico does with it is not worth a finding. Without
        // any block, and without automatic allocation, the node may be meant to have none.
        let may_claim = headroom > 0 && self.all.config.auto_allocate_blocks;
        let may_be_meant =
            !self.all.config.auto_allocate_blocks && Some(headroom) == self.all.claimants.limit;
        if may_be_meant || may_claim && usable.iter().any(|pool| pool.is_smaller_than_block()) {
            return Verdict::Served;
        }

        let sum = |part: fn(&PoolCapacity) -> u128| {
            pools.iter().map(|supply| part(&supply.stock)).fold(0, u128::saturating_add)
        };
        let capacity = ClaimCapacity {
            new_blocks: sum(|stock| stock.new_blocks),
            // One address is asked for: one block of each pool will do.
            empty: |_| sum(|stock| stock.empty.first().copied().unwrap_or_default()),
            foreign: sum(|stock| stock.foreign),
        };
        let beyond = beyond_own_blocks(&self.all.config, headroom.into(), capacity);
        match beyond.is_nothing() {
            true => Verdict::Stranded(beyond.end.into()),
            false => Verdict::Served,
        }
    }

    fn evidence(&self, pool: &Supply<'_>, reason: NoFurtherAddress) -> NodePoolEvidence {
        let owned = self.held.iter().filter(|held| held.is_owned_by(&self.node.name));
        let blocks = owned.filter(|held| pool.pool.cidr.contains(&held.cidr)).count();
        NodePoolEvidence {
            pool: pool.pool.name.clone(),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            limit: self.all.claimants.limit,
            free: Some(pool.free),
            reason: Some(reason),
        }
    }
}

/// The sets of pools that requests may use: those for all namespaces, and with them each of those for
/// some only. A node that is served in one of them is not stranded.
fn requests<'a, 's>(selecting: &[&'a Supply<'s>]) -> Vec<Vec<&'a Supply<'s>>> {
    let (general, special): (Vec<_>, Vec<_>) =
        selecting.iter().copied().partition(|p| p.pool.namespace_selector.is_empty());
    let mut requests: Vec<Vec<&Supply<'_>>> = Vec::new();
    for pool in special {
        requests.push(general.iter().copied().chain([pool]).collect());
    }
    if !general.is_empty() {
        requests.push(general);
    }
    requests
}
