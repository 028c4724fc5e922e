//! Compares results with those in a trace, field by field.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::symbols::Symbols;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldDifference {
    /// The path of the field, such as `writes[2].value.allocations[0]`.
    pub field: String,
    pub expected: String,
    pub found: String,
}

/// Adds every field in which `found` differs from `expected` to `differences`.
pub(crate) fn compare(
    field: &str,
    expected: &Value,
    found: &Value,
    symbols: &mut Symbols,
    differences: &mut Vec<FieldDifference>,
) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            objects(field, expected, found, symbols, differences)
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{field}[{index}]"), expected, found, symbols, differences);
            }
        }
        (Value::String(text), _) => match symbols.matches(text, found) {
            Some(Ok(())) => {}
            Some(Err(wanted)) => differences.push(FieldDifference {
                field: field.to_owned(),
                expected: format!("{text} ({wanted})"),
                found: found.to_string(),
            }),
            None => equal(field, expected, found, differences),
        },
        _ => equal(field, expected, found, differences),
    }
}

fn objects(
    field: &str,
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
    symbols: &mut Symbols,
    differences: &mut Vec<FieldDifference>,
) {
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    for name in names {
        let place = if name.contains('/') { format!("{field}[{name}]") } else { format!("{field}.{name}") };
        match (expected.get(name), found.get(name)) {
            (Some(expected), Some(found)) => compare(&place, expected, found, symbols, differences),
            (expected, found) => {
                let text = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
                differences.push(FieldDifference {
                    field: place,
                    expected: text(expected),
                    found: text(found),
                });
            }
        }
    }
}

fn equal(field: &str, expected: &Value, found: &Value, differences: &mut Vec<FieldDifference>) {
    if expected != found {
        let (expected, found) = (expected.to_string(), found.to_string());
        differences.push(FieldDifference { field: field.to_owned(), expected, found });
    }
}
