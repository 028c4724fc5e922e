//! The next address of a node: what a pod that starts there gets, or why it gets none. The allocator itself answers, on a
//! snapshot.
//!
//! Ten thousand nodes are asked as fast as one: a node with a free address in a block of its own gets that, and of nodes
//! that are alike (the same pools select them, their own blocks are full) one is asked for all of them.

mod answer;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::BlockContent;
use calipam_model::cidr;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::snapshot::{ALLOCATION_SOURCES, Defect, DefectKind, Snapshot};

pub use self::answer::{AddressSource, Answer, Cooling, Given, Reason, Refused};
use crate::allocator::Allocator;
use crate::event::{Event, PoolPassedOver};
use crate::family::Family;
use crate::on_snapshot::{IndexedSnapshot, SnapshotStore, without_waiting};
use crate::pools::{NodeSelector, pool_of};
use crate::request::{AssignIp, AutoAssign};
use crate::reserved::Reserved;

/// The first version of Calico that takes empty blocks from other nodes.
const RECLAIMS_SINCE: (u32, u32) = (3, 32);

/// True if a node that finds no block to claim takes an empty one of another node. Calico of an unknown version counts as a
/// current one.
pub fn reclaims_empty_blocks(snapshot: &Snapshot) -> bool {
    snapshot.is_calico_since(RECLAIMS_SINCE).unwrap_or(true)
}

/// A pod's request for an address of one family.
#[derive(Clone, Copy, Debug)]
pub struct NextAddress<'r> {
    pub node: &'r str,
    pub family: Family,
    /// The pools that it names, by CIDR; empty for those that select node and namespace.
    pub pools: &'r [IpNet],
    /// `None` if they are not known: then pools that ask for labels do not serve it.
    pub namespace_labels: Option<&'r BTreeMap<String, String>>,
}

/// A pool that serves requests which name none.
struct OpenPool<'s> {
    pool: &'s Pool,
    selector: NodeSelector,
    /// It serves some namespaces only.
    is_special: bool,
}

/// A question that several nodes have in common.
#[derive(PartialEq, Eq, Hash)]
struct Alike {
    family: Family,
    pools: Vec<usize>,
    /// The number of blocks of these pools that it holds, where it may hold no more.
    held: Option<u32>,
    windows: bool,
    single_block: bool,
}

/// Answers requests of the nodes of a snapshot, as the allocator would.
pub struct Outlook<'s> {
    indexed: Arc<IndexedSnapshot<'s>>,
    config: IpamConfig,
    /// Most blocks of a node in a family; `None` if there is no limit.
    limit: Option<u32>,
    reserved: Reserved,
    /// `None` if a selector does not parse: then Calico refuses every request that names no pool.
    open: [Option<Vec<OpenPool<'s>>>; 2],
    /// Nodes with an affinity that cannot be decoded.
    unclear: HashSet<&'s str>,
    /// Nodes with a block of which they have no affinity.
    odd: HashSet<&'s str>,
    remembered: RefCell<HashMap<Alike, Option<Arc<Refused>>>>,
}

/// The state of a node's own blocks.
enum OwnBlocks {
    /// One has a free address.
    Free,
    /// All are full; so many count for the block limit.
    Full(u32),
    /// The allocator changes affinities or blocks before it knows.
    Odd,
    /// The content of one of them is not known.
    Unknown,
}

impl<'s> Outlook<'s> {
    /// `None` if something that the allocator looks at was not read, or cannot be decoded.
    pub fn new(snapshot: &'s Snapshot) -> Option<Self> {
        let config = snapshot.effective_ipam_config()?;
        let hides = |defect: &Defect| match &defect.key {
            Some(Key::Pool(_)) => matches!(defect.kind, DefectKind::Value(_)),
            key => matches!(key, Some(Key::Reservation(_))),
        };
        if !ALLOCATION_SOURCES.into_iter().all(|source| snapshot.has_read(source))
            || snapshot.defects.iter().any(hides)
        {
            return None;
        }
        let indexed = Arc::new(IndexedSnapshot::new(snapshot));
        let unclear = snapshot.defects.iter().filter_map(|defect| match &defect.key {
            Some(Key::Affinity(key)) => Some(key.node.as_str()),
            _ => None,
        });
        let odd = snapshot.blocks.iter().filter_map(|stored| {
            let owner = stored.value.content.usable()?.owner()?.host()?;
            let mut of_owner = indexed.affinities_of(&AffinityType::Host, owner);
            let has_affinity = of_owner.any(|affinity| affinity.value.key.cidr == stored.value.key);
            (!has_affinity).then_some(owner)
        });
        Some(Self {
            config,
            limit: snapshot.block_limit(),
            reserved: Reserved::new(snapshot.reservations.iter().map(|stored| &stored.value)),
            open: Family::BOTH.map(|family| open_pools(snapshot, family)),
            unclear: unclear.collect(),
            odd: odd.collect(),
            remembered: RefCell::default(),
            indexed,
        })
    }

