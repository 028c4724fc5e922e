//! The address that the next pod on a node gets, or the reason why it gets none. The answers come from the allocator
//! itself, which runs on a snapshot.
//!
//! Asking for many nodes is fast. For a node with a free address in one of its blocks, the allocator usually does not
//! have to run. Nodes whose blocks are all full share one answer if the same pools select them.

mod add;
#[cfg(test)]
mod add_tests;
mod allocatable;
mod answer;
mod claims;
mod machine;
mod open_pool;
mod reason;
mod request;
mod room;
mod service;
#[cfg(test)]
mod tests;
mod tunnel;
#[cfg(test)]
mod tunnel_tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::block::{BlockContent, Cooling};
use calipam_model::cidr_set::CidrSet;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::parallel::lock;
use calipam_model::pod::Namespace;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::{ALLOCATION_SOURCES, Snapshot, StoredBlock, Versioned};

pub use self::allocatable::{Allocatable, PoolLimit};
pub use self::answer::{AddressSource, Answer, Given, Refused};
use self::open_pool::{OpenPool, open_pools};
pub use self::reason::Reason;
pub use self::request::{PodAdd, Wanted};
pub use self::room::{NodeNeed, NodeRoom};
pub use self::service::{NotAsked, ServiceAnswer, ServiceCall, ServiceFamily, ServiceOutcome};
pub use self::tunnel::{TunnelAnswer, TunnelLack, TunnelPools, TunnelStep};
use crate::allocator::Allocator;
use crate::auto::assignable;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{IndexedSnapshot, SnapshotStore, is_labelled, without_waiting};
use crate::pools::pool_of;
use crate::release::Release;
use crate::request::{AssignIp, AutoAssign, AutoAssigned};

/// The first version of Calico that takes empty blocks from other nodes.
const RECLAIMS_SINCE: (u32, u32) = (3, 32);

/// True if a node that finds no block to claim takes an empty one from another node. An unknown Calico version counts
/// as current.
pub(crate) fn reclaims_empty_blocks(snapshot: &Snapshot) -> bool {
    snapshot.is_calico_since(RECLAIMS_SINCE).unwrap_or(true)
}

/// A request for an address of one family.
#[derive(Clone, Copy, Debug)]
pub struct NextAddress<'r> {
    pub node: &'r str,
    pub family: Family,
    /// The CIDRs of the pools that the request names. If empty, all pools that select the node and the namespace serve
    /// the request.
    pub pools: &'r [IpNet],
    /// The labels of the pod's namespace. If they are unknown (`None`), namespace selectors are matched against no
    /// labels.
    pub namespace_labels: Option<&'r BTreeMap<String, String>>,
    /// The handle of the pod's virtual machine, which has at most one address of the family.
    pub machine: Option<&'r str>,
}

impl<'r> NextAddress<'r> {
    /// A request of an ordinary pod in a namespace without labels.
    pub fn new(node: &'r str, family: Family, pools: &'r [IpNet]) -> Self {
        Self {
            node,
            family,
            pools,
            namespace_labels: None,
            machine: None,
        }
    }

    /// The allocator's request for one address of the family from the named pools, for this use.
    fn for_use(&self, intended_use: PoolUse) -> AutoAssign {
        let pools = self.pools.to_vec();
        let asked = AutoAssign {
            host: self.node.to_owned(),
            intended_use: Some(intended_use),
            ..AutoAssign::default()
        };
        match self.family {
            Family::V4 => AutoAssign {
                v4: 1,
                pools_v4: pools,
                ..asked
            },
            Family::V6 => AutoAssign {
                v6: 1,
                pools_v6: pools,
                ..asked
            },
        }
    }
}

/// The data that a node's refusal depends on. Nodes with equal keys get the same answer.
#[derive(PartialEq, Eq, Hash)]
struct RefusalKey {
    family: Family,
    /// The pools that the request names; empty if it names none.
    named: Vec<IpNet>,
    /// The open pools that select the node, by position.
    selecting: Vec<usize>,
    /// The number of blocks that the node holds in these pools, if the node is at its block limit.
    held: Option<u32>,
    windows: bool,
    single_block: bool,
    /// True if the request is of a certain namespace, which the pools in `selecting` select.
    of_namespace: bool,
}

type ByHolder<'s, T> = HashMap<(&'s AffinityType, &'s str), Vec<T>>;

