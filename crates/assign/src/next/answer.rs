//! The answer to a request: an address, or the reason why there is none.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{BlockOwner, Cooling};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::DatastoreKind;

use super::{NextAddress, Outlook};
use crate::error::{Error, Partly, Result};
use crate::event::{Event, PoolPassedOver};
use crate::family::Family;
use crate::request::{AutoAssigned, Message};

/// The answer to a request, with the decisions that led to it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The outcome in the end. If the first attempt fails because Calico has to clean up, the kubelet tries again.
    pub outcome: Result<Given, Refused>,
    /// The allocator's decisions, in order.
    pub events: Vec<Event>,
    /// The refusal of the first attempt, if a second one gets an address.
    pub first: Option<Refused>,
}

/// An address that a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub address: IpAddr,
    pub block: IpNet,
    pub source: AddressSource,
}

/// The kind of block from which an address comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// A block of the node.
    OwnBlock,
    /// A block that the node claims.
    NewBlock,
    /// An empty block that the node takes over from another node.
    Reclaimed,
    /// A block of another node, or one without an owner.
    Borrowed,
    /// The pod's virtual machine already has the address.
    Held,
}

/// A request that gets no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: Reason,
    /// Calico's message, as it appears in the kubelet's event.
    pub calico: String,
    /// The names of the pools that do not serve the request, each with the reason.
    pub pools: Vec<(String, PoolPassedOver)>,
    /// The names of the pools that serve the request.
    pub serving: Vec<String>,
}