    /// Why no pod that names no pool gets an address on a node, of whatever namespace it is. `Ok(None)` if some pod gets one.
    ///
    /// # Errors
    /// If something that decides it is not known.
    pub fn refusal(&self, node: &Node, family: Family) -> Result<Option<Arc<Refused>>, NotKnown> {
        let Some(open) = &self.open[family as usize] else { return Err(NotKnown) };
        if self.unclear.contains(node.name.as_str()) {
            return Err(NotKnown);
        }
        let selecting = (0..open.len()).filter(|at| open[*at].selector.selects(&node.labels));
        let selecting: Vec<usize> = selecting.collect();
        let is_usable = |at: &usize| open[*at].pool.allows(PoolUse::Workload);
        let usable: Vec<usize> = selecting.iter().copied().filter(is_usable).collect();
        let pools: Vec<&Pool> = usable.iter().map(|at| open[*at].pool).collect();
        let single_block = self.has_single_block(node);
        let own = self.own_blocks(node, family, &pools);
        let held = match own {
            OwnBlocks::Free if !node.is_windows() => return Ok(None),
            OwnBlocks::Unknown => return Err(NotKnown),
            OwnBlocks::Free | OwnBlocks::Odd => return Ok(self.ask(node, family, open, &usable)),
            OwnBlocks::Full(_) if usable.is_empty() => return Ok(self.ask(node, family, open, &usable)),
            OwnBlocks::Full(held) => held,
        };
        let at_limit = held >= self.limit(single_block);
        let held = at_limit.then_some(held);
        let alike = Alike { family, pools: selecting, held, windows: node.is_windows(), single_block };
        if let Some(known) = self.remembered.borrow().get(&alike) {
            return Ok(known.clone());
        }
        let found = self.ask(node, family, open, &usable);
        self.remembered.borrow_mut().insert(alike, found.clone());
        Ok(found)
    }

    /// Answers a request for any address.
    pub fn next(&self, request: &NextAddress<'_>) -> Answer {
        let NextAddress { node, family, pools, namespace_labels } = *request;
        let known = self.indexed.node(node).map(|node| &node.value);
        let named = |of| if family == of { pools.to_vec() } else { Vec::new() };
        let single_block = known.is_some_and(|node| self.has_single_block(node));
        let asked = AutoAssign {
            host: node.to_owned(),
            v4: u32::from(family == Family::V4),
            v6: u32::from(family == Family::V6),
            pools_v4: named(Family::V4),
            pools_v6: named(Family::V6),
            intended_use: Some(PoolUse::Workload),
            max_blocks_per_host: self.most_blocks(single_block),
            namespace_labels: namespace_labels.cloned(),
            windows: known.is_some_and(Node::is_windows),
            ..AutoAssign::default()
        };
        self.run(|allocator, events| {
            let mut result = without_waiting(allocator.auto_assign(&asked));
            let is_given = result.as_ref().is_ok_and(|done| done.addresses().next().is_some());
            if !is_given && allocator.store().has_writes() {
                // It has settled something, such as a stale affinity. Kubelet asks again.
                drop(events());
                result = without_waiting(allocator.auto_assign(&asked));
            }
            Answer::of_any(self, request, single_block, result, events())
        })
    }

    /// Answers a pod that asks for this address.
    pub fn next_named(&self, node: &str, address: IpAddr) -> Answer {
        let windows = self.indexed.node(node).is_some_and(|node| node.value.is_windows());
        let asked =
            AssignIp { intended_use: Some(PoolUse::Workload), windows, ..AssignIp::new(node, address) };
        self.run(|allocator, events| {
            let result = without_waiting(allocator.assign_ip(&asked));
            Answer::of_named(node, address, result, events())
        })
    }

