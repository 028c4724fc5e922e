//! A node's tunnel addresses, as calico-node assigns and releases them when it starts, and whenever a pool or its own
//! node changes (`node/pkg/allocateip`).

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::plugin::Plugin;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::snapshot::Snapshot;

use super::answer::{Answer, Given, Refused};
use super::claims::BlockLimit;
use super::reason::Reason;
use super::{NextAddress, Outlook};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{SnapshotStore, without_waiting};
use crate::release::Release;
use crate::request::{AssignIp, AutoAssign};

/// The order in which calico-node looks after the kinds of tunnels.
const ORDER: [TunnelKind; 5] = [
    TunnelKind::Wireguard,
    TunnelKind::WireguardV6,
    TunnelKind::Ipip,
    TunnelKind::Vxlan,
    TunnelKind::VxlanV6,
];

/// The pools that offer tunnel addresses.
pub struct TunnelPools<'s> {
    pools: Vec<(&'s Pool, Selector)>,
    /// The kinds of which some node has an address.
    used_kinds: HashSet<TunnelKind>,
}

impl<'s> TunnelPools<'s> {
    /// Collects from a snapshot the pools that allow tunnels and are neither disabled nor being deleted. Like
    /// calico-node, ignores the assignment mode and the pool's status, and skips a pool whose selector does not parse.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let mut pools = Vec::new();
        for pool in snapshot.pools.iter().map(|stored| &stored.value) {
            if pool.disabled || pool.deleting || !pool.allows(PoolUse::Tunnel) {
                continue;
            }
            if let Ok(selector) = pool.selected_nodes() {
                pools.push((pool, selector));
            }
        }

        let tunnels = snapshot.nodes.iter().flat_map(|node| &node.value.tunnels);
        let used_kinds = tunnels.map(|(kind, _)| *kind).collect();
        Self { pools, used_kinds }
    }

    /// True if nodes with what the kind needs get an address. WireGuard nodes get none if WireGuard encrypts the traffic
    /// of hosts, which only the environment of calico-node says: then no node has such an address.
    fn uses(&self, kind: TunnelKind) -> bool {
        let is_wireguard = matches!(kind, TunnelKind::Wireguard | TunnelKind::WireguardV6);
        !is_wireguard || self.used_kinds.contains(&kind)
    }

    /// The pools from which a node takes an address for a kind of tunnel.
    pub fn of(&self, node: &Node, kind: TunnelKind) -> impl Iterator<Item = &'s Pool> {
        let family = family_of(kind);
        self.pools
            .iter()
            .filter(move |(pool, _)| Family::of(pool.cidr) == family)
            .filter(move |(pool, _)| encapsulates(pool, kind, node))
            .filter(|(_, selector)| selector.matches(&node.labels))
            .map(|(pool, _)| *pool)
    }
}

fn family_of(kind: TunnelKind) -> Family {
    if kind.is_v6() { Family::V6 } else { Family::V4 }
}

/// True if the node needs a tunnel address because of the pool. WireGuard does not depend on pools: every node that has
/// a key encrypts.
fn encapsulates(pool: &Pool, kind: TunnelKind, node: &Node) -> bool {
    match kind {
        TunnelKind::Ipip => pool.ipip,
        TunnelKind::Vxlan | TunnelKind::VxlanV6 => pool.vxlan,
        TunnelKind::Wireguard => node.wireguard_keys[0],
        TunnelKind::WireguardV6 => node.wireguard_keys[1],
    }
}

/// One of a node's tunnel addresses, and what calico-node does with it next.
#[derive(Clone, Debug)]
pub struct TunnelAnswer {
    pub kind: TunnelKind,
    /// The address that the node names.
    pub has: Option<IpAddr>,
    pub next: TunnelStep,
}

