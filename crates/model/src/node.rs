//! Calico nodes and their tunnel addresses (facts 1.9, 4.1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

use crate::DecodeError;
use crate::IpNet;
use crate::cidr;
use crate::names::KUBERNETES;
use crate::plugin::INSTALLED;
use crate::resource::{Parsed, read};
use crate::stored::FieldDefect;

/// The five kinds of tunnel addresses that a node can have (facts 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelKind {
    /// IP in IP.
    Ipip,
    Vxlan,
    VxlanV6,
    Wireguard,
    WireguardV6,
}

impl TunnelKind {
    pub const ALL: [Self; 5] = [
        Self::Ipip,
        Self::Vxlan,
        Self::VxlanV6,
        Self::Wireguard,
        Self::WireguardV6,
    ];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipip => "IP-in-IP",
            Self::Vxlan => "VXLAN",
            Self::VxlanV6 => "VXLAN (IPv6)",
            Self::Wireguard => "WireGuard",
            Self::WireguardV6 => "WireGuard (IPv6)",
        }
    }

    pub fn is_v6(self) -> bool {
        matches!(self, Self::VxlanV6 | Self::WireguardV6)
    }

    /// The value of the attribute `type` in allocations of this kind.
    pub fn attribute(self) -> &'static str {
        match self {
            Self::Ipip => "ipipTunnelAddress",
            Self::Vxlan => "vxlanTunnelAddress",
            Self::VxlanV6 => "vxlanV6TunnelAddress",
            Self::Wireguard => "wireguardTunnelAddress",
            Self::WireguardV6 => "wireguardV6TunnelAddress",
        }
    }

    /// The prefix of the handle; the node's name follows.
    pub fn handle_prefix(self) -> &'static str {
        match self {
            Self::Ipip => "ipip-tunnel-addr-",
            Self::Vxlan => "vxlan-tunnel-addr-",
            Self::VxlanV6 => "vxlan-v6-tunnel-addr-",
            Self::Wireguard => "wireguard-tunnel-addr-",
            Self::WireguardV6 => "wireguard-v6-tunnel-addr-",
        }
    }

    /// The field of a Calico node that contains the address of this kind.
    pub fn field(self) -> &'static str {
        match self {
            Self::Ipip => "spec.bgp.ipv4IPIPTunnelAddr",
            Self::Vxlan => "spec.ipv4VXLANTunnelAddr",
            Self::VxlanV6 => "spec.ipv6VXLANTunnelAddr",
            Self::Wireguard => "spec.wireguard.interfaceIPv4Address",
            Self::WireguardV6 => "spec.wireguard.interfaceIPv6Address",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name in Calico.
    pub name: String,
    /// The name in Kubernetes. In etcd, it comes from the orchestrator reference `k8s` and can differ from `name`.
    pub kubernetes_name: Option<String>,
    pub created: Option<Timestamp>,
    /// The labels, for pool selectors.
    pub labels: BTreeMap<String, String>,
    pub tunnels: Vec<(TunnelKind, IpAddr)>,
    /// The node's own addresses in the node network.
    pub addresses: BTreeSet<IpAddr>,
    /// The CNI plugin that an installer has recorded ([`plugin::INSTALLED`](crate::plugin::INSTALLED)).
    pub plugin: Option<String>,
    /// True if a taint keeps away pods that do not tolerate it. Known only for Kubernetes nodes.
    pub tainted: bool,
    /// For IPv4 and IPv6: true if the node has a WireGuard key, so that its tunnel needs an address.
    pub wireguard_keys: [bool; 2],
    /// The pod ranges that Kubernetes assigns to the node, from which host-local takes addresses. Known only for some
    /// Kubernetes nodes.
    pub pod_cidrs: Vec<IpNet>,
}

/// The types of addresses at which other nodes reach a node.
const OWN_ADDRESSES: [&str; 2] = ["InternalIP", "CalicoNodeIP"];

/// The label that names the operating system.
const SYSTEM: &str = "kubernetes.io/os";

