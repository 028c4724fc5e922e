//! Converts values to custom resources, and pools and the configuration back to etcd's form (facts 1.6, 1.7, 2.4 to
//! 2.7). All other custom resources are converted back when they are decoded.

use calipam_model::affinity::AffinityKey;
use calipam_model::config::RENAMED_FIELDS;
use calipam_model::document::Document;
use calipam_model::key::Key;
use serde_json::{Map, Value, json};

/// The parts of a pool's metadata that a repair keeps or needs. The server sets or changes the other parts.
const METADATA: [&str; 5] = ["name", "labels", "annotations", "finalizers", "deletionTimestamp"];

/// The annotation with the version of an object before it was written again unchanged.
pub(super) const WRITTEN_AGAIN: &str = "calipam.io/written-again-at";

/// A pool without the fields that the server adds, for comparison with the value that was written.
pub(crate) fn pool(object: &Value) -> Document {
    let fields_of = |part: &str| object[part].as_object().cloned().unwrap_or_default();
    let mut metadata = fields_of("metadata");
    metadata.retain(|name, _| METADATA.contains(&name.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && annotations.remove(WRITTEN_AGAIN).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }

    let mut fields = Map::new();
    fields.insert("apiVersion".into(), "projectcalico.org/v3".into());
    fields.insert("kind".into(), "IPPool".into());
    fields.insert("metadata".into(), metadata.into());
    fields.insert("spec".into(), fields_of("spec").into());
    Document::from_fields(fields)
}

/// The configuration in etcd's form, without fields that are false or zero.
pub(crate) fn ipam_config(object: &Value) -> Document {
    let mut fields = object["spec"].as_object().cloned().unwrap_or_default();
    for (in_etcd, in_spec) in RENAMED_FIELDS {
        if let Some(value) = fields.remove(in_spec) {
            fields.insert(in_etcd.into(), value);
        }
    }
    fields.retain(|_, value| *value != false && *value != 0);
    Document::from_fields(fields)
}

/// The `metadata` of a new object. A pool keeps its labels and annotations.
pub(super) fn metadata(key: &Key, name: &str, value: &[u8]) -> Value {
    let mut metadata = json!({"name": name});
    if let Key::Pool(_) = key
        && let Ok(pool) = serde_json::from_slice::<Value>(value)
    {
        for field in ["labels", "annotations"] {
            if let Some(value) = pool["metadata"].get(field) {
                metadata[field] = value.clone();
            }
        }
    }
    metadata
}

/// Replaces an object's annotations with those in a value.
pub(super) fn annotate_as(object: &mut Value, value: &[u8]) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    metadata.remove("annotations");
    if let Ok(mut value) = serde_json::from_slice::<Value>(value) {
        let annotations = value["metadata"]["annotations"].take();
        if !annotations.is_null() {
            metadata.insert("annotations".into(), annotations);
        }
    }
}

/// A flag in JSON: a string if `is_text`, as in affinities of `crd.projectcalico.org`; otherwise a boolean.
pub(crate) fn flag(value: bool, is_text: bool) -> Value {
    if is_text {
        value.to_string().into()
    } else {
        value.into()
    }
}

/// The `spec` of the object with `key`, for a value in etcd's form. `classic` is true for the group
/// `crd.projectcalico.org`. `None` if the value has no form in Kubernetes.
pub(crate) fn spec(key: &Key, value: &[u8], classic: bool) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(value).ok()?;
    match key {
        Key::Block(_) => convert_block(value.as_object_mut()?),
        Key::Handle(id) => {
            value
                .as_object_mut()?
                .insert("handleID".into(), id.as_str().into());
        }
        Key::Affinity(key) => convert_affinity(value.as_object_mut()?, key, classic),
        Key::IpamConfig => {
            let fields = value.as_object_mut()?;
            for (in_etcd, in_spec) in RENAMED_FIELDS {
                // In etcd, a field that is false is omitted, but the schema requires both fields (facts 2.7).
                let value = fields.remove(in_etcd).unwrap_or(Value::Bool(false));
                fields.insert(in_spec.into(), value);
            }
        }
        // Other resources are the same in etcd and Kubernetes.
        _ => return value.get("spec").cloned(),
    }
    Some(value)
}