/// The reason why a request gets no address. Each cause has a variant of its own, with the object that causes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Calico has no node with this name.
    #[error("Calico does not know the node")]
    NoNode,
    /// The cluster information is missing, which Calico's main plugin reads first.
    #[error("the cluster information is missing")]
    NoClusterInformation,
    /// The datastore is locked: `datastoreReady` is false.
    #[error("the datastore is locked: datastoreReady is false")]
    NotReady,
    /// The cluster information has no `datastoreReady`.
    #[error("the cluster information has no datastoreReady, and Calico's plugin crashes")]
    ReadyNotSet,
    /// There is no pool of the family.
    #[error("there is no pool for this family")]
    NoPool,
    /// Every pool of the family is disabled, being deleted or not allocatable.
    #[error("no pool is enabled")]
    NoneEnabled,
    /// Blocks are so small that every address is reserved for Windows.
    #[error("Windows reserves every address in blocks this small")]
    BlocksTooSmall,
    /// Every pool must be requested by name.
    #[error("every pool is Manual: it must be requested by name")]
    NoneAutomatic,
    /// No automatic pool selects the node.
    #[error("no pool selects the node")]
    NoneSelectsNode,
    /// None of the automatic pools that select the node also selects the namespace.
    #[error("no pool selects the namespace")]
    NoneSelectsNamespace,
    /// No pool that could serve the request allows workloads.
    #[error("no pool is for workloads")]
    NoneForWorkloads,
    /// The pod or its namespace names a pool that does not exist, by name.
    #[error("it asks for the pool {0:?}, which does not exist")]
    UnknownPool(String),
    /// The pod or its namespace names a CIDR that is no pool's.
    #[error("it asks for the pool {cidr}, which does not exist{}", .within.as_ref().map(|pool| format!(" ({pool} contains it, but a pool's whole CIDR must be named)")).unwrap_or_default())]
    UnknownCidr { cidr: IpNet, within: Option<String> },
    /// The pod or its namespace names a pool of the other family in the annotation of this family.
    #[error(
        "it asks for the pool {pool:?} in the annotation for {family}, but the pool is for the other family"
    )]
    OtherFamily { pool: String, family: Family },
    /// A pool that was named serves no request.
    #[error("it asks for the pool {pool}, but {why}")]
    NamedClosed { pool: String, why: PoolPassedOver },
    /// No pool that could serve the request allows LoadBalancer services.
    #[error("no pool is for LoadBalancer services")]
    NoneForServices,
    /// The selector of a pool does not parse.
    #[error("a selector of pool {0} does not parse")]
    BrokenSelector(String),
    /// The node is at its block limit.
    #[error("the block limit of {limit} is reached: the node holds {held}")]
    BlockLimit { held: u32, limit: u32 },
    /// The node runs Windows and uses a single block, which is full.
    #[error("its only block is full, and Windows nodes use a single block")]
    SingleBlock,
    /// Nodes may not claim blocks.
    #[error("automatic block allocation is off")]
    NoAutoAllocation,
    /// Only other holders' blocks have free addresses, and affinity is strict.
    #[error("no block is left to claim, and strict affinity forbids borrowing")]
    StrictAffinity,
    /// Each pool that serves the request is smaller than one of its blocks.
    #[error("the pool {0} is smaller than one of its blocks")]
    SmallerThanBlock(String),
    /// No address in the pools is free.
    #[error("no address in its pools is free{}", .0.map(|cooling| format!("; {cooling}")).unwrap_or_default())]
    Exhausted(Option<Cooling>),
    /// Windows nodes need strict affinity.
    #[error("Windows nodes need strict affinity, but it is off")]
    WindowsNeedsStrictAffinity,
    /// The requested address is taken or in cooldown.
    #[error("{0} is taken")]
    Taken(IpAddr),
    /// The requested address is still recorded for an earlier container of the same pod.
    #[error("{0} is still recorded for an earlier container of the pod")]
    TakenByEarlier(IpAddr),
    /// The requested address is in no pool at all.
    #[error("{0} is in no pool")]
    OutsidePools(IpAddr),
    /// The pool of the requested address serves no request.
    #[error("{address} is in pool {pool}, but {why}")]
    InClosedPool { address: IpAddr, pool: String, why: PoolPassedOver },
    /// The pool of the requested address does not allow workloads.
    #[error("{address} is in pool {pool}, which is not for workloads")]
    NotForWorkloads { address: IpAddr, pool: String },
    /// The requested address is in a block that the node does not own, and affinity is strict.
    #[error("strict affinity is on, and the node does not own block {0}")]
    ForeignBlock(IpNet),
    /// An annotation is not a JSON list of strings.
    #[error("its annotation {0} is not a JSON list of strings")]
    NotJson(&'static str),
    /// An annotation has an entry that the plugin cannot read.
    #[error("its annotation {annotation} has the invalid entry {entry:?}")]
    BadEntry { annotation: &'static str, entry: String },
    /// An annotation with addresses names none.
    #[error("its annotation {0} names no address")]
    NamesNothing(&'static str),
    /// An annotation names two addresses of one family.
    #[error("its annotation {annotation} names more than one {family} address")]
    TwoOfAFamily { annotation: &'static str, family: Family },
    /// The pod has both annotations with addresses.
    #[error("it has both annotations ipAddrs and ipAddrsNoIpam")]
    TwoRequests,
    /// An annotation needs a feature that is off by default, and no running pod shows that it is on.
    #[error(
        "its annotation {annotation} needs the feature {feature}, which is off unless the node's CNI configuration enables it"
    )]
    FeatureOff { annotation: &'static str, feature: &'static str },
    /// The annotation `ipFamilies` asks for no family.
    #[error("its annotation ipFamilies asks for no address")]
    NoFamily,
    /// The pod's VirtualMachineInstance, or the VirtualMachine behind it, does not exist.
    #[error("its virtual machine {0} does not exist")]
    NoMachine(String),
    /// The pod's owner reference names another VirtualMachineInstance than the one that exists.
    #[error("its virtual machine {0} was replaced by another one of that name")]
    MachineReplaced(String),
    /// The pod is the target of a live migration, and virtual machines do not keep their addresses.
    #[error("live migration needs kubeVirtVMAddressPersistence, which is Disabled")]
    MigrationOff,
    /// The pod is the target of a live migration, and its virtual machine has no address.
    #[error("its virtual machine has no address that could move with it")]
    NothingToMigrate,
    /// The virtual machine's address is in no enabled pool.
    #[error("its virtual machine has {0}, which is in no enabled pool")]
    MachineOutsidePools(IpAddr),
    /// The allocator met data that it cannot use.
    #[error("the allocator failed")]
    Other,
}

impl Reason {
    /// The reason's name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoNode => "no-node",
            Self::NoClusterInformation => "no-cluster-information",
            Self::NotReady => "datastore-locked",
            Self::ReadyNotSet => "datastore-ready-not-set",
            Self::NoPool => "no-pool",
            Self::NoneEnabled => "no-pool-enabled",
            Self::BlocksTooSmall => "blocks-too-small",
            Self::NoneAutomatic => "no-pool-automatic",
            Self::NoneSelectsNode => "no-pool-selects-node",
            Self::NoneSelectsNamespace => "no-pool-selects-namespace",
            Self::NoneForWorkloads => "no-pool-for-workloads",
            Self::NoneForServices => "no-pool-for-services",
            Self::UnknownPool(_) | Self::UnknownCidr { .. } => "unknown-pool",
            Self::OtherFamily { .. } => "named-pool-of-other-family",
            Self::NamedClosed { why: PoolPassedOver::Disabled, .. } => "named-pool-disabled",
            Self::NamedClosed { why: PoolPassedOver::Deleting, .. } => "named-pool-terminating",
            Self::NamedClosed { why: PoolPassedOver::NotAllocatable(_), .. } => "named-pool-not-allocatable",
            Self::NamedClosed { .. } => "named-pool-not-enabled",
            Self::BrokenSelector(_) => "broken-selector",
            Self::BlockLimit { .. } => "block-limit",
            Self::SingleBlock => "single-block",
            Self::NoAutoAllocation => "no-auto-allocation",
            Self::StrictAffinity => "strict-affinity",
            Self::SmallerThanBlock(_) => "pool-smaller-than-block",
            Self::Exhausted(_) => "exhausted",
            Self::WindowsNeedsStrictAffinity => "windows-needs-strict-affinity",
            Self::Taken(_) => "address-taken",
            Self::TakenByEarlier(_) => "address-taken-by-earlier-container",
            Self::OutsidePools(_) => "address-outside-pools",
            Self::InClosedPool { .. } => "address-in-closed-pool",
            Self::NotForWorkloads { .. } => "address-not-for-workloads",
            Self::ForeignBlock(_) => "foreign-block",
            Self::NotJson(_) => "annotation-not-json",
            Self::BadEntry { .. } => "annotation-invalid-entry",
            Self::NamesNothing(_) => "annotation-empty",
            Self::TwoOfAFamily { .. } => "annotation-two-of-a-family",
            Self::TwoRequests => "annotations-exclude-each-other",
            Self::FeatureOff { .. } => "feature-not-enabled",
            Self::NoFamily => "no-family",
            Self::NoMachine(_) => "no-virtual-machine",
            Self::MachineReplaced(_) => "virtual-machine-replaced",
            Self::MigrationOff => "migration-without-persistence",
            Self::NothingToMigrate => "nothing-to-migrate",
            Self::MachineOutsidePools(_) => "virtual-machine-outside-pools",
            Self::Other => "other",
        }
    }

    /// True if the pod's or namespace's request is the cause, so that other pods of the node can get addresses.
    pub fn is_of_request(&self) -> bool {
        matches!(
            self,
            Self::UnknownPool(_)
                | Self::UnknownCidr { .. }
                | Self::OtherFamily { .. }
                | Self::NamedClosed { .. }
                | Self::Taken(_)
                | Self::TakenByEarlier(_)
                | Self::OutsidePools(_)
                | Self::InClosedPool { .. }
                | Self::NotForWorkloads { .. }
                | Self::ForeignBlock(_)
                | Self::NotJson(_)
                | Self::BadEntry { .. }
                | Self::NamesNothing(_)
                | Self::TwoOfAFamily { .. }
                | Self::TwoRequests
                | Self::FeatureOff { .. }
                | Self::NoFamily
                | Self::NoMachine(_)
                | Self::MachineReplaced(_)
                | Self::MigrationOff
                | Self::NothingToMigrate
                | Self::MachineOutsidePools(_)
        )
    }
}