/// A step that calico-node takes for a tunnel address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelStep {
    /// The address stays.
    Keep,
    /// The address is released, since no pool offers it any more.
    Remove,
    /// The node gets this address.
    Assign { given: Given, why: TunnelLack },
    /// No address can be assigned. calico-node then fails and starts again.
    Refuse { refused: Refused, why: TunnelLack },
    /// calico-node fails at another kind of tunnel before it writes the node, whose address stays as it is.
    NotReached,
}

impl TunnelStep {
    /// The refusal, if no address can be assigned.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refuse { refused, .. } => Some(refused),
            _ => None,
        }
    }
}

/// The reason why a node gets a new tunnel address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelLack {
    #[error("the node names none")]
    NoAddress,
    #[error("no block records it")]
    NotRecorded,
    #[error("it is in no pool that offers tunnel addresses of the kind")]
    OtherPool,
    #[error("it is recorded for another owner")]
    OfAnother,
    /// calico-node fails until the cooldown is over.
    #[error("it was released, and its cooldown is not over")]
    Cooling,
    /// The record is from an old Calico. calico-node releases the address to record it again, and its cooldown begins.
    #[error("it is recorded without an owner, and has a cooldown before it can be recorded again")]
    OfOldCalico,
    #[error("no pool offers one any more")]
    NotOffered,
}

impl TunnelLack {
    /// True if calico-node releases what the tunnel's handle holds before it assigns another address.
    fn releases(&self) -> bool {
        matches!(self, Self::NoAddress | Self::NotRecorded | Self::OtherPool)
    }
}

impl Outlook<'_> {
    /// Returns what calico-node does next with each of a node's tunnel addresses. Leaves out kinds that the node neither
    /// has nor needs. Windows nodes and virtual kubelets have no such addresses.
    pub fn tunnels(&self, node: &Node, pools: &TunnelPools<'_>) -> Vec<TunnelAnswer> {
        if node.is_windows() || node.is_virtual_kubelet() {
            return Vec::new();
        }
        self.run(Plugin::Calico, |allocator, events| {
            let tunnels = NodeTunnels {
                outlook: self,
                node,
                pools,
                allocator,
                events,
            };
            let first = tunnels.answers();
            if !fails(&first) || !allocator.store().has_writes() {
                return first;
            }

            // calico-node starts again, and finds what it has changed.
            let second = tunnels.answers();
            if fails(&second) { first } else { second }
        })
    }
}

/// True if calico-node fails at one of the kinds.
fn fails(answers: &[TunnelAnswer]) -> bool {
    answers.iter().any(|answer| answer.next.refused().is_some())
}

/// The tunnels of a node, and the allocator in which calico-node's steps take effect.
struct NodeTunnels<'a, 's> {
    outlook: &'a Outlook<'s>,
    node: &'a Node,
    pools: &'a TunnelPools<'a>,
    allocator: &'a Allocator<&'a SnapshotStore<'s>>,
    /// Takes the allocator's events so far.
    events: &'a dyn Fn() -> Vec<Event>,
}

impl NodeTunnels<'_, '_> {
    /// Goes through the kinds in calico-node's order. What it releases for one kind is free for the next.
    fn answers(&self) -> Vec<TunnelAnswer> {
        let mut answers: Vec<TunnelAnswer> = Vec::new();
        let mut has_failed = false;
        for kind in ORDER {
            let tunnel = self.node.tunnels.iter().find(|(other, _)| *other == kind);
            let has = tunnel.map(|(_, address)| *address);
            let offering: Vec<IpNet> = self.pools.of(self.node, kind).map(|pool| pool.cidr).collect();
            let is_needed = !offering.is_empty() && (has.is_some() || self.pools.uses(kind));
            let next = if has_failed {
                TunnelStep::NotReached
            } else if is_needed {
                self.ensure(kind, has, &offering)
            } else {
                self.remove(kind, has)
            };

            let is_refused = next.refused().is_some();
            if is_refused {
                has_failed = true;
                self.undo(&mut answers);
            }
            if has.is_some() || is_needed || is_refused {
                answers.push(TunnelAnswer { kind, has, next });
            }
        }
        answers
    }

