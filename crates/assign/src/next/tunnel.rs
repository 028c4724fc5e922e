//! A node's tunnel addresses, as calico-node assigns and releases them when it starts, and whenever a pool or its own
//! node changes (`node/pkg/allocateip`).

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::plugin::Plugin;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;
use calipam_model::snapshot::Snapshot;

use super::answer::{Answer, Given, Refused};
use super::reason::Reason;
use super::{NextAddress, Outlook};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{SnapshotStore, without_waiting};
use crate::request::AutoAssign;

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
    used: HashSet<TunnelKind>,
}

impl<'s> TunnelPools<'s> {
    /// Finds the pools that allow tunnels and are neither disabled nor being deleted. Like calico-node, ignores the
    /// assignment mode and the pool's status, and skips a pool whose selector does not parse.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let mut offering = Vec::new();
        for pool in snapshot.pools.iter().map(|stored| &stored.value) {
            if pool.disabled || pool.deleting || !pool.allows(PoolUse::Tunnel) {
                continue;
            }
            if let Ok(selector) = pool.selected_nodes() {
                offering.push((pool, selector));
            }
        }

        let tunnels = snapshot.nodes.iter().flat_map(|node| &node.value.tunnels);
        Self {
            pools: offering,
            used: tunnels.map(|(kind, _)| *kind).collect(),
        }
    }

    /// True if nodes with what the kind needs get an address. WireGuard nodes get none if WireGuard encrypts the traffic
    /// of hosts, which only the environment of calico-node says: then no node has such an address.
    fn uses(&self, kind: TunnelKind) -> bool {
        let is_wireguard = matches!(kind, TunnelKind::Wireguard | TunnelKind::WireguardV6);
        !is_wireguard || self.used.contains(&kind)
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
    /// calico-node fails at an earlier kind of tunnel, so it does not look after this one.
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
}

impl Outlook<'_> {
    /// Returns what calico-node does next with each of a node's tunnel addresses. Leaves out kinds that the node neither
    /// has nor needs. Windows nodes and virtual kubelets have no such addresses.
    pub fn tunnels(&self, node: &Node, pools: &TunnelPools<'_>) -> Vec<TunnelAnswer> {
        if node.is_windows() || node.is_virtual_kubelet() {
            return Vec::new();
        }
        self.run(Plugin::Calico, |allocator, events| {
            let mut answers = Vec::new();
            let mut fails = false;
            for kind in ORDER {
                let tunnel = node.tunnels.iter().find(|(other, _)| *other == kind);
                let has = tunnel.map(|(_, address)| *address);
                let offering: Vec<IpNet> = pools.of(node, kind).map(|pool| pool.cidr).collect();
                let is_needed = !offering.is_empty() && (has.is_some() || pools.uses(kind));
                if has.is_none() && !is_needed {
                    continue;
                }
                let next = if fails {
                    TunnelStep::NotReached
                } else {
                    self.tunnel_step(node, kind, has, &offering, allocator, events)
                };
                fails |= next.refused().is_some();
                answers.push(TunnelAnswer { kind, has, next });
            }
            answers
        })
    }

    fn tunnel_step(
        &self,
        node: &Node,
        kind: TunnelKind,
        has: Option<IpAddr>,
        offering: &[IpNet],
        allocator: &Allocator<&SnapshotStore<'_>>,
        events: &dyn Fn() -> Vec<Event>,
    ) -> TunnelStep {
        if offering.is_empty() {
            return TunnelStep::Remove;
        }
        let why = match has {
            None => TunnelLack::NoAddress,
            Some(address) => match self.lack_of(node, kind, address, offering) {
                None => return TunnelStep::Keep,
                Some(TunnelLack::Cooling) => {
                    let error = format!(
                        "failed to get assignment attributes for CIDR '{address}': address {address} is in cooldown"
                    );
                    let refused = Refused::new(Reason::Other, error).of_calico_node();
                    return TunnelStep::Refuse {
                        refused,
                        why: TunnelLack::Cooling,
                    };
                }
                Some(why) => why,
            },
        };

        // calico-node releases what its handle still holds, unless the address belongs to somebody else.
        let handle = format!("{}{}", kind.handle_prefix(), node.name);
        if why != TunnelLack::OfAnother
            && let Err(error) = without_waiting(allocator.release_by_handle(&handle))
            && !matches!(error, Error::NoHandle(_))
        {
            let refused = Refused::new(Reason::Other, self.calico_text(&error)).of_calico_node();
            return TunnelStep::Refuse { refused, why };
        }

        let family = family_of(kind);
        let request = NextAddress::new(&node.name, family, offering);
        let asked = AutoAssign {
            handle: Some(handle),
            ..request.for_use(PoolUse::Tunnel)
        };
        let result = without_waiting(allocator.auto_assign(&asked));
        let single_block = false;
        match Answer::for_any_address(self, &request, single_block, result, events()).outcome {
            Ok(given) => TunnelStep::Assign { given, why },
            Err(mut refused) => {
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

    /// Returns the reason why a node's tunnel address does not stay; `None` if it does. An address without attributes and
    /// handle is from an old Calico, and gets them.
    fn lack_of(
        &self,
        node: &Node,
        kind: TunnelKind,
        address: IpAddr,
        offering: &[IpNet],
    ) -> Option<TunnelLack> {
        if !self.pools().any(|pool| pool.cidr.contains(&address)) {
            return Some(TunnelLack::NotRecorded);
        }
        let cidr = self.indexed.block_around(address);
        let stored = cidr.and_then(|cidr| self.indexed.block(cidr));
        let block = stored.and_then(|stored| stored.value.content.as_calico_takes());
        let Some(allocation) = block.as_ref().and_then(|block| block.allocation_of(address)) else {
            return Some(TunnelLack::NotRecorded);
        };

        let record = allocation.attribute;
        if record.is_cooling() {
            return Some(TunnelLack::Cooling);
        }
        let has = |key: &str, value: &str| record.get(key).is_some_and(|attribute| attribute == *value);
        if has("type", kind.attribute()) && has("node", &node.name) {
            let stays = offering.iter().any(|pool| pool.contains(&address));
            return if stays { None } else { Some(TunnelLack::OtherPool) };
        }
        if record.is_anonymous() {
            None
        } else {
            Some(TunnelLack::OfAnother)
        }
    }
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