impl Refused {
    /// A refusal with Calico's message, which does not depend on pools.
    pub(super) fn new(reason: Reason, calico: impl Into<String>) -> Self {
        Self { reason, calico: calico.into(), pools: Vec::new(), serving: Vec::new() }
    }
}

impl Answer {
    /// An answer that is the same whatever addresses are free.
    pub(super) fn refused(refused: Refused) -> Self {
        Self { outcome: Err(refused), events: Vec::new(), first: None }
    }

    pub(super) fn of_any(
        outlook: &Outlook<'_>,
        request: &NextAddress<'_>,
        single_block: bool,
        result: Result<AutoAssigned, Box<Partly<AutoAssigned>>>,
        events: Vec<Event>,
    ) -> Self {
        let assigned = result.as_ref().ok().and_then(|done| done.addresses().next());
        if let Some(given) = given(outlook, request.node, &events, assigned) {
            return Self { outcome: Ok(given), events, first: None };
        }
        let refused = match result {
            Err(partly) => {
                let reason = reason_of_error(outlook, request, single_block, &partly.error, &events);
                refused(reason, outlook.calico_text(&partly.error), &events)
            }
            Ok(done) => {
                let assigned = done.v4.or(done.v6);
                let shortage = assigned.as_ref().and_then(|assigned| assigned.shortage());
                let family = request.family;
                let calico = shortage
                    .map(|shortage| format!("failed to request {family} addresses: {shortage}"))
                    .unwrap_or_default();
                let messages = assigned.map(|assigned| assigned.messages).unwrap_or_default();
                refused(reason_of_shortage(outlook, &messages, &events), calico, &events)
            }
        };
        Self { outcome: Err(refused), events, first: None }
    }

