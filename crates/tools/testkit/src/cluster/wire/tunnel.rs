//! Tunnels, whose addresses are fields of nodes (facts 1.9).

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

    /// The attribute `type` of the tunnel's addresses, the prefix of their handles, and the place in the `spec` of nodes.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Wireguard => {
                ["wireguardTunnelAddress", "wireguard-tunnel-addr", "wireguard/interfaceIPv4Address"]
            }
            Self::WireguardV6 => {
                ["wireguardV6TunnelAddress", "wireguard-v6-tunnel-addr", "wireguard/interfaceIPv6Address"]
            }
            Self::Ipip => ["ipipTunnelAddress", "ipip-tunnel-addr", "bgp/ipv4IPIPTunnelAddr"],
            Self::Vxlan => ["vxlanTunnelAddress", "vxlan-tunnel-addr", "ipv4VXLANTunnelAddr"],
            Self::VxlanV6 => ["vxlanV6TunnelAddress", "vxlan-v6-tunnel-addr", "ipv6VXLANTunnelAddr"],
        }
    }

    /// The attribute `type` of the tunnel's addresses.
    pub fn attribute(self) -> &'static str {
        self.names()[0]
    }

    /// The handle of the tunnel's address on a node.
    pub fn handle(self, node: &str) -> String {
        format!("{}-{node}", self.names()[1])
    }

    /// The JSON pointer to the tunnel's address in a node.
    pub(in crate::cluster) fn field(self) -> String {
        format!("/spec/{}", self.names()[2])
    }

    pub fn is_v6(self) -> bool {
        matches!(self, Self::WireguardV6 | Self::VxlanV6)
    }
}
