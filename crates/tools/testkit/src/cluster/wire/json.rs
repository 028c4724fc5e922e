//! JSON as Calico writes it, and changes of JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::ser::{Serialize, Serializer};
use serde_json::{Value, json};

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
                let mut fields: Vec<_> = fields.iter().map(|(name, value)| (name, InOrder(value))).collect();
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
    plain.replace('<', r"\u003c").replace('>', r"\u003e").replace('&', r"\u0026").into_bytes()
}

/// Applies a merge patch as in RFC 7386: `null` removes a field.
pub(in crate::cluster) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(object) = target.as_object_mut() else { return };
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
        merge(&mut object, &json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "d": "x"}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"g": 3}}, "d": "x"}));
    }
}
