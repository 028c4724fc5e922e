//! Requests for addresses, and their results.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::pool::PoolUse;
use calipam_model::words::joined;

use crate::family::Family;

/// A request for any addresses.
#[derive(Clone, Debug, Default)]
pub struct AutoAssign {
    /// The node, or the virtual holder `load-balancer` if the use is [`PoolUse::LoadBalancer`].
    pub host: String,
    /// The number of IPv4 addresses.
    pub v4: u32,
    /// The number of IPv6 addresses.
    pub v6: u32,
    pub handle: Option<String>,
    /// The owner's attributes. `None` and an empty map are written alike. For an empty map, however, no record that the
    /// block already contains is reused.
    pub attributes: Option<BTreeMap<String, String>>,
    /// The CIDRs of the requested IPv4 pools. If empty, all pools that select the node and the namespace serve the
    /// request.
    pub pools_v4: Vec<IpNet>,
    /// The CIDRs of the requested IPv6 pools; see [`Self::pools_v4`].
    pub pools_v6: Vec<IpNet>,
    /// The use of the addresses; required.
    pub intended_use: Option<PoolUse>,
    /// The node's block limit in each family; 0 for the configured limit. If a limit is also configured, the lower one
    /// applies.
    pub max_blocks_per_host: u32,
    /// The handle's address limit in each family; 0 for no limit. If the handle is at its limit, the result is the
    /// addresses that it already has.
    pub max_per_handle: u32,
    /// The labels of the namespace, for the namespace selectors of pools.
    pub namespace_labels: Option<BTreeMap<String, String>>,
    /// True if the node runs Windows. New IPv4 blocks then reserve their first three addresses and the last one.
    pub windows: bool,
}

impl AutoAssign {
    /// The number of addresses requested in a family.
    pub(crate) fn count(&self, family: Family) -> u32 {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// The requested pools of a family.
    pub(crate) fn pools(&self, family: Family) -> &[IpNet] {
        match family {
            Family::V4 => &self.pools_v4,
            Family::V6 => &self.pools_v6,
        }
    }
}

/// A request for one given address.
#[derive(Clone, Debug)]
pub struct AssignIp {
    pub address: IpAddr,
    /// The node, or the virtual holder if the use is [`PoolUse::LoadBalancer`].
    pub host: String,
    pub handle: Option<String>,
    /// The owner's attributes; see [`AutoAssign::attributes`].
    pub attributes: Option<BTreeMap<String, String>>,
    /// The use of the address. If `None`, the uses that the pool allows are ignored.
    pub intended_use: Option<PoolUse>,
    /// The handle's address limit in the family; 0 for no limit.
    pub max_per_handle: u32,
    /// True if the node runs Windows.
    pub windows: bool,
}

impl AssignIp {
    /// A node's request for an address, with nothing else set.
    pub fn new(host: impl Into<String>, address: IpAddr) -> Self {
        Self {
            address,
            host: host.into(),
            handle: None,
            attributes: None,
            intended_use: None,
            max_per_handle: 0,
            windows: false,
        }
    }
}

/// The result of [`AutoAssign`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AutoAssigned {
    /// `None` if no IPv4 address was requested, or an error occurred before the search.
    pub v4: Option<Assigned>,
    pub v6: Option<Assigned>,
}

impl AutoAssigned {
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.v4
            .iter()
            .chain(&self.v6)
            .flat_map(|assigned| &assigned.addresses)
            .map(IpNet::addr)
    }
}

/// The assigned addresses of one family. Fewer addresses than requested are not an error for the allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    pub family: Family,
    pub requested: u32,
    /// The addresses, in order of assignment. New ones have their block's prefix length. Those that a handle at its
    /// limit already had are /32 or /128.
    pub addresses: Vec<IpNet>,
    /// The reasons why no more addresses were assigned.
    pub messages: Vec<Message>,
    /// True if new blocks reserve addresses for Windows.
    pub windows: bool,
}

impl Assigned {
    /// Creates the result of a request before any address is assigned.
    pub(crate) fn new(family: Family, requested: u32, windows: bool) -> Self {
        Self {
            family,
            requested,
            addresses: Vec::new(),
            messages: Vec::new(),
            windows,
        }
    }

    /// The number of addresses that are still missing.
    pub fn missing(&self) -> u32 {
        self.requested.saturating_sub(self.addresses.len() as u32)
    }

    pub(crate) fn note(&mut self, message: Message) {
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// Returns the message with which Calico's plugin fails if addresses are missing; `None` if all were assigned.
    pub fn shortage(&self) -> Option<String> {
        if self.missing() == 0 {
            return None;
        }
        let found = self.addresses.len();
        let requested = self.requested;
        let mut text = format!(
            "Assigned {found} out of {requested} requested {} addresses",
            self.family
        );
        for message in &self.messages {
            text.push_str(&format!("; {message}"));
        }
        if self.windows {
            text.push_str("; HostReservedAttr: windows-reserved-ipam-handle");
        }
        Some(text)
    }
}

/// The reason why a request was not fully met, displayed in Calico's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Message {
    /// There was no block to claim, and affinity is strict.
    #[error("No more free affine blocks and strict affinity enabled")]
    StrictAffinity,
    /// The node is at its block limit.
    #[error("Need to allocate an IPAM block but could not - limit of {0} blocks reached for this node")]
    BlockLimit(u32),
    /// These pools have no free address left, not even in other holders' blocks.
    #[error("No IPs available in pools: [{}]", joined(.0, " "))]
    Exhausted(Vec<String>),
    /// Nothing could be assigned in a block of the node.
    #[error("Failed to assign IPs in newly allocated block")]
    BlockFailed,
}
