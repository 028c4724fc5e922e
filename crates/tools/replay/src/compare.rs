//! Compares results with those in a trace, field by field.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::symbols::Symbols;

/// A difference between a replay and its trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path of the field, such as `writes[2].value.allocations[0]` or `after[/calico/ipam/v2/config]`.
    pub field: String,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  expected {}\n  found    {}", self.field, self.expected, self.found)
    }
}

impl Difference {
    pub(crate) fn new(field: impl Into<String>, expected: impl ToString, found: impl ToString) -> Self {
        Self { field: field.into(), expected: expected.to_string(), found: found.to_string() }
    }
}

/// Adds every field in which `found` differs from `expected` to `differences`.
pub(crate) fn compare(
    field: &str,
    expected: &Value,
    found: &Value,
    symbols: &mut Symbols,
    differences: &mut Vec<Difference>,
) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            objects(field, expected, found, symbols, differences);
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{field}[{index}]"), expected, found, symbols, differences);
            }
        }
        (Value::String(text), _) if let Some(matched) = symbols.matches(text, found) => {
            let other = |wanted| Difference::new(field, format!("{text} ({wanted})"), found);
            differences.extend(matched.err().map(other));
        }
        _ if expected != found => differences.push(Difference::new(field, expected, found)),
        _ => {}
    }
}

fn objects(
    field: &str,
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
    symbols: &mut Symbols,
    differences: &mut Vec<Difference>,
) {
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    for name in names {
        let place = if name.contains('/') { format!("{field}[{name}]") } else { format!("{field}.{name}") };
        match (expected.get(name), found.get(name)) {
            (Some(expected), Some(found)) => compare(&place, expected, found, symbols, differences),
            (expected, found) => {
                let text = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
                differences.push(Difference::new(place, text(expected), text(found)));
            }
        }
    }
}