    pub(super) fn of_named(
        outlook: &Outlook<'_>,
        node: &str,
        address: IpAddr,
        result: Result<()>,
        events: Vec<Event>,
    ) -> Self {
        let outcome = match result {
            Ok(()) => {
                given(outlook, node, &events, Some(address)).ok_or_else(|| Refused::new(Reason::Other, ""))
            }
            Err(error) => {
                let reason = outlook.reason_of_address(address, &error);
                Err(refused(reason, outlook.calico_text(&error), &events))
            }
        };
        Self { outcome, events, first: None }
    }
}

/// Returns the address that a request got. `assigned` is the address in the result: the handle of a virtual machine can
/// have it already.
fn given(outlook: &Outlook<'_>, node: &str, events: &[Event], assigned: Option<IpAddr>) -> Option<Given> {
    let made = events.iter().find_map(|event| match event {
        Event::Assigned { block, owner, addresses } => Some((*block, owner, *addresses.first()?)),
        _ => None,
    });
    let Some((block, owner, address)) = made else {
        return assigned.map(|address| outlook.given_already(address));
    };
    let is_of_block = |event: &&Event| match event {
        Event::Claimed(key) | Event::Reclaimed(key) => key.cidr == block,
        Event::NoBlockOfAddress { block: found, .. } => *found == block,
        _ => false,
    };
    let source = match events.iter().find(is_of_block) {
        Some(Event::Reclaimed(_)) => AddressSource::Reclaimed,
        Some(_) => AddressSource::NewBlock,
        None if matches!(owner, Some(BlockOwner::Host(name) | BlockOwner::Virtual(name)) if name == node) => {
            AddressSource::OwnBlock
        }
        None => AddressSource::Borrowed,
    };
    Some(Given { address, block, source })
}

fn refused(reason: Reason, calico: String, events: &[Event]) -> Refused {
    let passed_over = events.iter().filter_map(|event| match event {
        Event::PoolPassedOver { why: PoolPassedOver::OtherFamily, .. } => None,
        Event::PoolPassedOver { pool, why, .. } => Some((pool.clone(), why.clone())),
        _ => None,
    });
    let serving = events.iter().filter_map(|event| match event {
        Event::PoolServes { pool, .. } => Some(pool.clone()),
        _ => None,
    });
    Refused { reason, calico, pools: passed_over.collect(), serving: serving.collect() }
}

