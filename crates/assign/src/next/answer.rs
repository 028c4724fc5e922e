//! The answer to a request: an address, or the reason why there is none.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{BlockOwner, Cooling};
use calipam_model::pool::{Pool, PoolUse};

use super::{NextAddress, Outlook};
use crate::error::{Error, Partly, Result};
use crate::event::{Event, PoolPassedOver};
use crate::family::Family;
use crate::request::{AutoAssigned, Message};

/// The answer to a request, with the decisions that led to it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub outcome: Result<Given, Refused>,
    /// The allocator's decisions, in order.
    pub events: Vec<Event>,
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

/// The reason why a request gets no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// There is no such node.
    #[error("Calico does not know the node")]
    NoNode,
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
    /// A pool that was named does not exist or is not enabled.
    #[error("the pool {0} does not exist or is not enabled")]
    NamedNotEnabled(IpNet),
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
    /// No address in the pools is free.
    #[error("no address in its pools is free{}", .0.map(|cooling| format!("; {cooling}")).unwrap_or_default())]
    Exhausted(Option<Cooling>),
    /// Windows nodes need strict affinity.
    #[error("Windows nodes need strict affinity, but it is off")]
    WindowsNeedsStrictAffinity,
    /// The requested address is taken or in cooldown.
    #[error("{0} is taken")]
    Taken(IpAddr),
    /// The requested address is in no enabled pool.
    #[error("{0} is in no enabled pool")]
    OutsidePools(IpAddr),
    /// The requested address is in a block that the node does not own, and affinity is strict.
    #[error("strict affinity is on, and the node does not own block {0}")]
    ForeignBlock(IpNet),
    /// Another reason; see Calico's message.
    #[error("the allocator failed")]
    Other,
}

impl Reason {
    /// The reason's name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoNode => "no-node",
            Self::NoPool => "no-pool",
            Self::NoneEnabled => "no-pool-enabled",
            Self::BlocksTooSmall => "blocks-too-small",
            Self::NoneAutomatic => "no-pool-automatic",
            Self::NoneSelectsNode => "no-pool-selects-node",
            Self::NoneSelectsNamespace => "no-pool-selects-namespace",
            Self::NoneForWorkloads => "no-pool-for-workloads",
            Self::NamedNotEnabled(_) => "named-pool-not-enabled",
            Self::BrokenSelector(_) => "broken-selector",
            Self::BlockLimit { .. } => "block-limit",
            Self::SingleBlock => "single-block",
            Self::NoAutoAllocation => "no-auto-allocation",
            Self::StrictAffinity => "strict-affinity",
            Self::Exhausted(_) => "exhausted",
            Self::WindowsNeedsStrictAffinity => "windows-needs-strict-affinity",
            Self::Taken(_) => "address-taken",
            Self::OutsidePools(_) => "address-outside-pools",
            Self::ForeignBlock(_) => "foreign-block",
            Self::Other => "other",
        }
    }
}

impl Answer {
    pub(super) fn of_any(
        outlook: &Outlook<'_>,
        request: &NextAddress<'_>,
        single_block: bool,
        result: Result<AutoAssigned, Box<Partly<AutoAssigned>>>,
        events: Vec<Event>,
    ) -> Self {
        if let Some(given) = given(request.node, &events) {
            return Self { outcome: Ok(given), events };
        }
        let (reason, calico) = match result {
            Err(partly) => {
                let calico = partly.error.to_string();
                (reason_of_error(outlook, request, single_block, &partly.error, &events), calico)
            }
            Ok(done) => {
                let assigned = done.v4.or(done.v6);
                let shortage = assigned.as_ref().and_then(|assigned| assigned.shortage());
                let family = request.family;
                let calico = shortage
                    .map(|shortage| format!("failed to request {family} addresses: {shortage}"))
                    .unwrap_or_default();
                let messages = assigned.map(|assigned| assigned.messages).unwrap_or_default();
                (reason_of_shortage(outlook, &messages, &events), calico)
            }
        };
        Self { outcome: Err(refused(reason, calico, &events)), events }
    }

    pub(super) fn of_named(node: &str, address: IpAddr, result: Result<()>, events: Vec<Event>) -> Self {
        let outcome = match (result, given(node, &events)) {
            (Ok(()), Some(given)) => Ok(given),
            (result, _) => {
                let error = result.err();
                let reason = match &error {
                    Some(Error::AlreadyAssigned(_)) => Reason::Taken(address),
                    Some(Error::AddressOutsidePools(_)) => Reason::OutsidePools(address),
                    Some(Error::UseNotAllowed { .. }) => Reason::NoneForWorkloads,
                    Some(Error::ForeignBlock(block) | Error::OwnerlessBlock(block)) => {
                        Reason::ForeignBlock(*block)
                    }
                    Some(Error::WindowsNeedsStrictAffinity) => Reason::WindowsNeedsStrictAffinity,
                    _ => Reason::Other,
                };
                let calico = error.map(|error| error.to_string().trim().to_owned()).unwrap_or_default();
                Err(refused(reason, calico, &events))
            }
        };
        Self { outcome, events }
    }
}

fn given(node: &str, events: &[Event]) -> Option<Given> {
    let (block, owner, address) = events.iter().find_map(|event| match event {
        Event::Assigned { block, owner, addresses } => Some((*block, owner, *addresses.first()?)),
        _ => None,
    })?;
    let is_of_block = |event: &&Event| match event {
        Event::Claimed(key) | Event::Reclaimed(key) => key.cidr == block,
        Event::NoBlockOfAddress { block: found, .. } => *found == block,
        _ => false,
    };
    let source = match events.iter().find(is_of_block) {
        Some(Event::Reclaimed(_)) => AddressSource::Reclaimed,
        Some(_) => AddressSource::NewBlock,
        None if matches!(owner, Some(BlockOwner::Host(host)) if host == node) => AddressSource::OwnBlock,
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
        Error::PoolNotEnabled(cidr) => Reason::NamedNotEnabled(*cidr),
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

fn reason_of_shortage(outlook: &Outlook<'_>, messages: &[Message], events: &[Event]) -> Reason {
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
    let serves = |pool: &&Pool| {
        events.iter().any(|event| matches!(event, Event::PoolServes { cidr, .. } if *cidr == pool.cidr))
    };
    let pools: Vec<Pool> = outlook.pools().filter(serves).cloned().collect();
    Reason::Exhausted(outlook.cooling_in(&pools))
}
