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
mod pool_room;
mod reason;
mod refusals;
mod request;
mod room;
mod service;
#[cfg(test)]
mod tests;
mod tunnel;
#[cfg(test)]
mod tunnel_tests;
#[cfg(test)]
mod version_tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use calipam_model::affinity::{Affinity, AffinityKey, AffinityType};
use calipam_model::block::Cooling;
use calipam_model::cidr_set::CidrSet;
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::parallel::lock;
use calipam_model::plugin::Plugin;
use calipam_model::pod::Namespace;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::{ALLOCATION_SOURCES, DefectKind, Snapshot, StoredBlock, Versioned};
use calipam_model::{CniConfiguration, IpNet};

pub use self::add::cluster_refusal;
pub use self::allocatable::{Allocatable, PoolLimit};
pub use self::answer::{AddressSource, Answer, Given, Refused};
use self::claims::BlockLimit;
use self::open_pool::{OpenPool, open_pools};
pub use self::reason::Reason;
use self::refusals::RefusalKey;
pub use self::request::{PodAdd, Wanted};
pub use self::room::{NodeNeed, NodeRoom};
pub use self::service::{NotAsked, ServiceAnswer, ServiceCall, ServiceFamily, ServiceOutcome};
pub use self::tunnel::{TunnelAnswer, TunnelLack, TunnelPools, TunnelStep};
use crate::allocator::Allocator;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{IndexedSnapshot, SnapshotStore, without_waiting};
use crate::pools::pool_of;
use crate::release::Release;
use crate::request::{AssignIp, AutoAssign, AutoAssigned};

/// The first version of Calico that takes empty blocks from other nodes.
const RECLAIMS_SINCE: (u32, u32) = (3, 32);

/// The first version of Calico that survives an entry of a reservation that is no CIDR.
const SURVIVES_RESERVATIONS_SINCE: (u32, u32) = (3, 34);

/// The first version of Calico that refuses a given address in a pool that is not for workloads.
const CHECKS_USE_SINCE: (u32, u32) = (3, 34);

/// Returns the name of the reservation at which the cluster's Calico dies; `None` if it survives all. An unknown Calico
/// version counts as current.
fn fatal_reservation(snapshot: &Snapshot) -> Option<String> {
    let survives = snapshot.is_calico_since(SURVIVES_RESERVATIONS_SINCE);
    if survives.unwrap_or(true) {
        return None;
    }
    for defect in &snapshot.defects {
        if let (Some(Key::Reservation(name)), DefectKind::Fields(_)) = (&defect.key, &defect.kind) {
            return Some(name.to_string());
        }
    }
    None
}

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
    /// Creates the request of a pod that runs no virtual machine. The labels of its namespace are unknown.
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
        let mut request = AutoAssign {
            host: self.node.to_owned(),
            intended_use: Some(intended_use),
            ..AutoAssign::default()
        };
        match self.family {
            Family::V4 => {
                request.v4 = 1;
                request.pools_v4 = self.pools.to_vec();
            }
            Family::V6 => {
                request.v6 = 1;
                request.pools_v6 = self.pools.to_vec();
            }
        }
        request
    }
}

/// The allocator's request for an address.
struct PreparedRequest {
    request: AutoAssign,
    limit: BlockLimit,
}

type ByHolder<'s, T> = HashMap<(&'s AffinityType, &'s str), Vec<T>>;

/// The allocator's answers to requests from the nodes in a snapshot.
pub struct Outlook<'s> {
    indexed: Arc<IndexedSnapshot<'s>>,
    /// The stored configuration, or Calico's default.
    config: IpamConfig,
    /// True if the configuration cannot be decoded, so that Calico refuses every request.
    is_config_broken: bool,
    fatal_reservation: Option<String>,
    /// The block limit of a node in a family; `None` for no limit.
    configured_limit: Option<u32>,
    /// True if each node holds one block only: `windows_use_single_network` of the nodes' CNI configuration, if it is
    /// known.
    uses_single_block: Option<bool>,
    reserved: CidrSet,
    /// The open pools, by family. `None` if a selector does not parse, since Calico then refuses every request that
    /// names no pool.
    open_pools: [Option<Vec<OpenPool<'s>>>; 2],
    /// Affinities that cannot be decoded, by type and holder.
    undecodable_affinities: ByHolder<'s, &'s AffinityKey>,
    /// Blocks whose owner has no affinity for them, by owner.
    blocks_lacking_affinity: ByHolder<'s, IpNet>,
    /// The refusals so far, for nodes that share an answer; `None` for a request that gets an address.
    known_refusals: RefCell<HashMap<RefusalKey, Option<Arc<Refused>>>>,
}

