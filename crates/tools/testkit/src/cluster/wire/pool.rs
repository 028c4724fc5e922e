//! IP pools and reservations (facts 1.7, 1.8).

use ipnet::IpNet;
use serde::Serialize;
use serde_json::json;

use super::{Metadata, Resource, go_json};

/// The `spec` of a pool, with the defaults that current clients write.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub cidr: IpNet,
    pub vxlan_mode: &'static str,
    /// IP in IP.
    pub ipip_mode: &'static str,
    /// True if outgoing traffic is translated to the node's address.
    #[serde(skip_serializing_if = "super::is_false")]
    pub nat_outgoing: bool,
    /// True if the pool assigns no addresses.
    #[serde(skip_serializing_if = "super::is_false")]
    pub disabled: bool,
    /// The prefix length of the pool's blocks.
    pub block_size: u8,
    /// The selector of the nodes that may use the pool.
    pub node_selector: String,
    /// The selector of the namespaces that may use the pool; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace_selector: String,
    pub allowed_uses: Vec<&'static str>,
    /// `Automatic` or `Manual`.
    pub assignment_mode: &'static str,
}

impl Pool {
    /// Creates a pool for pods and tunnels of all nodes.
    pub fn new(cidr: IpNet, block_size: u8) -> Self {
        Self {
            cidr,
            vxlan_mode: "Never",
            ipip_mode: if cidr.addr().is_ipv4() { "Always" } else { "Never" },
            nat_outgoing: true,
            disabled: false,
            block_size,
            node_selector: "all()".to_owned(),
            namespace_selector: String::new(),
            allowed_uses: vec!["Workload", "Tunnel"],
            assignment_mode: "Automatic",
        }
    }

    /// The value under the pool's key.
    pub fn value(self, metadata: Metadata) -> Vec<u8> {
        go_json(&Resource::new("IPPool", metadata, self))
    }
}

/// The value of a reservation.
pub fn reservation(metadata: Metadata, cidrs: &[String]) -> Vec<u8> {
    go_json(&Resource::new("IPReservation", metadata, json!({ "reservedCIDRs": cidrs })))
}