fn reason_of_error(
    outlook: &Outlook<'_>,
    request: &NextAddress<'_>,
    single_block: bool,
    error: &Error,
    events: &[Event],
) -> Reason {
    let is_passed = |wanted: fn(&PoolPassedOver) -> bool| {
        events.iter().any(|event| matches!(event, Event::PoolPassedOver { why, .. } if wanted(why)))
    };
    match error {
        Error::NoNode(_) => Reason::NoNode,
        Error::NoQualifiedPool => {
            let mut of_family = outlook.pools().filter(|pool| Family::of(pool.cidr) == request.family);
            if is_passed(|why| *why == PoolPassedOver::BlocksTooSmall) {
                Reason::BlocksTooSmall
            } else if of_family.next().is_none() {
                Reason::NoPool
            } else {
                Reason::NoneEnabled
            }
        }
        Error::NoPoolForNode(_) => {
            if is_passed(|why| matches!(why, PoolPassedOver::NamespaceSelector(_))) {
                Reason::NoneSelectsNamespace
            } else if is_passed(|why| matches!(why, PoolPassedOver::NodeSelector(_))) {
                Reason::NoneSelectsNode
            } else if is_passed(|why| *why == PoolPassedOver::Manual) {
                Reason::NoneAutomatic
            } else {
                Reason::BlocksTooSmall
            }
        }
        Error::NoPoolForUse(PoolUse::Workload) => Reason::NoneForWorkloads,
        // The pools that the request names are enabled, but not for services.
        Error::NoPoolForUse(PoolUse::LoadBalancer) if !request.pools.is_empty() => Reason::NoneForServices,
        Error::NoPoolForUse(PoolUse::LoadBalancer) => reason_of_pools_for_services(outlook, events),
        Error::PoolNotEnabled(cidr) => outlook.reason_of_closed(*cidr),
        Error::Selector { pool, .. } => Reason::BrokenSelector(pool.clone()),
        Error::NoRoom { .. } => Reason::BlocksTooSmall,
        Error::BlockLimit if single_block => Reason::SingleBlock,
        Error::BlockLimit => {
            let limit = events.iter().find_map(|event| match event {
                Event::BlockLimit { held, limit } => Some((*held, *limit)),
                _ => None,
            });
            let (held, limit) = limit.unwrap_or_default();
            Reason::BlockLimit { held, limit }
        }
        Error::NoAutoAllocation => Reason::NoAutoAllocation,
        Error::WindowsNeedsStrictAffinity => Reason::WindowsNeedsStrictAffinity,
        _ => Reason::Other,
    }
}

/// The reason why none of the pools for LoadBalancer services serves the request, although other pools would.
fn reason_of_pools_for_services(outlook: &Outlook<'_>, events: &[Event]) -> Reason {
    let is_for_services =
        |name: &str| outlook.pools().any(|pool| pool.name == name && pool.allows(PoolUse::LoadBalancer));
    let passed: Vec<&PoolPassedOver> = events
        .iter()
        .filter_map(|event| match event {
            Event::PoolPassedOver { pool, why, .. } if is_for_services(pool) => Some(why),
            _ => None,
        })
        .collect();
    let reason = |why: &PoolPassedOver| match why {
        PoolPassedOver::NamespaceSelector(_) => Some(Reason::NoneSelectsNamespace),
        PoolPassedOver::NodeSelector(_) => Some(Reason::NoneSelectsNode),
        PoolPassedOver::Manual => Some(Reason::NoneAutomatic),
        PoolPassedOver::Disabled | PoolPassedOver::Deleting | PoolPassedOver::NotAllocatable(_) => {
            Some(Reason::NoneEnabled)
        }
        _ => None,
    };
    let mut reasons: Vec<Reason> = passed.into_iter().filter_map(reason).collect();
    let rank = |reason: &Reason| match reason {
        Reason::NoneSelectsNamespace => 0,
        Reason::NoneSelectsNode => 1,
        Reason::NoneAutomatic => 2,
        _ => 3,
    };
    reasons.sort_by_key(rank);
    reasons.into_iter().next().unwrap_or(Reason::NoneForServices)
}