impl<'s> Outlook<'s> {
    /// Indexes a snapshot. Returns `None` if data that the allocator needs was not read. Like Calico, skips pools and
    /// reservations that cannot be decoded. [`Self::configured`] adds the CNI configuration.
    pub fn new(snapshot: &'s Snapshot) -> Option<Self> {
        let mut needed_sources = ALLOCATION_SOURCES.into_iter();
        if !needed_sources.all(|source| snapshot.has_read(source)) {
            return None;
        }

        let indexed = Arc::new(IndexedSnapshot::new(snapshot));
        let undecodable_affinities = undecodable_affinities(snapshot);
        let blocks_lacking_affinity = blocks_without_affinity(snapshot, &undecodable_affinities);
        let config = snapshot.effective_ipam_config();
        Some(Self {
            indexed,
            is_config_broken: config.is_none(),
            config: config.unwrap_or_default(),
            fatal_reservation: fatal_reservation(snapshot),
            configured_limit: snapshot.block_limit(),
            uses_single_block: None,
            reserved: CidrSet::new(snapshot.reserved_cidrs()),
            open_pools: Family::BOTH.map(|family| open_pools(snapshot, family)),
            undecodable_affinities,
            blocks_lacking_affinity,
            known_refusals: RefCell::default(),
        })
    }

    /// Takes what the CNI configuration of the nodes says about blocks.
    pub fn configured(self, configuration: &CniConfiguration) -> Self {
        Self {
            uses_single_block: configuration.single_block,
            ..self
        }
    }

    /// Answers a request for any address.
    pub fn next(&self, request: &NextAddress<'_>) -> Answer {
        let prepared = self.pod_request(request);
        self.run(self.plugin_on(request.node), |allocator, events| {
            in_two_attempts(allocator, || {
                let result = without_waiting(allocator.auto_assign(&prepared.request));
                Answer::for_any_address(self, request, prepared.limit, result, events()).passed_on()
            })
        })
    }

    /// Answers a request for any address after one that got an address, which was released again: the plugin failed later,
    /// and the kubelet deletes the sandbox before it tries again. A released address is assigned last.
    pub(super) fn next_after_release(&self, request: &NextAddress<'_>) -> Answer {
        let prepared = self.pod_request(request);
        self.run(self.plugin_on(request.node), |allocator, events| {
            let first = without_waiting(allocator.auto_assign(&prepared.request));
            let assigned: Vec<Release> = first
                .iter()
                .flat_map(AutoAssigned::addresses)
                .map(Release::any)
                .collect();
            // A block that cannot be changed keeps the address.
            let _ = without_waiting(allocator.release_ips(&assigned));
            drop(events());

            let second = without_waiting(allocator.auto_assign(&prepared.request));
            Answer::for_any_address(self, request, prepared.limit, second, events()).passed_on()
        })
    }

    /// Prepares the request for an address of a pod.
    fn pod_request(&self, request: &NextAddress<'_>) -> PreparedRequest {
        let mut prepared = self.node_request(request, PoolUse::Workload);
        prepared.request.handle = request.machine.map(str::to_owned);
        prepared.request.max_per_handle = max_per_handle(request.machine);
        prepared.request.namespace_labels = request.namespace_labels.cloned();
        prepared
    }

    /// Prepares the request for an address that a node uses itself or gives to a pod.
    fn node_request(&self, request: &NextAddress<'_>, intended_use: PoolUse) -> PreparedRequest {
        let node = self.indexed.node(request.node).map(|node| &node.value);
        let limit = match node {
            Some(node) => self.limit_of_node(node, request.family),
            None => BlockLimit::Configured,
        };

        let mut prepared = request.for_use(intended_use);
        prepared.max_blocks_per_host = self.max_blocks_per_host(limit);
        prepared.windows = node.is_some_and(Node::is_windows);
        PreparedRequest {
            request: prepared,
            limit,
        }
    }

