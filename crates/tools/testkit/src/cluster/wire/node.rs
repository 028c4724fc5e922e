//! Nodes (facts 1.9).

use std::net::IpAddr;

use serde::Serialize;

use super::Resource;

/// A Calico node.
pub type Node = Resource<NodeSpec>;

/// The kinds of tunnels, in the order in which nodes assign addresses to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tunnel {
    /// WireGuard, IPv4.
    Wireguard,
    /// WireGuard, IPv6.
    WireguardV6,
    /// IP in IP.
    Ipip,
    /// VXLAN, IPv4.
    Vxlan,
    /// VXLAN, IPv6.
    VxlanV6,
}

impl Tunnel {
    pub const ALL: [Self; 5] = [Self::Wireguard, Self::WireguardV6, Self::Ipip, Self::Vxlan, Self::VxlanV6];

    /// The attribute `type` of the tunnel's addresses, and the prefix of their handles.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Wireguard => ("wireguardTunnelAddress", "wireguard-tunnel-addr"),
            Self::WireguardV6 => ("wireguardV6TunnelAddress", "wireguard-v6-tunnel-addr"),
            Self::Ipip => ("ipipTunnelAddress", "ipip-tunnel-addr"),
            Self::Vxlan => ("vxlanTunnelAddress", "vxlan-tunnel-addr"),
            Self::VxlanV6 => ("vxlanV6TunnelAddress", "vxlan-v6-tunnel-addr"),
        }
    }

    /// The attribute `type` of the tunnel's addresses.
    pub fn attribute(self) -> &'static str {
        self.names().0
    }

    /// The handle of the tunnel's address on a node.
    pub fn handle(self, node: &str) -> String {
        format!("{}-{node}", self.names().1)
    }

    pub fn is_v6(self) -> bool {
        matches!(self, Self::WireguardV6 | Self::VxlanV6)
    }
}

/// The `spec` of a node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    pub bgp: Bgp,
    /// The address of the IPv4 VXLAN tunnel.
    #[serde(rename = "ipv4VXLANTunnelAddr", skip_serializing_if = "String::is_empty")]
    pub vxlan: String,
    /// The address of the IPv6 VXLAN tunnel.
    #[serde(rename = "ipv6VXLANTunnelAddr", skip_serializing_if = "String::is_empty")]
    pub vxlan_v6: String,
    /// The Kubernetes node.
    pub orch_refs: Vec<OrchRef>,
    /// The addresses of the WireGuard tunnels.
    #[serde(skip_serializing_if = "Wireguard::is_empty")]
    pub wireguard: Wireguard,
    /// Addresses of the machine.
    pub addresses: Vec<NodeAddress>,
}

/// `spec.bgp`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bgp {
    /// The machine's address with its mask.
    pub ipv4_address: String,
    /// The address of the IP-in-IP tunnel.
    #[serde(rename = "ipv4IPIPTunnelAddr", skip_serializing_if = "String::is_empty")]
    pub ipip: String,
}

/// `spec.wireguard`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Wireguard {
    /// IPv4.
    #[serde(rename = "interfaceIPv4Address", skip_serializing_if = "String::is_empty")]
    pub v4: String,
    /// IPv6.
    #[serde(rename = "interfaceIPv6Address", skip_serializing_if = "String::is_empty")]
    pub v6: String,
}

impl Wireguard {
    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

/// The name of a node in an orchestrator.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrchRef {
    pub node_name: String,
    /// `k8s`.
    pub orchestrator: String,
}

/// An address of the machine.
#[derive(Clone, Debug, Serialize)]
pub struct NodeAddress {
    pub address: String,
    #[serde(rename = "type")]
    pub kind: String,
}

impl Node {
    /// The field that contains a tunnel's address.
    pub fn tunnel_mut(&mut self, tunnel: Tunnel) -> &mut String {
        match tunnel {
            Tunnel::Wireguard => &mut self.spec.wireguard.v4,
            Tunnel::WireguardV6 => &mut self.spec.wireguard.v6,
            Tunnel::Ipip => &mut self.spec.bgp.ipip,
            Tunnel::Vxlan => &mut self.spec.vxlan,
            Tunnel::VxlanV6 => &mut self.spec.vxlan_v6,
        }
    }

    pub fn tunnel(&self, tunnel: Tunnel) -> Option<IpAddr> {
        let field = match tunnel {
            Tunnel::Wireguard => &self.spec.wireguard.v4,
            Tunnel::WireguardV6 => &self.spec.wireguard.v6,
            Tunnel::Ipip => &self.spec.bgp.ipip,
            Tunnel::Vxlan => &self.spec.vxlan,
            Tunnel::VxlanV6 => &self.spec.vxlan_v6,
        };
        field.split('/').next()?.parse().ok()
    }
}
