//! Edits of text, in which earlier versions of calipam wrote a long value that a change left: what makes it of the value
//! before. This one writes every value whole: compressed, that takes about as much room.

use bytes::Bytes;
use serde::Deserialize;

use super::entry::{ChangeRecord, Value, Version, text};

/// A change as its line holds it.
#[derive(Deserialize)]
pub(super) struct WrittenChange {
    key: String,
    before: Option<Version>,
    after: Option<WrittenValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum WrittenValue {
    #[serde(with = "text")]
    Text(Bytes),
    Base64(String),
    Edits(Vec<TextEdit>),
}

/// Of the text before: so many bytes stay, so many after them go, and this comes in their place. Bytes after the last edit
/// stay.
#[derive(Debug, Deserialize)]
struct TextEdit(usize, usize, String);

#[derive(Debug, thiserror::Error)]
#[error("edits do not fit the value before them")]
pub(super) struct UnfitEdits;

impl TryFrom<WrittenChange> for ChangeRecord {
    type Error = UnfitEdits;

    fn try_from(WrittenChange { key, before, after }: WrittenChange) -> Result<Self, UnfitEdits> {
        let after = match (after, before.as_ref().map(|version| &version.value)) {
            (None, _) => None,
            (Some(WrittenValue::Text(text)), _) => Some(Value::Text(text)),
            (Some(WrittenValue::Base64(text)), _) => Some(Value::Base64(text)),
            (Some(WrittenValue::Edits(edits)), Some(Value::Text(before))) => {
                let before = std::str::from_utf8(before).map_err(|_| UnfitEdits)?;
                Some(Value::Text(apply(before, &edits).ok_or(UnfitEdits)?.into()))
            }
            (Some(WrittenValue::Edits(_)), _) => return Err(UnfitEdits),
        };
        Ok(Self { key, before, after })
    }
}

/// The text that edits make; `None` if they do not fit.
fn apply(before: &str, edits: &[TextEdit]) -> Option<String> {
    let mut after = String::with_capacity(before.len());
    let mut rest = before;
    for TextEdit(keep, remove, insert) in edits {
        let (kept, others) = rest.split_at_checked(*keep)?;
        rest = others.split_at_checked(*remove)?.1;
        after.push_str(kept);
        after.push_str(insert);
    }
    after.push_str(rest);
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(before: &str, edits: &str) -> Option<String> {
        let edits: serde_json::Value = serde_json::from_str(edits).unwrap();
        let before = serde_json::json!({ "revision": "7", "text": before });
        let line = serde_json::json!({ "key": "k", "before": before, "after": { "edits": edits } });
        let change: ChangeRecord = serde_json::from_value(line).ok()?;
        let after = change.after.unwrap().bytes().unwrap();
        Some(String::from_utf8(after.to_vec()).unwrap())
    }

    #[test]
    fn what_earlier_versions_wrote_of_a_block_is_its_value() {
        let record = |digit: &str| {
            let id = digit.repeat(16);
            format!(r#"{{"handle_id":"net.{id}","secondary":{{"node":"n","pod":"web-{digit}"}}}}"#)
        };
        let block = |allocations: &str, unallocated: &str, records: &[&str], number: u32| {
            let records: Vec<String> = records.iter().map(|digit| record(digit)).collect();
            let records = records.join(",");
            format!(
                r#"{{"cidr":"10.0.0.0/29","affinity":"host:n","allocations":[{allocations}],"unallocated":[{unallocated}],"attributes":[{records}],"sequenceNumber":{number},"deleted":false}}"#
            )
        };
        let before = block("0,1,2,3,null,null,null,null", "4,5,6,7", &["0", "1", "2", "3"], 4);
        let after = block("0,null,1,2,null,null,null,null", "4,5,6,7,1", &["0", "2", "3"], 5);
        let edits = r#"[[59,0,"null,"],[4,2,""],[42,3,"7,1],"],[90,76,""],[153,19,"\"sequenceNumber\":5,"]]"#;
        assert_eq!(read(&before, edits), Some(after));
        assert_eq!(read(&before, "[]"), Some(before));
    }

    #[test]
    fn edits_that_do_not_fit_make_nothing() {
        for edits in [r#"[[4,0,""]]"#, r#"[[0,4,""]]"#, r#"[[1,0,"x"]]"#] {
            assert_eq!(read("äb", edits), None, "{edits}");
        }
        assert_eq!(read("äb", r#"[[2,1,"c"]]"#).as_deref(), Some("äc"));
        assert_eq!(read("äb", &format!("[[{0},{0},\"\"]]", usize::MAX)), None);
    }
}
