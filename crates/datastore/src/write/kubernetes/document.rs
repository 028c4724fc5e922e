//! Converts pools and the allocator's configuration between custom resources and etcd's form (facts 1.6, 1.7,
//! 2.7).

use calipam_model::document::Document;
use calipam_model::key::Key;
use serde_json::{Value, json};

/// The parts of a pool's metadata that a repair keeps or needs. Others belong to the server, or change by themselves.
const METADATA: [&str; 5] = ["name", "labels", "annotations", "finalizers", "deletionTimestamp"];

/// Fields of the configuration with different names in etcd and in `spec`.
const RENAMED: [(&str, &str); 2] =
    [("strict_affinity", "strictAffinity"), ("auto_allocate_blocks", "autoAllocateBlocks")];

/// A pool without the additions of the server, for comparison with what was written.
pub(crate) fn pool(object: &Value) -> Document {
    let of = |part: &str| object[part].as_object().cloned().unwrap_or_default();
    let mut metadata = of("metadata");
    metadata.retain(|name, _| METADATA.contains(&name.as_str()));
    let fields = [
        ("apiVersion", "projectcalico.org/v3".into()),
        ("kind", "IPPool".into()),
        ("metadata", metadata.into()),
        ("spec", of("spec").into()),
    ];
    Document::from_fields(
        fields.map(|(name, value): (_, Value)| (name.to_owned(), value)).into_iter().collect(),
    )
}

/// The configuration in etcd's form, without fields that are false or zero.
pub(crate) fn ipam_config(object: &Value) -> Document {
    let mut fields = object["spec"].as_object().cloned().unwrap_or_default();
    for (in_etcd, in_spec) in RENAMED {
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
    if let (Key::Pool(_), Ok(pool)) = (key, serde_json::from_slice::<Value>(value)) {
        for kept in ["labels", "annotations"] {
            if let Some(value) = pool["metadata"].get(kept) {
                metadata[kept] = value.clone();
            }
        }
    }
    metadata
}

/// Sets the annotations of a value on an object.
pub(super) fn annotate_as(object: &mut Value, value: &[u8]) {
    let annotations =
        serde_json::from_slice::<Value>(value).ok().map(|mut value| value["metadata"]["annotations"].take());
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("annotations");
        let annotations = annotations.filter(|annotations| !annotations.is_null());
        metadata.extend(annotations.map(|annotations| ("annotations".to_owned(), annotations)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::kubernetes::form::spec;

    #[test]
    fn the_configuration_goes_there_and_back() {
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
        assert_eq!(metadata(&key, "p", value.to_string().as_bytes()), expected["metadata"]);
        assert_eq!(metadata(&Key::IpamConfig, "default", b"{}"), json!({"name": "default"}));
    }
}