    /// Answers a request for a given address. `held` are the addresses of the pod's endpoint, which Calico's main plugin
    /// releases before it asks for given ones.
    pub fn next_named(&self, node: &str, address: IpAddr, machine: Option<&str>, held: &[IpAddr]) -> Answer {
        let windows = self
            .indexed
            .node(node)
            .is_some_and(|node| node.value.is_windows());
        let mut request = AssignIp {
            handle: machine.map(str::to_owned),
            max_per_handle: max_per_handle(machine),
            windows,
            ..AssignIp::new(node, address)
        };
        // An unknown version counts as current.
        let calico_checks_use = self.indexed.snapshot.is_calico_since(CHECKS_USE_SINCE);
        if self.plugin_on(node) == Plugin::Calipam || calico_checks_use.unwrap_or(true) {
            request.intended_use = Some(PoolUse::Workload);
        }

        let releases: Vec<Release> = held.iter().copied().map(Release::any).collect();
        self.run(self.plugin_on(node), |allocator, events| {
            if !releases.is_empty()
                && let Err(partly) = without_waiting(allocator.release_ips(&releases))
            {
                let calico_message =
                    format!("failed to release ipAddrs: {}", self.calico_text(&partly.error));
                return Answer::refused(Refused::new(Reason::Other, calico_message));
            }
            in_two_attempts(allocator, || {
                let result = without_waiting(allocator.assign_ip(&request));
                Answer::for_named_address(self, node, address, result, events())
            })
        })
    }

    /// The plugin that an installer has noted on a node.
    fn plugin_on(&self, node: &str) -> Plugin {
        let node = self.indexed.node(node).map(|node| &node.value);
        Plugin::installed(node.and_then(|node| node.plugin.as_deref()))
    }

    /// Runs a request of a plugin on a store of its own. `ask` gets the allocator, and a function that takes the events
    /// so far.
    fn run<T>(
        &self,
        plugin: Plugin,
        ask: impl FnOnce(&Allocator<&SnapshotStore<'_>>, &dyn Fn() -> Vec<Event>) -> T,
    ) -> T {
        let store = self.store(plugin);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let log = Arc::clone(&events);
        let emit = move |event| lock(&log).push(event);
        let allocator = self.allocator(plugin, &store).observed_by(Arc::new(emit));
        ask(&allocator, &|| std::mem::take(&mut *lock(&events)))
    }

    /// The datastore as a plugin sees it.
    fn store(&self, plugin: Plugin) -> SnapshotStore<'s> {
        let store = SnapshotStore::with_index(Arc::clone(&self.indexed));
        match plugin {
            Plugin::Calico => store.like_calico(),
            Plugin::Calipam => store,
        }
    }

