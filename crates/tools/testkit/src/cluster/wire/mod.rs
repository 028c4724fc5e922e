//! Values as Calico writes them to etcd (facts 1.3–1.13). Nothing here uses calipam's model, so that tests do not
//! compare it with itself.

mod block;
pub mod key;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};

pub use self::block::{Attribute, Block, Entries, Era};

/// The value of an affinity.
pub fn affinity(state: &str) -> Vec<u8> {
    format!(r#"{{"state":"{state}","deleted":false}}"#).into_bytes()
}

/// A v3 API resource without status.
pub fn resource(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec})
}

/// The settings at `/calico/ipam/v2/config`, as a patch. Two fields have other names there, and false is omitted.
pub fn ipam_config(settings: &Value) -> Value {
    let renamed = |name: &str| match name {
        "strictAffinity" => "strict_affinity".to_owned(),
        "autoAllocateBlocks" => "auto_allocate_blocks".to_owned(),
        other => other.to_owned(),
    };
    let set = |value: &Value| {
        if *value == json!(false) {
            Value::Null
        } else {
            value.clone()
        }
    };
    settings
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (renamed(name), set(value)))
        .collect()
}

/// The value of KubeControllersConfiguration with the defaults that Calico writes.
pub fn kube_controllers(metadata: &Value, leak_grace_period: &str) -> Vec<u8> {
    let controllers = r#""policy":{"reconcilerPeriod":"5m0s"},"workloadEndpoint":{"reconcilerPeriod":"5m0s"},"serviceAccount":{"reconcilerPeriod":"5m0s"},"namespace":{"reconcilerPeriod":"5m0s"},"loadBalancer":{"assignIPs":"AllServices"},"migration":{"policyNameMigrator":"Enabled"}"#;
    let metadata = String::from_utf8(go_json(metadata)).expect("JSON is text");
    format!(
        r#"{{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{metadata},"spec":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{{"node":{{"reconcilerPeriod":"5m0s","syncLabels":"Enabled","hostEndpoint":{{"autoCreate":"Disabled","createDefaultHostEndpoint":"Enabled"}},"leakGracePeriod":"{leak_grace_period}"}},{controllers}}}}},"status":{{"runningConfig":{{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s"}}}}}}"#
    )
    .into_bytes()
}

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
    pub const ALL: [Self; 5] = [
        Self::Wireguard,
        Self::WireguardV6,
        Self::Ipip,
        Self::Vxlan,
        Self::VxlanV6,
    ];

    /// The attribute `type` of the tunnel's addresses, the prefix of their handles, and the place in the `spec` of nodes.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Wireguard => [
                "wireguardTunnelAddress",
                "wireguard-tunnel-addr",
                "wireguard/interfaceIPv4Address",
            ],
            Self::WireguardV6 => [
                "wireguardV6TunnelAddress",
                "wireguard-v6-tunnel-addr",
                "wireguard/interfaceIPv6Address",
            ],
            Self::Ipip => ["ipipTunnelAddress", "ipip-tunnel-addr", "bgp/ipv4IPIPTunnelAddr"],
            Self::Vxlan => ["vxlanTunnelAddress", "vxlan-tunnel-addr", "ipv4VXLANTunnelAddr"],
            Self::VxlanV6 => [
                "vxlanV6TunnelAddress",
                "vxlan-v6-tunnel-addr",
                "ipv6VXLANTunnelAddr",
            ],
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
    pub(super) fn field(self) -> String {
        format!("/spec/{}", self.names()[2])
    }

    pub fn is_v6(self) -> bool {
        matches!(self, Self::WireguardV6 | Self::VxlanV6)
    }
}

/// The fields of Calico's structs, in their order. All other fields follow in alphabetical order, like the keys of maps.
const FIELDS: [&str; 10] = [
    // Resources and their metadata (facts 1.13).
    "kind apiVersion metadata spec status",
    "name generateName namespace uid creationTimestamp labels annotations",
    // Pools and blocks, with their records (facts 1.3, 1.7).
    "cidr vxlanMode ipipMode natOutgoing disabled blockSize nodeSelector namespaceSelector allowedUses assignmentMode",
    "affinity strictAffinity affinity_claim_time allocations unallocated attributes",
    "sequenceNumber sequenceNumberForAllocation handle_id secondary",
    // Settings (facts 1.6, 1.11).
    "strict_affinity autoAllocateBlocks auto_allocate_blocks kubeVirtVMAddressPersistence",
    "clusterGUID clusterType calicoVersion",
    // Nodes and endpoints (facts 1.9, 1.10).
    "bgp ipv4VXLANTunnelAddr ipv6VXLANTunnelAddr orchRefs wireguard addresses nodeName",
    "orchestrator workload node containerID pod endpoint serviceAccountName ipNetworks ipNATs profiles interfaceName",
    "internalIP",
];

/// The place of each field in [`FIELDS`].
static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
    let fields = FIELDS.iter().flat_map(|fields| fields.split(' '));
    fields.enumerate().map(|(place, field)| (field, place)).collect()
});

struct InOrder<'v>(&'v Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| (name, InOrder(value)))
                    .collect();
                fields.sort_by_key(|(name, _)| PLACES.get(name.as_str()).unwrap_or(&usize::MAX));
                serializer.collect_map(fields)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(InOrder)),
            other => other.serialize(serializer),
        }
    }
}

/// The bytes that Go's `encoding/json` writes: no spaces, `<`, `>` and `&` escaped.
pub fn go_json(value: &Value) -> Vec<u8> {
    let plain = serde_json::to_string(&InOrder(value)).expect("JSON values have text keys only");
    // These characters occur in strings only, so escaping them anywhere is right.
    plain
        .replace('<', r"\u003c")
        .replace('>', r"\u003e")
        .replace('&', r"\u0026")
        .into_bytes()
}

/// Applies a merge patch as in RFC 7386: `null` removes a field.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(object) = target.as_object_mut() else {
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_go() {
        assert_eq!(go_json(&json!("a<b>&c")), br#""a\u003cb\u003e\u0026c""#);
        assert_eq!(go_json(&json!(["plain"])), br#"["plain"]"#);
    }

    #[test]
    fn patches_change_add_and_remove() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(
            &mut object,
            &json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "d": "x"}),
        );
        assert_eq!(object, json!({"a": {"c": 2, "e": {"g": 3}}, "d": "x"}));
    }
}
