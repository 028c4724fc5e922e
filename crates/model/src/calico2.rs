//! The values that Calico 2.x stores (docs/etcdv2.md), where they differ from those in Calico 3.

use serde_json::Value;

use crate::key::Key;

/// Block fields that do not exist in Calico 2.x, which would drop them with its next write.
const UNKNOWN_BLOCK_FIELDS: [&str; 4] = [
    "sequenceNumber",
    "sequenceNumberForAllocation",
    "affinity_claim_time",
    "deleted",
];

/// Fields of owner records that Calico 2.x always writes, as `null` if they are missing.
const RECORD_FIELDS: [&str; 2] = ["handle_id", "secondary"];

/// Converts a Calico 3 value to the Calico 2.x form: removes fields that do not exist in 2.x, and adds those that 2.x
/// always writes. `None` if both forms are the same or the value is not a JSON object.
pub fn value(key: &Key, json: &[u8]) -> Option<Vec<u8>> {
    let original: Value = serde_json::from_slice(json).ok()?;
    let mut converted = original.clone();
    let fields = converted.as_object_mut()?;
    match key {
        Key::Block(_) => {
            for field in UNKNOWN_BLOCK_FIELDS {
                fields.remove(field);
            }
            if let Some(Value::Array(records)) = fields.get_mut("attributes") {
                for record in records.iter_mut().filter_map(Value::as_object_mut) {
                    for field in RECORD_FIELDS {
                        record.entry(field).or_insert(Value::Null);
                    }
                }
            }
        }
        Key::Affinity(_) => {
            // An affinity without a state is confirmed, the only state in Calico 2.x.
            if fields.get("state").is_some_and(|state| state == "confirmed") {
                fields.remove("state");
            }
            fields.remove("deleted");
        }
        Key::Handle(_) => {
            fields.remove("deleted");
        }
        _ => {}
    }

    if converted == original {
        return None;
    }
    Some(converted.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(key: &str, json: &str) -> Option<String> {
        let key = Key::parse(key).unwrap().unwrap();
        value(&key, json.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn fields_that_calico_2_does_not_know_are_left_out() {
        let affinity = "/calico/ipam/v2/host/n/ipv4/block/10.0.0.0-26";
        assert_eq!(
            converted(affinity, r#"{"state":"confirmed","deleted":false}"#).as_deref(),
            Some("{}")
        );
        assert_eq!(converted(affinity, "{}"), None);
        let handle = r#"{"block":{"10.0.0.0/26":1},"deleted":false}"#;
        let expected = r#"{"block":{"10.0.0.0/26":1}}"#;
        assert_eq!(
            converted("/calico/ipam/v2/handle/ns.pod", handle).as_deref(),
            Some(expected)
        );
        let block = r#"{"affinity":"host:n","affinity_claim_time":"2026-05-01T10:11:12Z","attributes":[{}],
            "deleted":false,"sequenceNumber":7}"#;
        let expected = r#"{"affinity":"host:n","attributes":[{"handle_id":null,"secondary":null}]}"#;
        let key = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
        assert_eq!(converted(key, block).as_deref(), Some(expected));
        assert_eq!(converted(key, expected), None);
        assert_eq!(converted(key, "no JSON"), None);
    }
}