    fn run(
        &self,
        ask: impl FnOnce(&Allocator<&SnapshotStore<'_>>, &dyn Fn() -> Vec<Event>) -> Answer,
    ) -> Answer {
        let store = SnapshotStore::of(Arc::clone(&self.indexed));
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let log = Arc::clone(&events);
        let emit = move |event| log.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        let allocator = Allocator::new(&store).observed_by(Arc::new(emit));
        let allocator = match reclaims_empty_blocks(self.indexed.snapshot) {
            true => allocator,
            false => allocator.without_reclaiming(),
        };
        ask(&allocator, &|| std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Asks for the namespaces that all pools serve, then for those that only some do.
    fn ask(
        &self,
        node: &Node,
        family: Family,
        open: &[OpenPool<'_>],
        usable: &[usize],
    ) -> Option<Arc<Refused>> {
        let refusal = |pools: &[IpNet]| {
            let request = NextAddress { node: &node.name, family, pools, namespace_labels: None };
            self.next(&request).outcome.err().map(Arc::new)
        };
        let mut refused = refusal(&[])?;
        let (special, general): (Vec<&Pool>, Vec<&Pool>) = {
            let (special, general): (Vec<_>, Vec<_>) =
                usable.iter().map(|at| &open[*at]).partition(|open| open.is_special);
            (special.iter().map(|open| open.pool).collect(), general.iter().map(|open| open.pool).collect())
        };
        for pool in special {
            let pools: Vec<IpNet> = general.iter().copied().chain([pool]).map(|pool| pool.cidr).collect();
            let of_some = refusal(&pools)?;
            if general.is_empty() {
                refused = of_some;
            }
        }
        Some(refused)
    }

    fn own_blocks(&self, node: &Node, family: Family, pools: &[&Pool]) -> OwnBlocks {
        let (now, cooldown) = (self.indexed.snapshot.taken_at, self.config.cooldown());
        let (mut is_odd, mut is_unknown) = (self.odd.contains(node.name.as_str()), false);
        let mut held = 0;
        for stored in self.indexed.affinities_of(&AffinityType::Host, &node.name) {
            let (key, affinity) = (&stored.value.key, &stored.value);
            if affinity.deleted || Family::of(key.cidr) != family {
                continue;
            }
            if !pools.iter().any(|pool| pool.cidr.contains(&key.cidr.network())) {
                continue;
            }
            held += 1;
            let block = self.indexed.block(key.cidr).map(|block| &block.value.content);
            let is_settled = affinity.state == AffinityState::Confirmed && !affinity.is_unstated;
            match block {
                Some(BlockContent::Corrupt(_)) => is_unknown = true,
                None if self.indexed.hides_block(key.cidr) => is_unknown = true,
                Some(BlockContent::Sound(block))
                    if is_settled && !block.is_deleted() && block.owner() == Some(&key.owner()) =>
                {
                    if self.reserved.leaves_free(block, now, cooldown) > 0 {
                        return OwnBlocks::Free;
                    }
                }
                _ => is_odd = true,
            }
        }
        match (is_unknown, is_odd) {
            (true, _) => OwnBlocks::Unknown,
            (_, true) => OwnBlocks::Odd,
            _ => OwnBlocks::Full(held),
        }
    }

    /// Blocks of a Windows node: one, as the plugin is installed there (`windows_use_single_network`). A node that holds
    /// several shows that it is not.
    fn has_single_block(&self, node: &Node) -> bool {
        let held = self.indexed.affinities_of(&AffinityType::Host, &node.name);
        node.is_windows() && held.filter(|affinity| !affinity.value.deleted).take(2).count() < 2
    }

    /// Most blocks of a family that a node may hold.
    pub fn block_limit(&self, node: &Node) -> u32 {
        self.limit(self.has_single_block(node))
    }

    fn limit(&self, single_block: bool) -> u32 {
        match (single_block, self.limit) {
            (true, _) => 1,
            (false, limit) => limit.unwrap_or(u32::MAX),
        }
    }

    /// The limit that a request states: 0 for the configured one.
    fn most_blocks(&self, single_block: bool) -> u32 {
        match (single_block, self.limit) {
            (true, _) => 1,
            (false, None) => u32::MAX,
            (false, Some(_)) => 0,
        }
    }

    /// The CIDR of a pool that a pod names, be it by its CIDR.
    pub fn pool_cidr(&self, name: &str) -> Option<IpNet> {
        let by_name = self.pools().find(|pool| pool.name == name).map(|pool| pool.cidr);
        by_name.or_else(|| cidr::parse_cidr(name))
    }

    fn pools(&self) -> impl Iterator<Item = &'s Pool> {
        self.indexed.snapshot.pools.iter().map(|stored| &stored.value)
    }

    /// The addresses of some pools that cool down, and would be free otherwise.
    fn cooling_in(&self, pools: &[Pool]) -> Option<Cooling> {
        let snapshot = self.indexed.snapshot;
        let within =
            snapshot.blocks.iter().filter(|stored| pool_of(pools, stored.value.key.addr()).is_some());
        Cooling::of(
            within.filter_map(|stored| stored.value.content.usable()),
            snapshot.taken_at,
            &self.config,
        )
    }
}

/// Something that decides a question was not read or cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKnown;

/// The enabled pools of a family that serve requests which name none.
fn open_pools(snapshot: &Snapshot, family: Family) -> Option<Vec<OpenPool<'_>>> {
    let pools = snapshot.pools.iter().map(|stored| &stored.value);
    let of_family = pools.filter(|pool| Family::of(pool.cidr) == family);
    let open = of_family.filter(|pool| PoolPassedOver::of_state(pool).is_none() && pool.automatic);
    let of_none = BTreeMap::new();
    let open = open.map(|pool| {
        let selector = NodeSelector::of(pool).ok()?;
        let is_special = !Selector::parse(&pool.namespace_selector).ok()?.matches(&of_none);
        Some(OpenPool { pool, selector, is_special })
    });
    open.collect()
}