fn reason_of_shortage(outlook: &Outlook<'_>, messages: &[Message], events: &[Event]) -> Reason {
    let serves = |pool: &&Pool| {
        events.iter().any(|event| matches!(event, Event::PoolServes { cidr, .. } if *cidr == pool.cidr))
    };
    let pools: Vec<Pool> = outlook.pools().filter(serves).cloned().collect();
    if let Some(first) = pools.first().filter(|_| pools.iter().all(Pool::is_smaller_than_block)) {
        return Reason::SmallerThanBlock(first.name.clone());
    }
    let is_free_elsewhere = events.iter().any(|event| match event {
        Event::Searched { passed, .. } => passed.in_use + passed.empty > 0,
        _ => false,
    });
    if messages.contains(&Message::StrictAffinity) && is_free_elsewhere {
        return Reason::StrictAffinity;
    }
    if messages.contains(&Message::BlockFailed) {
        return Reason::Other;
    }
    Reason::Exhausted(outlook.cooling_in(&pools))
}

impl Outlook<'_> {
    /// Calico's message for an error of the allocator, as it appears in the kubelet's event.
    pub(super) fn calico_text(&self, error: &Error) -> String {
        let snapshot = self.indexed.snapshot;
        match error {
            _ if snapshot.datastore != DatastoreKind::Kubernetes => error.to_string().trim().to_owned(),
            Error::NoNode(node) => {
                format!("resource does not exist: Node({node}) with error: nodes \"{node}\" not found")
            }
            Error::NoBlock(cidr) => {
                let name = cidr.to_string().replace(['.', ':', '/'], "-");
                let group = if snapshot.is_native { "projectcalico.org" } else { "crd.projectcalico.org" };
                format!(
                    "resource does not exist: IPAMBlock({name}) with error: ipamblocks.{group} \"{name}\" not found"
                )
            }
            _ => error.to_string().trim().to_owned(),
        }
    }

    /// The reason why no enabled pool has this CIDR.
    fn reason_of_closed(&self, cidr: IpNet) -> Reason {
        let closed = self.pools().filter(|pool| pool.cidr == cidr);
        let closed =
            closed.filter_map(|pool| Some((pool.name.clone(), PoolPassedOver::of_state(pool)?))).last();
        match closed {
            Some((pool, why)) => Reason::NamedClosed { pool, why },
            None if self.pools().any(|pool| pool.cidr == cidr) => Reason::BlocksTooSmall,
            None => {
                let within =
                    self.pools().find(|pool| pool.cidr.contains(&cidr)).map(|pool| pool.name.clone());
                Reason::UnknownCidr { cidr, within }
            }
        }
    }

    /// The reason why a given address is refused.
    pub(super) fn reason_of_address(&self, address: IpAddr, error: &Error) -> Reason {
        match error {
            Error::AlreadyAssigned(_) => Reason::Taken(address),
            Error::AddressOutsidePools(_) => {
                let mut around = self.pools().filter(|pool| pool.cidr.contains(&address));
                let closed =
                    around.find_map(|pool| Some((pool.name.clone(), PoolPassedOver::of_state(pool)?)));
                closed.map_or(Reason::OutsidePools(address), |(pool, why)| Reason::InClosedPool {
                    address,
                    pool,
                    why,
                })
            }
            Error::UseNotAllowed { wanted: PoolUse::LoadBalancer, .. } => Reason::NoneForServices,
            Error::UseNotAllowed { pool, .. } => Reason::NotForWorkloads { address, pool: pool.clone() },
            Error::ForeignBlock(block) | Error::OwnerlessBlock(block) => Reason::ForeignBlock(*block),
            Error::WindowsNeedsStrictAffinity => Reason::WindowsNeedsStrictAffinity,
            Error::OwnerOutsidePools(_) => Reason::MachineOutsidePools(address),
            _ => Reason::Other,
        }
    }

    /// An address that its user already has.
    pub(super) fn given_already(&self, address: IpAddr) -> Given {
        let block = self.indexed.block_around(address).unwrap_or_else(|| IpNet::from(address));
        Given { address, block, source: AddressSource::Held }
    }
}