/// The allocator's answers to requests from the nodes in a snapshot.
pub struct Outlook<'s> {
    indexed: Arc<IndexedSnapshot<'s>>,
    config: IpamConfig,
    /// The block limit of a node in a family; `None` for no limit.
    limit: Option<u32>,
    reserved: CidrSet,
    /// The open pools, by family. `None` if a selector does not parse, since Calico then refuses every request that
    /// names no pool.
    open: [Option<Vec<OpenPool<'s>>>; 2],
    /// Affinities that cannot be decoded, by type and holder.
    undecodable_affinities: ByHolder<'s, &'s AffinityKey>,
    /// Blocks whose owner has no affinity for them, by owner.
    without_affinity: ByHolder<'s, IpNet>,
    remembered: RefCell<HashMap<RefusalKey, Option<Arc<Refused>>>>,
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
    /// Indexes a snapshot. Returns `None` if data that the allocator needs was not read, or if the configuration cannot
    /// be decoded. Like Calico, skips pools and reservations that cannot be decoded.
    pub fn new(snapshot: &'s Snapshot) -> Option<Self> {
        let config = snapshot.effective_ipam_config()?;
        if !ALLOCATION_SOURCES
            .into_iter()
            .all(|source| snapshot.has_read(source))
        {
            return None;
        }
        let indexed = Arc::new(IndexedSnapshot::new(snapshot));
        let (mut undecodable_affinities, mut without_affinity): (ByHolder<'_, _>, ByHolder<'_, _>) =
            Default::default();
        for defect in &snapshot.defects {
            if let Some(Key::Affinity(key)) = &defect.key {
                undecodable_affinities
                    .entry((&key.kind, key.node.as_str()))
                    .or_default()
                    .push(key);
            }
        }
        let read = snapshot
            .affinities
            .iter()
            .map(|stored| &stored.value)
            .filter(|stored| !stored.deleted);
        let affinities = read
            .map(|affinity| &affinity.key)
            .chain(undecodable_affinities.values().flatten().copied());
        let claimed: HashSet<(&AffinityType, &str, IpNet)> = affinities
            .map(|key| (&key.kind, key.node.as_str(), key.cidr))
            .collect();
        for StoredBlock { key: cidr, content } in snapshot.blocks.iter().map(|stored| &stored.value) {
            let Some(holder) = content.owner().and_then(claims::key_of) else {
                continue;
            };
            if !content.is_deleted() && !claimed.contains(&(holder.0, holder.1, *cidr)) {
                without_affinity.entry(holder).or_default().push(*cidr);
            }
        }
        without_affinity
            .values_mut()
            .for_each(|blocks: &mut Vec<IpNet>| blocks.sort_unstable());
        Some(Self {
            config,
            limit: snapshot.block_limit(),
            reserved: CidrSet::new(snapshot.reserved_cidrs()),
            open: Family::BOTH.map(|family| open_pools(snapshot, family)),
            undecodable_affinities,
            without_affinity,
            remembered: RefCell::default(),
            indexed,
        })
    }

    /// Returns the reason why a pod on a node gets no address, whatever its namespace; `Ok(None)` if pods in at least
    /// one namespace get one. `named` are the pools that the pod names; if empty, pools serve it that select the node.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub fn refusal(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
    ) -> Result<Option<Arc<Refused>>, NotKnown> {
        self.remembered_refusal(node, family, named, None)
    }

    /// Returns the reason why a pod gets no address. `labels` are those of its namespace; `None` for a pod in whichever
    /// namespace.
    fn remembered_refusal(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
        labels: Option<&BTreeMap<String, String>>,
    ) -> Result<Option<Arc<Refused>>, NotKnown> {
        if self
            .undecodable_affinities
            .contains_key(&(&AffinityType::Host, node.name.as_str()))
        {
            return Err(NotKnown);
        }
        let ask = || self.ask(node, family, named, labels);
        let Some(open) = &self.open[family as usize] else {
            // A selector does not parse. Calico then refuses each request that names no pool.
            return Ok(ask());
        };
        let selects = |open: &OpenPool<'_>| {
            open.nodes.matches(&node.labels) && labels.is_none_or(|labels| open.namespaces.matches(labels))
        };
        let selecting: Vec<usize> = (0..open.len()).filter(|at| selects(&open[*at])).collect();
        let pools = match named {
            [] => {
                let open = selecting.iter().map(|at| &open[*at]);
                open.filter(|open| open.is_usable())
                    .map(|open| open.pool)
                    .collect()
            }
            named => self.usable_named(named),
        };

        let single_block = self.has_single_block(node, family);
        let held = match self.own_blocks(node, family, &pools) {
            OwnBlocks::Free if !node.is_windows() => return Ok(None),
            OwnBlocks::Unknown => return Err(NotKnown),
            OwnBlocks::Free | OwnBlocks::Odd => return Ok(ask()),
            OwnBlocks::Full(_) if pools.is_empty() => return Ok(ask()),
            OwnBlocks::Full(held) => held,
        };
        let held = (held >= self.limit(single_block)).then_some(held);
        let key = RefusalKey {
            family,
            named: named.to_vec(),
            selecting,
            held,
            windows: node.is_windows(),
            single_block,
            of_namespace: labels.is_some(),
        };
        if let Some(known) = self.remembered.borrow().get(&key) {
            return Ok(known.clone());
        }
        let found = ask();
        self.remembered.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// The pools with these CIDRs, if each of them is enabled and allows workloads; otherwise none.
    fn usable_named(&self, named: &[IpNet]) -> Vec<&'s Pool> {
        let usable = |cidr: &IpNet| {
            let pool = self
                .pools()
                .filter(|pool| pool.cidr == *cidr && pool.is_enabled())
                .last()?;
            pool.allows(PoolUse::Workload).then_some(pool)
        };
        named
            .iter()
            .map(usable)
            .collect::<Option<_>>()
            .unwrap_or_default()
    }

    /// Answers a request for any address. If the first attempt fails but changes something, such as a stale affinity,
    /// tries again, as the kubelet does.
    pub fn next(&self, request: &NextAddress<'_>) -> Answer {
        let (asked, single_block) = self.of_pod(request);
        self.run(|allocator, events| {
            let answer = |result| Answer::of_any(self, request, single_block, result, events());
            let first = answer(without_waiting(allocator.auto_assign(&asked)));
            let Err(refused) = &first.outcome else {
                return first;
            };
            if !allocator.store().has_writes() {
                return first;
            }
            let second = answer(without_waiting(allocator.auto_assign(&asked)));
            match second.outcome {
                Ok(_) => Answer {
                    first: Some(refused.clone()),
                    ..second
                },
                Err(_) => first,
            }
        })
    }

    /// Answers a request for any address after one that got an address, which was released again: the plugin failed later,
    /// and the kubelet deletes the sandbox before it tries again. A released address is assigned last.
    pub(super) fn next_after_release(&self, request: &NextAddress<'_>) -> Answer {
        let (asked, single_block) = self.of_pod(request);
        self.run(|allocator, events| {
            let assigned = without_waiting(allocator.auto_assign(&asked));
            let given: Vec<Release> = assigned
                .iter()
                .flat_map(AutoAssigned::addresses)
                .map(Release::any)
                .collect();
            // A block that cannot be changed keeps the address.
            let _ = without_waiting(allocator.release_ips(&given));
            drop(events());
            let result = without_waiting(allocator.auto_assign(&asked));
            Answer::of_any(self, request, single_block, result, events())
        })
    }

    /// The allocator's request for an address of a pod, and true if the node uses a single block.
    fn of_pod(&self, request: &NextAddress<'_>) -> (AutoAssign, bool) {
        let (asked, single_block) = self.of_node(request, PoolUse::Workload);
        let asked = AutoAssign {
            handle: request.machine.map(str::to_owned),
            max_per_handle: u32::from(request.machine.is_some()),
            namespace_labels: request.namespace_labels.cloned(),
            ..asked
        };
        (asked, single_block)
    }

    /// The allocator's request for an address, with what depends on the node, and true if the node uses a single block.
    fn of_node(&self, request: &NextAddress<'_>, intended_use: PoolUse) -> (AutoAssign, bool) {
        let known = self.indexed.node(request.node).map(|node| &node.value);
        let single_block = known.is_some_and(|node| self.has_single_block(node, request.family));
        let asked = AutoAssign {
            max_blocks_per_host: self.most_blocks(single_block),
            windows: known.is_some_and(Node::is_windows),
            ..request.for_use(intended_use)
        };
        (asked, single_block)
    }

    /// Answers a request for a given address. `held` are the addresses of the pod's endpoint, which Calico's main plugin
    /// releases before it asks for given ones.
    pub fn next_named(&self, node: &str, address: IpAddr, machine: Option<&str>, held: &[IpAddr]) -> Answer {
        let windows = self
            .indexed
            .node(node)
            .is_some_and(|node| node.value.is_windows());
        let asked = AssignIp {
            handle: machine.map(str::to_owned),
            max_per_handle: u32::from(machine.is_some()),
            intended_use: Some(PoolUse::Workload),
            windows,
            ..AssignIp::new(node, address)
        };
        let held: Vec<Release> = held.iter().copied().map(Release::any).collect();
        self.run(|allocator, events| {
            if !held.is_empty()
                && let Err(partly) = without_waiting(allocator.release_ips(&held))
            {
                let calico = format!("failed to release ipAddrs: {}", self.calico_text(&partly.error));
                return Answer::refused(Refused::new(Reason::Other, calico));
            }
            let answer = |result| Answer::of_named(self, node, address, result, events());
            let first = answer(without_waiting(allocator.assign_ip(&asked)));
            let Err(refused) = &first.outcome else {
                return first;
            };
            if !allocator.store().has_writes() {
                return first;
            }
            let second = answer(without_waiting(allocator.assign_ip(&asked)));
            match second.outcome {
                Ok(_) => Answer {
                    first: Some(refused.clone()),
                    ..second
                },
                Err(_) => first,
            }
        })
    }

    /// Runs a request on a store of its own. `ask` gets the allocator, and a function that takes the events so far.
    fn run<T>(&self, ask: impl FnOnce(&Allocator<&SnapshotStore<'_>>, &dyn Fn() -> Vec<Event>) -> T) -> T {
        let store = SnapshotStore::of(Arc::clone(&self.indexed)).like_calico();
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let log = Arc::clone(&events);
        let emit = move |event| lock(&log).push(event);
        let allocator = self.allocator(&store).observed_by(Arc::new(emit));
        ask(&allocator, &|| std::mem::take(&mut *lock(&events)))
    }

    /// Runs operations on a store of their own.
    fn on_store<T>(&self, work: impl FnOnce(&Allocator<&SnapshotStore<'_>>) -> T) -> T {
        let store = SnapshotStore::of(Arc::clone(&self.indexed)).like_calico();
        work(&self.allocator(&store))
    }

    /// An allocator that does what Calico's does, in the cluster's version.
    fn allocator<'a>(&self, store: &'a SnapshotStore<'s>) -> Allocator<&'a SnapshotStore<'s>> {
        let allocator = Allocator::new(store).like_calico();
        match reclaims_empty_blocks(self.indexed.snapshot) {
            true => allocator,
            false => allocator.without_reclaiming(),
        }
    }

    fn ask(
        &self,
        node: &Node,
        family: Family,
        named: &[IpNet],
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<Arc<Refused>> {
        let request = NextAddress {
            namespace_labels: labels,
            ..NextAddress::new(&node.name, family, named)
        };
        let answer = match (named, labels) {
            ([], None) => self.next_of_any(node, family),
            _ => self.next(&request),
        };
        answer.outcome.err().map(Arc::new)
    }

    /// Returns the answer for the next pod on a node, in whichever namespace. If a pod in an ordinary namespace gets no
    /// address, also tries the pools that serve only namespaces with certain labels.
    pub fn next_of_any(&self, node: &Node, family: Family) -> Answer {
        let ask = |pools: &[IpNet]| self.next(&NextAddress::new(&node.name, family, pools));
        let mut answer = ask(&[]);
        let Some(open) = self.open[family as usize]
            .as_ref()
            .filter(|_| answer.outcome.is_err())
        else {
            return answer;
        };
        let usable = open
            .iter()
            .filter(|open| open.is_usable() && open.nodes.matches(&node.labels));
        let (special, general): (Vec<_>, Vec<_>) = usable.partition(|open| open.is_special);
        for special in special {
            let pools = general
                .iter()
                .copied()
                .chain([special])
                .map(|open| open.pool.cidr);
            let of_some = ask(&pools.collect::<Vec<_>>());
            if of_some.outcome.is_ok() {
                return of_some;
            }
            if general.is_empty() {
                answer = of_some;
            }
        }
        answer
    }

    /// Returns the answer for a pod in the namespace. The pod is assumed to name neither a pool nor an address.
    ///
    /// # Errors
    /// If the answer depends on the labels of the namespace, and they were not read.
    pub fn next_in(&self, namespace: &str, node: &Node, family: Family) -> Result<Answer, NotKnown> {
        let labels = self.namespace(namespace).map(|namespace| &namespace.labels);
        let request = NextAddress {
            namespace_labels: labels,
            ..NextAddress::new(&node.name, family, &[])
        };
        let answer = self.next(&request);
        let is_known = labels.is_some() || answer.outcome.is_ok();
        if is_known || self.next_of_any(node, family).outcome.is_err() {
            Ok(answer)
        } else {
            Err(NotKnown)
        }
    }

    /// Returns the answer for a pod in the namespace, like [`Self::next_in`]. If it depends on labels that were not read,
    /// returns the answer in whichever namespace.
    pub fn next_in_some(&self, namespace: &str, node: &Node, family: Family) -> Answer {
        let answer = self.next_in(namespace, node, family);
        answer.unwrap_or_else(|NotKnown| self.next_of_any(node, family))
    }

    /// The namespace; `None` if it was not read.
    pub fn namespace(&self, name: &str) -> Option<&'s Namespace> {
        self.indexed.snapshot.namespaces.as_ref()?.get(name)
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
        let mut open = self.open[family as usize].iter().flatten();
        if open.all(|open| open.namespaces.selects_all()) {
            return self.refusal(node, family, &[]);
        }
        if let Some(namespace) = self.namespace(namespace) {
            return self.remembered_refusal(node, family, &[], Some(&namespace.labels));
        }
        match self.refusal(node, family, &[])? {
            Some(refused) => Ok(Some(refused)),
            None => self
                .next_in(namespace, node, family)
                .map(|answer| answer.outcome.err().map(Arc::new)),
        }
    }

    /// True if the cluster's Calico finds an affinity when it lists a holder's affinities.
    fn is_listed(&self, affinity: &Versioned<Affinity>) -> bool {
        !self.indexed.lists_by_label() || is_labelled(affinity)
    }

    fn own_blocks(&self, node: &Node, family: Family, pools: &[&Pool]) -> OwnBlocks {
        let (now, cooldown) = (self.indexed.snapshot.taken_at, self.config.cooldown());
        let (mut is_odd, mut is_unknown) = (
            self.without_affinity
                .contains_key(&(&AffinityType::Host, node.name.as_str())),
            false,
        );
        let mut held = 0;
        for stored in self.indexed.affinities_of(&AffinityType::Host, &node.name) {
            let (key, affinity) = (&stored.value.key, &stored.value);
            if Family::of(key.cidr) != family {
                continue;
            }
            if !pools.iter().any(|pool| pool.cidr.contains(&key.cidr.network())) {
                continue;
            }
            let block = self.indexed.block(key.cidr).map(|block| &block.value.content);
            if affinity.deleted || !self.is_listed(stored) {
                // Calico may find the block when it searches the pools for a new one.
                is_odd |= block.is_some_and(|block| key.is_of(block.owner()));
                continue;
            }
            held += 1;
            let is_confirmed = affinity.state == AffinityState::Confirmed && !affinity.is_unstated;
            match block.map(BlockContent::as_calico_takes) {
                Some(None) => is_unknown = true,
                None if self.indexed.is_undecodable_block(key.cidr) => is_unknown = true,
                Some(Some(block))
                    if is_confirmed && !block.is_deleted() && block.owner() == Some(&key.owner()) =>
                {
                    if assignable(&block.without_cooled(now, cooldown), &self.reserved) > 0 {
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

    fn pools(&self) -> impl Iterator<Item = &'s Pool> {
        self.indexed.snapshot.pools.iter().map(|stored| &stored.value)
    }

    /// The addresses in `pools` that would be free if they were not in cooldown.
    fn cooling_in(&self, pools: &[Pool]) -> Option<Cooling> {
        let snapshot = self.indexed.snapshot;
        let within = snapshot
            .blocks
            .iter()
            .filter(|stored| pool_of(pools, stored.value.key.addr()).is_some());
        Cooling::of(
            within.filter_map(|stored| stored.value.content.usable()),
            snapshot.taken_at,
            self.config.cooldown(),
        )
    }
}

/// The answer depends on data that was not read or cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKnown;
