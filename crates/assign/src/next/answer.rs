//! The answer to a request: an address, or the reason why there is none.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::cidr::resource_name;
use calipam_model::key::Key;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::DatastoreKind;

use super::claims::BlockLimit;
use super::reason::Reason;
use super::{NextAddress, Outlook};
use crate::error::{Error, OUT_OF_MEMORY, Partly, Result};
use crate::event::{Event, PoolPassedOver};
use crate::family::Family;
use crate::request::{AutoAssigned, Message};

/// The message of Calico's main plugin when it looks for a value that is not there.
pub(super) const PANIC: &str =
    "Calico CNI panicked during ADD: runtime error: invalid memory address or nil pointer dereference";

/// The first version of Calico whose message about an object that exists already says why.
const EXPLAINS_CONFLICTS_SINCE: (u32, u32) = (3, 32);

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

impl Refused {
    /// A refusal with Calico's message, which does not depend on pools.
    pub(super) fn new(reason: Reason, calico_message: impl Into<String>) -> Self {
        Self {
            reason,
            calico: calico_message.into(),
            pools: Vec::new(),
            serving: Vec::new(),
        }
    }

    /// True if Calico's program dies instead of refusing the request.
    pub(super) fn is_crash(&self) -> bool {
        self.calico == OUT_OF_MEMORY || self.calico.starts_with("panic: ")
    }
}

impl Answer {
    /// An answer that is the same whatever addresses are free.
    pub(super) fn refused(refused: Refused) -> Self {
        Self {
            outcome: Err(refused),
            events: Vec::new(),
            first: None,
        }
    }

    /// Makes the answer to a request for any address from the allocator's result and events: the address, or the
    /// refusal with its reason and Calico's message.
    pub(super) fn for_any_address(
        outlook: &Outlook<'_>,
        request: &NextAddress<'_>,
        limit: BlockLimit,
        result: Result<AutoAssigned, Box<Partly<AutoAssigned>>>,
        events: Vec<Event>,
    ) -> Self {
        let assigned = result.as_ref().ok().and_then(|done| done.addresses().next());
        let given = given_address(outlook, request.node, &events, assigned);
        let outcome = given.ok_or_else(|| match result {
            Err(partly) => {
                let reason = reason_of_error(outlook, request, limit, &partly.error, &events);
                refusal_with_pools(reason, outlook.calico_text(&partly.error), &events)
            }
            Ok(done) => refused_by_shortage(outlook, request.family, done, &events),
        });
        Self {
            outcome,
            events,
            first: None,
        }
    }

    /// The answer as the main plugin passes it on. If the IPAM plugin dies, its message is the plugin's whole output.
    pub(super) fn passed_on(mut self) -> Self {
        if let Err(refused) = &mut self.outcome
            && refused.is_crash()
        {
            refused.calico = format!("netplugin failed: \"{}…", refused.calico);
        }
        self
    }

    /// Makes the answer to a request for this address from the allocator's result and events.
    pub(super) fn for_named_address(
        outlook: &Outlook<'_>,
        node: &str,
        address: IpAddr,
        result: Result<()>,
        events: Vec<Event>,
    ) -> Self {
        let outcome = match result {
            Ok(()) => given_address(outlook, node, &events, Some(address))
                .ok_or_else(|| Refused::new(Reason::Other, "")),
            Err(error) => {
                let reason = outlook.reason_of_address(address, &error);
                Err(refusal_with_pools(reason, outlook.calico_text(&error), &events))
            }
        };
        Self {
            outcome,
            events,
            first: None,
        }
    }
}

/// Returns the address that a request got, with its block and where it is from; `None` if it got none. `assigned` is
/// the address in the result: the handle of a virtual machine can have it already, without an event.
fn given_address(
    outlook: &Outlook<'_>,
    node: &str,
    events: &[Event],
    assigned: Option<IpAddr>,
) -> Option<Given> {
    let assignment = events.iter().find_map(|event| match event {
        Event::Assigned {
            block,
            owner,
            addresses,
        } => Some((*block, owner, *addresses.first()?)),
        _ => None,
    });
    let Some((block, owner, address)) = assignment else {
        return assigned.map(|address| outlook.given_already(address));
    };

    let is_claim_of_block = |event: &&Event| match event {
        Event::Claimed(key) | Event::Reclaimed(key) => key.cidr == block,
        Event::NoBlockOfAddress { block: found, .. } => *found == block,
        _ => false,
    };
    let source = match events.iter().find(is_claim_of_block) {
        Some(Event::Reclaimed(_)) => AddressSource::Reclaimed,
        Some(_) => AddressSource::NewBlock,
        None if is_named(owner.as_ref(), node) => AddressSource::OwnBlock,
        None => AddressSource::Borrowed,
    };
    Some(Given {
        address,
        block,
        source,
    })
}