/// Converts the fields of a block to the form that the schema requires.
fn convert_block(fields: &mut Map<String, Value>) {
    if let Some(time) = fields.remove("affinity_claim_time") {
        fields.insert("affinityClaimTime".into(), time);
    }
    if fields.get("affinity").is_some_and(Value::is_null) {
        fields.remove("affinity");
    }
    // The schema does not allow `null`; Calico writes empty values instead.
    for (name, empty) in [
        ("attributes", json!([])),
        ("sequenceNumberForAllocation", json!({})),
    ] {
        if fields.get(name).is_some_and(Value::is_null) {
            fields.insert(name.to_owned(), empty);
        }
    }
    // The schema requires the field, and it is false except in blocks of Calico 3.13 and older (facts 2.4).
    fields.entry("strictAffinity").or_insert(Value::Bool(false));
}

/// Converts the fields of an affinity to the form in Kubernetes, which also has the parts of its key.
fn convert_affinity(fields: &mut Map<String, Value>, key: &AffinityKey, classic: bool) {
    let deleted = fields.get("deleted").and_then(Value::as_bool).unwrap_or_default();
    fields.insert("deleted".into(), flag(deleted, classic));
    fields.insert("node".into(), key.node.as_str().into());
    fields.insert("cidr".into(), key.cidr.to_string().into());
    fields.insert("type".into(), key.kind.to_string().into());
}

/// The labels with which Calico 3.31 and later finds an affinity.
pub(crate) fn labels(key: &Key) -> Map<String, Value> {
    let mut labels = Map::new();
    if let Key::Affinity(affinity) = key {
        for (name, value) in affinity.labels() {
            labels.insert(name.to_owned(), value.into());
        }
    }
    labels
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
        let fresh = spec(
            &block,
            br#"{"attributes":null,"sequenceNumberForAllocation":null}"#,
            false,
        );
        let lists = json!({"attributes": [], "sequenceNumberForAllocation": {}, "strictAffinity": false});
        assert_eq!(fresh, Some(lists));
        let handle = spec(
            &Key::Handle("A.b".into()),
            br#"{"block":{},"deleted":false}"#,
            true,
        );
        assert_eq!(
            handle,
            Some(json!({"block": {}, "deleted": false, "handleID": "A.b"}))
        );
        let key = AffinityKey {
            kind: AffinityType::Host,
            node: "n".into(),
            cidr: "10.0.0.0/30".parse().unwrap(),
        };
        let key = Key::Affinity(key);
        let value = br#"{"state":"pending","deleted":false}"#;
        let of = |classic| spec(&key, value, classic).unwrap()["deleted"].clone();
        assert_eq!((of(true), of(false)), (json!("false"), json!(false)));
        let config = spec(
            &Key::IpamConfig,
            br#"{"auto_allocate_blocks":true,"maxBlocksPerHost":4}"#,
            true,
        );
        let expected = json!({"strictAffinity": false, "autoAllocateBlocks": true, "maxBlocksPerHost": 4});
        assert_eq!(config, Some(expected));
        assert_eq!(labels(&key).len(), 3);
        assert!(labels(&block).is_empty() && spec(&block, b"[]", true).is_none());
    }

    #[test]
    fn the_configuration_is_converted_in_both_directions() {
        let object = json!({"spec": {"strictAffinity": true, "autoAllocateBlocks": false, "maxBlocksPerHost": 0,
            "ipCooldownSeconds": 30}});
        let config = ipam_config(&object);
        assert_eq!(
            serde_json::to_value(&config).unwrap(),
            json!({"strict_affinity": true, "ipCooldownSeconds": 30})
        );
        let fields = spec(&Key::IpamConfig, &serde_json::to_vec(&config).unwrap(), true).unwrap();
        let expected = json!({"strictAffinity": true, "autoAllocateBlocks": false, "ipCooldownSeconds": 30});
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_pool_is_without_what_the_server_adds() {
        let object = json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "status": {"conditions": []},
            "metadata": {"name": "p", "uid": "U", "resourceVersion": "7", "generation": 2, "labels": {"a": "b"}},
            "spec": {"cidr": "10.0.0.0/24"}});
        let pool = pool(&object);
        let expected = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"cidr": "10.0.0.0/24"}});
        let value = serde_json::to_value(&pool).unwrap();
        assert_eq!(value, expected);
        let key = Key::Pool("p".into());
        assert_eq!(
            metadata(&key, "p", value.to_string().as_bytes()),
            expected["metadata"]
        );
        assert_eq!(
            metadata(&Key::IpamConfig, "default", b"{}"),
            json!({"name": "default"})
        );
    }
}