    /// Releases what was assigned before calico-node failed. It writes the node after all kinds, so that the node's
    /// addresses stay as they are.
    fn undo(&self, answers: &mut [TunnelAnswer]) {
        for answer in answers {
            if matches!(answer.next, TunnelStep::Assign { .. }) {
                // calico-node logs an error, and fails for the first reason.
                let _ = without_waiting(self.allocator.release_by_handle(&self.handle(answer.kind)));
            }
            if answer.next != TunnelStep::Keep {
                answer.next = TunnelStep::NotReached;
            }
        }
    }

    /// The handle of the node's address for a kind of tunnel.
    fn handle(&self, kind: TunnelKind) -> String {
        format!("{}{}", kind.handle_prefix(), self.node.name)
    }

    /// Releases the addresses of a kind of tunnel for which no pool offers one. `has` is the node's address, if any.
    fn remove(&self, kind: TunnelKind, has: Option<IpAddr>) -> TunnelStep {
        let handle = self.handle(kind);
        let mut released = without_waiting(self.allocator.release_by_handle(&handle));
        if matches!(released, Err(Error::NoHandle(_))) {
            released = match has {
                Some(address) => self.release_without_handle(address, &handle),
                None => Ok(()),
            };
        }
        match released {
            Ok(()) => TunnelStep::Remove,
            Err(error) => self.failure(&error, TunnelLack::NotOffered),
        }
    }

