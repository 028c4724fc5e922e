//! The values that Calico 2.x stores (facts 6.2), where they differ from those in Calico 3.

use serde_json::{Map, Value};

use crate::key::Key;

/// Block fields that Calico 2.x does not know and would drop with its next write.
const OF_BLOCK: [&str; 4] =
    ["sequenceNumber", "sequenceNumberForAllocation", "affinity_claim_time", "deleted"];

/// Converts a Calico 3 value to the Calico 2.x form: without fields that 2.x does not know, and with those that 2.x
/// always writes. `None` if both forms are the same.
pub fn value(key: &Key, json: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(json).ok()?;
    let fields = value.as_object_mut()?;
    let changed = match key {
        Key::Block(_) => {
            let dropped = OF_BLOCK.iter().filter(|field| fields.remove(**field).is_some()).count();
            dropped + name_all_fields(fields)
        }
        // An affinity without a state is confirmed, the only state in Calico 2.x.
        Key::Affinity(_) => {
            let is_confirmed = fields.get("state").is_some_and(|state| state == "confirmed");
            let state = is_confirmed.then(|| fields.remove("state"));
            usize::from(state.is_some()) + usize::from(fields.remove("deleted").is_some())
        }
        Key::Handle(_) => usize::from(fields.remove("deleted").is_some()),
        _ => 0,
    };
    (changed > 0).then(|| value.to_string().into_bytes())
}

/// Adds missing handles and attributes to owner records as `null`. Returns the number of added fields.
fn name_all_fields(block: &mut Map<String, Value>) -> usize {
    let records = block.get_mut("attributes").and_then(Value::as_array_mut).into_iter().flatten();
    let mut added = 0;
    for record in records.filter_map(Value::as_object_mut) {
        let before = record.len();
        for field in ["handle_id", "secondary"] {
            record.entry(field).or_insert(Value::Null);
        }
        added += record.len() - before;
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(key: &str, json: &str) -> Option<String> {
        let key = Key::parse(key).unwrap().unwrap();
        value(&key, json.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn what_calico_2_does_not_know_is_left_out() {
        let affinity = "/calico/ipam/v2/host/n/ipv4/block/10.0.0.0-26";
        assert_eq!(converted(affinity, r#"{"state":"confirmed","deleted":false}"#).as_deref(), Some("{}"));
        assert_eq!(converted(affinity, "{}"), None);
        let handle = r#"{"block":{"10.0.0.0/26":1},"deleted":false}"#;
        let expected = r#"{"block":{"10.0.0.0/26":1}}"#;
        assert_eq!(converted("/calico/ipam/v2/handle/ns.pod", handle).as_deref(), Some(expected));
        let block = r#"{"affinity":"host:n","affinity_claim_time":"2026-05-01T10:11:12Z","attributes":[{}],
            "deleted":false,"sequenceNumber":7}"#;
        let expected = r#"{"affinity":"host:n","attributes":[{"handle_id":null,"secondary":null}]}"#;
        let key = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26";
        assert_eq!(converted(key, block).as_deref(), Some(expected));
        assert_eq!(converted(key, expected), None);
        assert_eq!(converted(key, "no JSON"), None);
    }
}
