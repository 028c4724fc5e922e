//! Compares results with those in a trace, field by field, and lists the differences that are intended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

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
        write!(
            f,
            "{}\n  expected {}\n  found    {}",
            self.field, self.expected, self.found
        )
    }
}

impl Difference {
    pub(crate) fn new(field: impl Into<String>, expected: impl ToString, found: impl ToString) -> Self {
        Self {
            field: field.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// Returns every field in which `found` differs from `expected`.
pub(crate) fn compare(
    field: &str,
    expected: &Value,
    found: &Value,
    symbols: &mut Symbols,
) -> Vec<Difference> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
            let place = |name: &str| {
                if name.contains('/') {
                    format!("{field}[{name}]")
                } else {
                    format!("{field}.{name}")
                }
            };
            let compared = names
                .into_iter()
                .map(|name| match (expected.get(name), found.get(name)) {
                    (Some(expected), Some(found)) => compare(&place(name), expected, found, symbols),
                    (expected, found) => {
                        let text =
                            |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
                        vec![Difference::new(place(name), text(expected), text(found))]
                    }
                });
            compared.flatten().collect()
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs
                .flat_map(|(i, (expected, found))| {
                    compare(&format!("{field}[{i}]"), expected, found, symbols)
                })
                .collect()
        }
        (Value::String(text), _) if let Some(matched) = symbols.matches(text, found) => {
            let other = |wanted| Difference::new(field, format!("{text} ({wanted})"), found);
            matched.err().map(other).into_iter().collect()
        }
        _ if expected != found => vec![Difference::new(field, expected, found)],
        _ => Vec::new(),
    }
}

/// A step of a trace in which calipam differs on purpose.
#[derive(Clone, Debug, Deserialize)]
pub struct KnownDifference {
    pub trace: String,
    /// The step, counted from 0.
    pub step: usize,
    pub reason: String,
}

/// Returns the project's list of differences between calipam and Calico that are intended.
///
/// # Panics
/// Panics if the built-in list is malformed. A test reads it.
pub fn known() -> Vec<KnownDifference> {
    let list: BTreeMap<String, Vec<KnownDifference>> =
        toml::from_str(include_str!("../differences.toml")).expect("the built-in list is well formed");
    list.into_values().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_list_has_a_reason() {
        let known = known();
        assert!(!known.is_empty() && known.iter().all(|difference| difference.reason.len() > 40));
    }
}