    /// An allocator that does what the plugin's does, in the cluster's version of Calico.
    fn allocator<'a>(
        &self,
        plugin: Plugin,
        store: &'a SnapshotStore<'s>,
    ) -> Allocator<&'a SnapshotStore<'s>> {
        let mut allocator = Allocator::new(store);
        if plugin == Plugin::Calico {
            allocator = allocator.like_calico().dying_at(self.fatal_reservation.clone());
        }
        if reclaims_empty_blocks(self.indexed.snapshot) {
            allocator
        } else {
            allocator.without_reclaiming()
        }
    }

    /// Returns the answer for the next pod on a node, in the namespace that is served best. If a pod in a namespace
    /// without labels gets no address, also tries each pool that serves only namespaces with certain labels.
    pub fn next_of_any(&self, node: &Node, family: Family) -> Answer {
        let ask = |pools: &[IpNet]| self.next(&NextAddress::new(&node.name, family, pools));
        let mut answer = ask(&[]);
        if answer.outcome.is_ok() {
            return answer;
        }
        let Some(open_pools) = &self.open_pools[family as usize] else {
            return answer;
        };

        let mut needing_labels = Vec::new();
        let mut for_all_namespaces = Vec::new();
        for open in open_pools {
            if !open.is_usable() || !open.nodes.matches(&node.labels) {
                continue;
            }
            if open.needs_labels {
                needing_labels.push(open.pool.cidr);
            } else {
                for_all_namespaces.push(open.pool.cidr);
            }
        }

        for pool in needing_labels {
            // A namespace with these labels is served by the other pools, too.
            let mut pools = for_all_namespaces.clone();
            pools.push(pool);
            let answer_with_labels = ask(&pools);
            if answer_with_labels.outcome.is_ok() {
                return answer_with_labels;
            }
            // Without labels, no pool serves the pod at all. The refusal of a pool that serves it says more.
            if for_all_namespaces.is_empty() {
                answer = answer_with_labels;
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

    /// True if the cluster's Calico finds an affinity when it lists a holder's affinities.
    fn is_listed(&self, affinity: &Versioned<Affinity>) -> bool {
        !self.indexed.lists_by_label() || affinity.wrong_labels().is_empty()
    }

    fn pools(&self) -> impl Iterator<Item = &'s Pool> {
        self.indexed.snapshot.pools.iter().map(|stored| &stored.value)
    }

    /// The addresses in `pools` that are in cooldown: they were released, but are not free yet. `None` if there are none.
    fn cooling_in(&self, pools: &[Pool]) -> Option<Cooling> {
        let snapshot = self.indexed.snapshot;
        let mut blocks_in_pools = Vec::new();
        for stored in &snapshot.blocks {
            let StoredBlock { key: cidr, content } = &stored.value;
            if pool_of(pools, cidr.addr()).is_some() {
                blocks_in_pools.extend(content.usable());
            }
        }
        Cooling::of(blocks_in_pools, snapshot.taken_at, self.config.cooldown())
    }
}

/// Returns the address limit of a pod's handle in each family: 1 for that of a virtual machine, and 0, for no limit, for
/// that of a container.
fn max_per_handle(machine: Option<&str>) -> u32 {
    match machine {
        Some(_) => 1,
        None => 0,
    }
}

/// Returns the affinities that cannot be decoded.
fn undecodable_affinities(snapshot: &Snapshot) -> ByHolder<'_, &AffinityKey> {
    let mut affinities = ByHolder::new();
    for defect in &snapshot.defects {
        if let Some(Key::Affinity(key)) = &defect.key {
            let holder = (&key.kind, key.node.as_str());
            affinities.entry(holder).or_default().push(key);
        }
    }
    affinities
}

/// Returns the blocks whose owner has no affinity for them, in ascending order.
fn blocks_without_affinity<'s>(
    snapshot: &'s Snapshot,
    undecodable: &ByHolder<'s, &'s AffinityKey>,
) -> ByHolder<'s, IpNet> {
    // The type, holder and block of each affinity.
    let mut affinities: HashSet<(&AffinityType, &str, IpNet)> = HashSet::new();
    for stored in &snapshot.affinities {
        let Affinity { key, deleted, .. } = &stored.value;
        if !deleted {
            affinities.insert((&key.kind, &key.node, key.cidr));
        }
    }
    for key in undecodable.values().flatten() {
        affinities.insert((&key.kind, &key.node, key.cidr));
    }

    let mut blocks = ByHolder::<IpNet>::new();
    for stored in &snapshot.blocks {
        let StoredBlock { key: cidr, content } = &stored.value;
        if content.is_deleted() {
            continue;
        }
        // Other owners than nodes and the virtual owner hold no blocks.
        let Some((kind, name)) = content.owner().and_then(claims::key_of_owner) else {
            continue;
        };
        if !affinities.contains(&(kind, name, *cidr)) {
            blocks.entry((kind, name)).or_default().push(*cidr);
        }
    }
    for cidrs in blocks.values_mut() {
        cidrs.sort_unstable();
    }
    blocks
}

/// Answers a request. If the first attempt fails but changes something, such as a stale affinity, tries again, as the
/// kubelet does.
fn in_two_attempts(allocator: &Allocator<&SnapshotStore<'_>>, attempt: impl Fn() -> Answer) -> Answer {
    let first = attempt();
    let Err(refused) = &first.outcome else {
        return first;
    };
    if !allocator.store().has_writes() {
        return first;
    }

    let second = attempt();
    match second.outcome {
        Ok(_) => Answer {
            first: Some(refused.clone()),
            ..second
        },
        Err(_) => first,
    }
}

/// The answer depends on data that was not read or cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKnown;