/// Returns true if the owner of a block has this name.
fn is_named(owner: Option<&BlockOwner>, name: &str) -> bool {
    match owner {
        Some(BlockOwner::Host(own) | BlockOwner::Virtual(own)) => own == name,
        _ => false,
    }
}

/// Creates the refusal of a request that got no address although the allocator made no error.
fn refused_by_shortage(
    outlook: &Outlook<'_>,
    family: Family,
    done: AutoAssigned,
    events: &[Event],
) -> Refused {
    let Some(assigned) = done.v4.or(done.v6) else {
        return refusal_with_pools(reason_of_shortage(outlook, &[], events), String::new(), events);
    };
    let calico_message = match assigned.shortage() {
        Some(shortage) => format!("failed to request {family} addresses: {shortage}"),
        None => String::new(),
    };
    let reason = reason_of_shortage(outlook, &assigned.messages, events);
    refusal_with_pools(reason, calico_message, events)
}

/// Creates a refusal with the pools that the events name: those that serve the request, and those of the right family
/// that do not, each with the reason.
fn refusal_with_pools(reason: Reason, calico_message: String, events: &[Event]) -> Refused {
    let mut pools = Vec::new();
    let mut serving = Vec::new();
    for event in events {
        match event {
            // That a pool of the other family does not serve the request explains nothing.
            Event::PoolPassedOver {
                why: PoolPassedOver::OtherFamily,
                ..
            } => {}
            Event::PoolPassedOver { pool, why, .. } => pools.push((pool.clone(), why.clone())),
            Event::PoolServes { pool, .. } => serving.push(pool.clone()),
            _ => {}
        }
    }
    Refused {
        reason,
        calico: calico_message,
        pools,
        serving,
    }
}

/// Returns the reason for a refusal by the allocator's error. If the error is about pools, the events tell why they
/// were passed over.
fn reason_of_error(
    outlook: &Outlook<'_>,
    request: &NextAddress<'_>,
    limit: BlockLimit,
    error: &Error,
    events: &[Event],
) -> Reason {
    let passes_over = |is_cause: fn(&PoolPassedOver) -> bool| {
        events
            .iter()
            .any(|event| matches!(event, Event::PoolPassedOver { why, .. } if is_cause(why)))
    };
    match error {
        Error::NoNode(_) => Reason::NoNode,
        Error::NoQualifiedPool => {
            let mut of_family = outlook
                .pools()
                .filter(|pool| Family::of(pool.cidr) == request.family);
            if let Some(reason) = impossible_blocks(events) {
                reason
            } else if passes_over(|why| *why == PoolPassedOver::BlocksTooSmall) {
                Reason::BlocksTooSmall
            } else if of_family.next().is_none() {
                Reason::NoPool
            } else {
                Reason::NoneEnabled
            }
        }
        Error::NoPoolForNode(_) => reason_of_selection(passes_over).unwrap_or(Reason::BlocksTooSmall),
        Error::NoPoolForUse(PoolUse::Workload) => Reason::NoneForWorkloads,
        // The pools that the request names are enabled, but not for services.
        Error::NoPoolForUse(PoolUse::LoadBalancer) if !request.pools.is_empty() => Reason::NoneForServices,
        Error::NoPoolForUse(PoolUse::LoadBalancer) => reason_of_pools_for_services(outlook, events),
        Error::PoolNotEnabled(cidr) => outlook.reason_of_closed(*cidr),
        Error::Selector { pool, .. } => Reason::BrokenSelector(pool.clone()),
        Error::NoRoom { .. } | Error::TooSmallForWindows { .. } => Reason::BlocksTooSmall,
        Error::OutOfMemory { pool, block_size } => Reason::ImpossibleBlocks {
            pool: pool.clone(),
            block_size: *block_size,
        },
        Error::BlockLimit if limit == BlockLimit::SingleBlock => Reason::SingleBlock,
        Error::BlockLimit => {
            let reached = events.iter().find_map(|event| match event {
                Event::BlockLimit { held, limit } => Some((*held, *limit)),
                _ => None,
            });
            let (held, limit) = reached.unwrap_or_default();
            Reason::BlockLimit { held, limit }
        }
        Error::NoAutoAllocation => Reason::NoAutoAllocation,
        Error::Undecodable {
            key: Key::IpamConfig, ..
        } => Reason::BrokenConfiguration,
        Error::MalformedReservation(name) => Reason::MalformedReservation(name.clone()),
        Error::WindowsNeedsStrictAffinity => Reason::WindowsNeedsStrictAffinity,
        _ => Reason::Other,
    }
}

