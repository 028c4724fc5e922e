//! Differences between calipam and Calico that are intended.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A step of a trace in which calipam differs on purpose.
#[derive(Clone, Debug, Deserialize)]
pub struct KnownDifference {
    pub trace: String,
    /// The step, counted from 0.
    pub step: usize,
    pub reason: String,
}

/// Returns the project's list of known differences.
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
