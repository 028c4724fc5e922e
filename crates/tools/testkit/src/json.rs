//! Walks through JSON.

use serde_json::Value;

/// The JSON pointers of all values in a document, beginning with the document itself (the empty pointer).
pub fn pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, "", &mut found);
    found
}

fn collect(value: &Value, path: &str, into: &mut Vec<String>) {
    into.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(inner, &format!("{path}/{name}"), into);
            }
        }
        Value::Array(items) => {
            for (place, inner) in items.iter().enumerate() {
                collect(inner, &format!("{path}/{place}"), into);
            }
        }
        _ => {}
    }
}