/// Returns the first pool that was passed over because its blocks cannot exist, as a reason; `None` if there is none.
fn impossible_blocks(events: &[Event]) -> Option<Reason> {
    events.iter().find_map(|event| match event {
        Event::PoolPassedOver {
            pool,
            why: PoolPassedOver::ImpossibleBlocks(block_size),
            ..
        } => Some(Reason::ImpossibleBlocks {
            pool: pool.clone(),
            block_size: *block_size,
        }),
        _ => None,
    })
}

/// Returns the reason why no pool for LoadBalancer services serves the request: the one of the pool that came closest
/// to serving it, or that there is no such pool.
fn reason_of_pools_for_services(outlook: &Outlook<'_>, events: &[Event]) -> Reason {
    let is_for_services = |name: &str| {
        outlook
            .pools()
            .any(|pool| pool.name == name && pool.allows(PoolUse::LoadBalancer))
    };
    let mut causes: Vec<&PoolPassedOver> = Vec::new();
    for event in events {
        if let Event::PoolPassedOver { pool, why, .. } = event
            && is_for_services(pool)
        {
            causes.push(why);
        }
    }

    let has = |is_cause: fn(&PoolPassedOver) -> bool| causes.iter().any(|why| is_cause(why));
    if let Some(reason) = reason_of_selection(has) {
        return reason;
    }
    if has(is_closed) {
        Reason::NoneEnabled
    } else {
        Reason::NoneForServices
    }
}

/// Returns the reason by the pool that comes closest to serving a request: it lacks only the namespace, only the node, or
/// is not assigned from automatically. `None` if no pool was passed over for such a cause. `has` says if some pool was
/// passed over for a cause.
fn reason_of_selection(has: impl Fn(fn(&PoolPassedOver) -> bool) -> bool) -> Option<Reason> {
    if has(|why| matches!(why, PoolPassedOver::NamespaceSelector(_))) {
        return Some(Reason::NoneSelectsNamespace);
    }
    if has(|why| matches!(why, PoolPassedOver::NodeSelector(_))) {
        return Some(Reason::NoneSelectsNode);
    }
    if has(|why| *why == PoolPassedOver::Manual) {
        return Some(Reason::NoneAutomatic);
    }
    None
}

/// True for the causes by which a pool serves no request at all.
fn is_closed(why: &PoolPassedOver) -> bool {
    matches!(
        why,
        PoolPassedOver::Disabled | PoolPassedOver::Deleting | PoolPassedOver::NotAllocatable(_)
    )
}

/// Returns the reason why the pools that serve the request have too few addresses: their size, strict affinity, or a
/// block that failed. Otherwise, they are exhausted.
fn reason_of_shortage(outlook: &Outlook<'_>, messages: &[Message], events: &[Event]) -> Reason {
    let serves = |pool: &&Pool| {
        events
            .iter()
            .any(|event| matches!(event, Event::PoolServes { cidr, .. } if *cidr == pool.cidr))
    };
    let serving: Vec<Pool> = outlook.pools().filter(serves).cloned().collect();
    if let Some(first) = serving.first()
        && serving.iter().all(Pool::is_smaller_than_block)
    {
        return Reason::SmallerThanBlock(first.name.clone());
    }

    let is_free_elsewhere = events.iter().any(|event| match event {
        Event::Searched { passed, .. } => passed.in_use + passed.empty > 0,
        _ => false,
    });
    if is_free_elsewhere && messages.contains(&Message::StrictAffinity) {
        return Reason::StrictAffinity;
    }
    if messages.contains(&Message::BlockFailed) {
        return Reason::Other;
    }
    Reason::Exhausted(outlook.cooling_in(&serving))
}