    /// Releases the node's own address if its handle does not exist: the address is from an old Calico, or the handle
    /// was lost. An address that has another owner or is not recorded is left alone.
    fn release_without_handle(&self, address: IpAddr, handle: &str) -> Result<(), Error> {
        let record = match without_waiting(self.allocator.assignment_attributes(address)) {
            Ok(record) => record,
            Err(Error::InCooldown(_)) => return Ok(()),
            Err(error) if is_not_recorded(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_of_old_calico = record.handle.is_none() && has_no_owner(&record);
        let is_of_tunnel = record.handle.as_deref() == Some(handle);
        if !is_of_old_calico && !is_of_tunnel {
            return Ok(());
        }

        let release = Release {
            handle: record.handle.clone(),
            ..Release::any(address)
        };
        match without_waiting(self.allocator.release_ips(&[release])) {
            Ok(_) => Ok(()),
            Err(partly) => Err(partly.error),
        }
    }

    /// Keeps the address of a kind of tunnel, or assigns another one from the pools `offering` and says why.
    fn ensure(&self, kind: TunnelKind, has: Option<IpAddr>, offering: &[IpNet]) -> TunnelStep {
        let why = match has {
            None => TunnelLack::NoAddress,
            Some(address) => match self.lack_of(kind, address, offering) {
                Ok(None) => return TunnelStep::Keep,
                Ok(Some(why)) => why,
                Err(refused) => return *refused,
            },
        };

        // calico-node releases what its handle still holds, unless the address belongs to somebody else.
        let handle = self.handle(kind);
        if why.releases() {
            match without_waiting(self.allocator.release_by_handle(&handle)) {
                Ok(_) | Err(Error::NoHandle(_)) => {}
                Err(error) => return self.failure(&error, why),
            }
        }

        let family = family_of(kind);
        let request = NextAddress::new(&self.node.name, family, offering);
        let asked = AutoAssign {
            handle: Some(handle),
            ..request.for_use(PoolUse::Tunnel)
        };
        // The answer describes only the events of this request.
        drop((self.events)());
        let result = without_waiting(self.allocator.auto_assign(&asked));
        let limit = BlockLimit::Configured;
        let answer = Answer::for_any_address(self.outlook, &request, limit, result, (self.events)());
        match answer.outcome {
            Ok(given) => TunnelStep::Assign { given, why },
            Err(mut refused) => {
                // The CNI plugin puts these words before the allocator's message, calico-node does not.
                let of_pods = format!("failed to request {family} addresses: ");
                if let Some(shortage) = refused.calico.strip_prefix(&of_pods) {
                    refused.calico = shortage.to_owned();
                }
                TunnelStep::Refuse {
                    refused: refused.of_calico_node(),
                    why,
                }
            }
        }
    }

    /// Returns the reason why a node's tunnel address does not stay; `None` if it does.
    ///
    /// # Errors
    /// The step at which calico-node fails.
    fn lack_of(
        &self,
        kind: TunnelKind,
        address: IpAddr,
        offering: &[IpNet],
    ) -> Result<Option<TunnelLack>, Box<TunnelStep>> {
        let record = match without_waiting(self.allocator.assignment_attributes(address)) {
            Ok(record) => record,
            Err(error) if is_not_recorded(&error) => return Ok(Some(TunnelLack::NotRecorded)),
            Err(error) => return Err(Box::new(self.unread_record(address, &error))),
        };

        let has = |key: &str, value: &str| match &record.owner {
            Some(owner) => owner.get(key).is_some_and(|attribute| attribute == value),
            None => false,
        };
        let is_of_tunnel = has("type", kind.attribute()) && has("node", &self.node.name);
        if is_of_tunnel {
            let stays = offering.iter().any(|pool| pool.contains(&address));
            return Ok(if stays { None } else { Some(TunnelLack::OtherPool) });
        }
        if record.handle.is_some() || !has_no_owner(&record) {
            return Ok(Some(TunnelLack::OfAnother));
        }
        self.record_again(kind, address)
            .map_err(|error| Box::new(self.failure(&error, TunnelLack::OfOldCalico)))
    }

    /// The step at which calico-node fails, because it cannot read the record of its address.
    fn unread_record(&self, address: IpAddr, error: &Error) -> TunnelStep {
        let cause = self.outlook.calico_text(error);
        let calico_message = format!("failed to get assignment attributes for CIDR '{address}': {cause}");
        let why = match error {
            Error::InCooldown(_) => TunnelLack::Cooling,
            _ => TunnelLack::NotRecorded,
        };
        TunnelStep::Refuse {
            refused: Refused::new(Reason::Other, calico_message).of_calico_node(),
            why,
        }
    }

    /// Records an address from an old Calico under the handle of its tunnel, for which it is released first. Returns the
    /// reason why a node gets another address; `None` if it keeps this one.
    fn record_again(&self, kind: TunnelKind, address: IpAddr) -> Result<Option<TunnelLack>, Error> {
        let released = without_waiting(self.allocator.release_ips(&[Release::any(address)]));
        if let Err(partly) = released {
            return Err(partly.error);
        }
        let request = AssignIp {
            handle: Some(self.handle(kind)),
            ..AssignIp::new(&self.node.name, address)
        };
        match without_waiting(self.allocator.assign_ip(&request)) {
            Ok(()) => Ok(None),
            // Its own cooldown has begun.
            Err(Error::AlreadyAssigned(_)) => Ok(Some(TunnelLack::OfOldCalico)),
            Err(error) => Err(error),
        }
    }

    /// The step at which calico-node fails with an error of the allocator.
    fn failure(&self, error: &Error, why: TunnelLack) -> TunnelStep {
        let refused = Refused::new(Reason::Other, self.outlook.calico_text(error));
        TunnelStep::Refuse {
            refused: refused.of_calico_node(),
            why,
        }
    }
}

/// True if no record has the address.
fn is_not_recorded(error: &Error) -> bool {
    matches!(
        error,
        Error::NotAssigned(_) | Error::NoBlock(_) | Error::NoPoolOf(_)
    )
}

fn has_no_owner(record: &Attribute) -> bool {
    record.owner.as_ref().is_none_or(BTreeMap::is_empty)
}

impl Refused {
    /// The refusal as calico-node passes it on.
    fn of_calico_node(mut self) -> Self {
        if !self.is_crash() {
            self.calico.insert_str(0, "failed to reconcile tunnel address: ");
        }
        self
    }
}