impl Node {
    /// The node's name in Calico and, if it is known, its name in Kubernetes. Pods can refer to the node by either
    /// name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [Some(self.name.as_str()), self.kubernetes_name.as_deref()]
            .into_iter()
            .flatten()
    }

    pub fn is_windows(&self) -> bool {
        self.labels.get(SYSTEM).is_some_and(|system| system == "windows")
    }

    /// True for a virtual node, which represents another system that runs its pods.
    pub fn is_virtual_kubelet(&self) -> bool {
        self.labels
            .get("type")
            .is_some_and(|kind| kind == "virtual-kubelet")
    }

    /// Adds an address if its type is in `OWN_ADDRESSES`. Ignores other types and invalid text.
    pub fn add_address(&mut self, kind: &str, text: &str) {
        if OWN_ADDRESSES.contains(&kind) {
            self.addresses.extend(cidr::parse_address(text));
        }
    }

    /// Reads a Calico node's JSON; the name comes from the key. Omits and reports tunnel fields that are not addresses.
    pub fn parse(name: &str, json: &[u8]) -> Result<Parsed<Self>, DecodeError> {
        let (metadata, spec, status) = read::<NodeSpec>(json)?;
        let created = metadata.created();
        let plugin = metadata.annotation(INSTALLED);
        let bgp = spec.bgp.unwrap_or_default();
        let wireguard = spec.wireguard.unwrap_or_default();
        let bgp_addresses = [bgp.v4, bgp.v6];
        let tunnel_fields = [bgp.ipip, spec.vxlan, spec.vxlan_v6, wireguard.v4, wireguard.v6];
        let mut node = Self {
            name: name.to_owned(),
            created,
            plugin,
            labels: metadata.labels.unwrap_or_default(),
            wireguard_keys: [status.wireguard_key, status.wireguard_key_v6]
                .map(|key| key.is_some_and(|key| !key.is_empty())),
            ..Self::default()
        };
        let mut defects = Vec::new();
        for (kind, text) in TunnelKind::ALL.into_iter().zip(tunnel_fields) {
            let Some(text) = text.filter(|text| !text.is_empty()) else {
                continue;
            };
            match cidr::parse_address(&text) {
                Some(address) => node.tunnels.push((kind, address)),
                None => defects.push(FieldDefect::new(
                    kind.field(),
                    format!("{text:?} is not an address"),
                )),
            }
        }
        for text in bgp_addresses.into_iter().flatten() {
            node.add_address("CalicoNodeIP", &text);
        }
        for NodeAddress { address, kind } in spec.addresses.unwrap_or_default() {
            node.add_address(
                kind.as_deref().unwrap_or_default(),
                address.as_deref().unwrap_or_default(),
            );
        }
        for reference in spec.orch_refs.unwrap_or_default() {
            if reference.orchestrator.as_deref() == Some(KUBERNETES) {
                node.kubernetes_name = reference.node_name;
                break;
            }
        }
        Ok(Parsed {
            value: node,
            defects,
            created,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSpec {
    bgp: Option<NodeBgp>,
    #[serde(rename = "ipv4VXLANTunnelAddr")]
    vxlan: Option<String>,
    #[serde(rename = "ipv6VXLANTunnelAddr")]
    vxlan_v6: Option<String>,
    wireguard: Option<NodeWireguard>,
    orch_refs: Option<Vec<OrchRef>>,
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Deserialize)]
struct NodeAddress {
    address: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Default, Deserialize)]
struct NodeBgp {
    #[serde(rename = "ipv4IPIPTunnelAddr")]
    ipip: Option<String>,
    #[serde(rename = "ipv4Address")]
    v4: Option<String>,
    #[serde(rename = "ipv6Address")]
    v6: Option<String>,
}

#[derive(Default, Deserialize)]
struct NodeWireguard {
    #[serde(rename = "interfaceIPv4Address")]
    v4: Option<String>,
    #[serde(rename = "interfaceIPv6Address")]
    v6: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrchRef {
    node_name: Option<String>,
    orchestrator: Option<String>,
}