impl Outlook<'_> {
    /// Calico's message for an error of the allocator, as it appears in the kubelet's event.
    pub(super) fn calico_text(&self, error: &Error) -> String {
        let snapshot = self.indexed.snapshot;
        match error {
            // The message names the field and its type in Calico's program, which differ between versions.
            Error::Undecodable {
                key: Key::IpamConfig, ..
            } => match snapshot.datastore {
                DatastoreKind::Kubernetes => "json: cannot unmarshal …".to_owned(),
                _ => format!("failed to parse datastore entry key={}; value=…", Key::IpamConfig),
            },
            Error::AlreadyAssigned(address)
                if snapshot.is_calico_since(EXPLAINS_CONFLICTS_SINCE) == Some(false) =>
            {
                format!("resource already exists: {address}")
            }
            _ if snapshot.datastore != DatastoreKind::Kubernetes => error.to_string().trim().to_owned(),
            Error::NoNode(node) => {
                format!("resource does not exist: Node({node}) with error: nodes \"{node}\" not found")
            }
            Error::NoBlock(cidr) => {
                let name = resource_name(*cidr);
                let group = if snapshot.is_native {
                    "projectcalico.org"
                } else {
                    "crd.projectcalico.org"
                };
                format!(
                    "resource does not exist: IPAMBlock({name}) with error: ipamblocks.{group} \"{name}\" not found"
                )
            }
            _ => error.to_string().trim().to_owned(),
        }
    }

    /// Returns the reason why the allocator accepts no pool with this CIDR, which the request names: there is none, or
    /// it is closed, or no block of its block size is usable.
    fn reason_of_closed(&self, cidr: IpNet) -> Reason {
        let pools_with_cidr: Vec<&Pool> = self.pools().filter(|pool| pool.cidr == cidr).collect();
        let Some(first) = pools_with_cidr.first() else {
            let larger = self.pools().find(|pool| pool.cidr.contains(&cidr));
            return Reason::UnknownCidr {
                cidr,
                within: larger.map(|pool| pool.name.clone()),
            };
        };

        // Of several closed pools with this CIDR, the last one decides.
        for pool in pools_with_cidr.iter().rev() {
            if let Some(why) = PoolPassedOver::of_state(pool) {
                return Reason::NamedClosed {
                    pool: pool.name.clone(),
                    why,
                };
            }
        }

        // The pool is open, so it was passed over because of its block size.
        if first.has_impossible_blocks() {
            return Reason::ImpossibleBlocks {
                pool: first.name.clone(),
                block_size: first.block_size,
            };
        }
        Reason::BlocksTooSmall
    }

    /// Returns the reason why a given address is refused, in terms of the pools, by the allocator's error.
    pub(super) fn reason_of_address(&self, address: IpAddr, error: &Error) -> Reason {
        match error {
            Error::AlreadyAssigned(_) => Reason::Taken(address),
            Error::AddressOutsidePools(_) => {
                for pool in self.pools() {
                    if pool.cidr.contains(&address)
                        && let Some(why) = PoolPassedOver::of_state(pool)
                    {
                        let pool = pool.name.clone();
                        return Reason::InClosedPool { address, pool, why };
                    }
                }
                Reason::OutsidePools(address)
            }
            Error::UseNotAllowed {
                wanted: PoolUse::LoadBalancer,
                ..
            } => Reason::NoneForServices,
            Error::UseNotAllowed { pool, .. } => Reason::NotForWorkloads {
                address,
                pool: pool.clone(),
            },
            Error::ForeignBlock(block) | Error::OwnerlessBlock(block) => Reason::ForeignBlock(*block),
            Error::WindowsNeedsStrictAffinity => Reason::WindowsNeedsStrictAffinity,
            Error::OwnerOutsidePools(_) => Reason::MachineOutsidePools(address),
            Error::Undecodable {
                key: Key::IpamConfig, ..
            } => Reason::BrokenConfiguration,
            _ => Reason::Other,
        }
    }

    /// An address that its user already has.
    pub(super) fn given_already(&self, address: IpAddr) -> Given {
        let block = self
            .indexed
            .block_around(address)
            .unwrap_or_else(|| IpNet::from(address));
        Given {
            address,
            block,
            source: AddressSource::Held,
        }
    }
}
