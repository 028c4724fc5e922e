//! Conversion of etcd's form to `spec` of custom resources (facts 2.4 to 2.6). The reader converts it back.

use calipam_model::affinity::AffinityKey;
use calipam_model::key::Key;
use serde_json::{Map, Value, json};

/// The name of a block's claim time in etcd, and in custom resources.
const CLAIM_TIME: [&str; 2] = ["affinity_claim_time", "affinityClaimTime"];

/// The string `true` or `false`, or the value itself: affinities of `crd.projectcalico.org` have strings.
pub(crate) fn flag(value: bool, as_text: bool) -> Value {
    if as_text { value.to_string().into() } else { value.into() }
}

/// The `spec` of the object with `key`, for a value in etcd's form. `classic` stands for the group
/// `crd.projectcalico.org`. `None` if there is no such form.
pub(crate) fn spec(key: &Key, value: &[u8], classic: bool) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(value).ok()?;
    match key {
        Key::Block(_) => block(value.as_object_mut()?),
        Key::Handle(id) => {
            value.as_object_mut()?.insert("handleID".into(), id.as_str().into());
        }
        Key::Affinity(key) => affinity(value.as_object_mut()?, key, classic),
        Key::IpamConfig => config(value.as_object_mut()?),
        // Other resources are the same in etcd and Kubernetes.
        _ => return value.get("spec").cloned(),
    }
    Some(value)
}

fn block(fields: &mut Map<String, Value>) {
    if let Some(time) = fields.remove(CLAIM_TIME[0]) {
        fields.insert(CLAIM_TIME[1].into(), time);
    }
    if fields.get("affinity").is_some_and(Value::is_null) {
        fields.remove("affinity");
    }
    // The schema requires lists; Calico writes empty ones instead of `null`.
    for (name, empty) in [("attributes", json!([])), ("sequenceNumberForAllocation", json!({}))] {
        if fields.get(name).is_some_and(Value::is_null) {
            fields.insert(name.to_owned(), empty);
        }
    }
    // The schema requires the field, and it is false except in blocks of Calico 3.13 and older (facts 2.4).
    fields.entry("strictAffinity").or_insert(Value::Bool(false));
}

/// The allocator's configuration: in etcd, two of its fields have other names and are omitted if they are false; the
/// Kubernetes schema requires both (facts 2.7).
fn config(fields: &mut Map<String, Value>) {
    for (etcd, kubernetes) in
        [("strict_affinity", "strictAffinity"), ("auto_allocate_blocks", "autoAllocateBlocks")]
    {
        let value = fields.remove(etcd).unwrap_or(Value::Bool(false));
        fields.insert(kubernetes.into(), value);
    }
}

fn affinity(fields: &mut Map<String, Value>, key: &AffinityKey, classic: bool) {
    let deleted = fields.get("deleted").and_then(Value::as_bool).unwrap_or_default();
    fields.insert("deleted".into(), flag(deleted, classic));
    fields.insert("node".into(), key.node.as_str().into());
    fields.insert("cidr".into(), key.cidr.to_string().into());
    fields.insert("type".into(), key.kind.to_string().into());
}

/// The labels with which Calico 3.31 and later finds an affinity.
pub(crate) fn labels(key: &Key) -> Map<String, Value> {
    match key {
        Key::Affinity(key) => {
            key.labels().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
        }
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::affinity::AffinityType;

    use super::*;

    #[test]
    fn specs_are_what_calico_writes() {
        let block = Key::Block("10.0.0.0/30".parse().unwrap());
        let value = br#"{"cidr":"10.0.0.0/30","affinity":"host:a","affinity_claim_time":"T","sequenceNumber":18446744073709551615}"#;
        let expected = json!({"cidr": "10.0.0.0/30", "affinity": "host:a", "affinityClaimTime": "T",
            "sequenceNumber": u64::MAX, "strictAffinity": false});
        assert_eq!(spec(&block, value, true), Some(expected));
        let ownerless = spec(&block, br#"{"affinity":null,"strictAffinity":true}"#, true);
        assert_eq!(ownerless, Some(json!({"strictAffinity": true})));
        let fresh = spec(&block, br#"{"attributes":null,"sequenceNumberForAllocation":null}"#, false);
        let lists = json!({"attributes": [], "sequenceNumberForAllocation": {}, "strictAffinity": false});
        assert_eq!(fresh, Some(lists));
        let handle = spec(&Key::Handle("A.b".into()), br#"{"block":{},"deleted":false}"#, true);
        assert_eq!(handle, Some(json!({"block": {}, "deleted": false, "handleID": "A.b"})));
        let key =
            AffinityKey { kind: AffinityType::Host, node: "n".into(), cidr: "10.0.0.0/30".parse().unwrap() };
        let key = Key::Affinity(key);
        let value = br#"{"state":"pending","deleted":false}"#;
        let of = |classic| spec(&key, value, classic).unwrap()["deleted"].clone();
        assert_eq!((of(true), of(false)), (json!("false"), json!(false)));
        let config = spec(&Key::IpamConfig, br#"{"auto_allocate_blocks":true,"maxBlocksPerHost":4}"#, true);
        let expected = json!({"strictAffinity": false, "autoAllocateBlocks": true, "maxBlocksPerHost": 4});
        assert_eq!(config, Some(expected));
        assert_eq!(labels(&key).len(), 3);
        assert!(labels(&block).is_empty() && spec(&block, b"[]", true).is_none());
    }
}
