//! Values from the generator come back unchanged from the model. The generator and the model implement the data format
//! independently, without shared code.

use calipam_model::affinity::Affinity;
use calipam_model::block::BlockContent;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::DefectKind;
use calipam_testkit::cluster::{Cluster, ClusterSpec, wire};
use calipam_testkit::rounds;
use serde_json::Value;

fn clusters() -> Vec<Cluster> {
    (0..rounds(3))
        .map(|seed| Cluster::all_faults(ClusterSpec::new(seed), 1))
        .collect()
}

/// Converts a block to the current format: without the nulls of earlier releases, and with fields that they omitted.
fn as_written_today(mut block: Value) -> Value {
    let fields = block.as_object_mut().unwrap();
    for attribute in fields["attributes"].as_array_mut().unwrap() {
        attribute
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
    }
    fields.entry("sequenceNumberForAllocation").or_insert(Value::Null);
    fields.entry("sequenceNumber").or_insert(0.into());
    fields.entry("deleted").or_insert(false.into());
    block
}

#[test]
fn blocks_come_back_byte_for_byte() {
    for cluster in clusters() {
        for block in cluster.blocks() {
            let value = block.value();
            let read = BlockContent::parse(&value).unwrap();
            let printed = serde_json::to_vec(read.sound().unwrap()).unwrap();
            if block.era == wire::Era::Current {
                assert_eq!(
                    String::from_utf8(printed).unwrap(),
                    String::from_utf8(value).unwrap()
                );
            } else {
                let printed: Value = serde_json::from_slice(&printed).unwrap();
                assert_eq!(printed, as_written_today(serde_json::from_slice(&value).unwrap()));
            }
        }
    }
}

#[test]
fn keys_handles_and_affinities_come_back() {
    for cluster in clusters() {
        let mut seen = [0; 3];
        cluster.for_each_entry(|path, value| {
            let Some(path) = std::str::from_utf8(path).ok() else {
                return;
            };
            let Ok(Some(key)) = Key::parse(path) else { return };
            if key.to_string() != path {
                // The test `keys_that_are_not_canonical_are_defects` covers these keys.
                return;
            }
            let printed = match key {
                Key::Handle(id) => {
                    seen[0] += 1;
                    Handle::parse(&id, value)
                        .ok()
                        .map(|h| serde_json::to_vec(&h).unwrap())
                }
                Key::Affinity(key) if value.len() > 2 => {
                    seen[1] += 1;
                    Affinity::parse(key, value)
                        .ok()
                        .map(|a| serde_json::to_vec(&a).unwrap())
                }
                _ => {
                    seen[2] += 1;
                    None
                }
            };
            if let Some(printed) = printed {
                let (a, b): (Value, Value) = (
                    serde_json::from_slice(&printed).unwrap(),
                    serde_json::from_slice(value).unwrap(),
                );
                assert_eq!(a, without_null(b), "{path}");
            }
        });
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}

/// A cluster with every fault has three keys that Calico lists, but cannot get.
#[test]
fn keys_that_are_not_canonical_are_defects() {
    for cluster in clusters() {
        let truth = cluster.truth().lines();
        let snapshot = cluster.snapshot();
        let mut strange = 0;
        for path in cluster.keys().filter_map(|path| std::str::from_utf8(path).ok()) {
            let Ok(Some(key)) = Key::parse(path) else { continue };
            let defect = snapshot.defects.iter().find(|d| d.path == path);
            let is_strange = key.to_string() != path;
            let is_found = defect.is_some_and(|d| matches!(d.kind, DefectKind::Key(_)));
            assert_eq!(is_strange, is_found, "{path}");
            if let (true, Some(defect)) = (is_strange, defect) {
                strange += 1;
                assert!(truth.contains(&format!("undecodable-object {path}")), "{path}");
                assert!(
                    cluster.get(&key.to_string()).is_none(),
                    "a get finds another object than {path}"
                );
                assert_eq!(defect.key.as_ref(), Some(&key));
            }
        }
        assert_eq!(strange, 3);
    }
}

/// `"block":null` in a handle is written as an empty map.
fn without_null(mut value: Value) -> Value {
    if value["block"].is_null() && value.get("block").is_some() {
        value["block"] = serde_json::json!({});
    }
    value
}
