//! The values that Calico 2.x stores (docs/etcdv2.md), where they differ from those in Calico 3.

use serde_json::Value;

use crate::key::Key;

/// Block fields that do not exist in Calico 2.x, which would drop them with its next write.
const OF_BLOCK: [&str; 4] = [
    "sequenceNumber",
    "sequenceNumberForAllocation",
    "affinity_claim_time",
    "deleted",
];

/// Fields of owner records that Calico 2.x always writes, as `null` if they are missing.
const OF_RECORD: [&str; 2] = ["handle_id", "secondary"];

/// Converts a Calico 3 value to the Calico 2.x form: removes fields that do not exist in 2.x, and adds those that 2.x
/// always writes. `None` if both forms are the same or the value is not a JSON object.
pub fn value(key: &Key, json: &[u8]) -> Option<Vec<u8>> {
    let before: Value = serde_json::from_slice(json).ok()?;
    let mut value = before.clone();
    let fields = value.as_object_mut()?;
    match key {
        Key::Block(_) => {
            for field in OF_BLOCK.iter() {
                drop(fields.remove(*field));
            }
            let records = fields
                .get_mut("attributes")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten();
            for record in records.filter_map(Value::as_object_mut) {
                for field in OF_RECORD {
                    record.entry(field).or_insert(Value::Null);
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
        Key::Handle(_) => drop(fields.remove("deleted")),
        _ => {}
    }
    (value != before).then(|| value.to_string().into_bytes())
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
