//! Differences between calipam and Calico that are intended.

use serde::Deserialize;

/// A step of a trace in which calipam differs on purpose.
#[derive(Clone, Debug, Deserialize)]
pub struct KnownDifference {
    pub trace: String,
    /// The step, counted from 0.
    pub step: usize,
    pub reason: String,
}

#[derive(Deserialize)]
struct List {
    difference: Vec<KnownDifference>,
}

/// Returns the project's list of known differences.
///
/// # Panics
/// Panics if the built-in list is malformed. A test reads it.
pub fn known() -> Vec<KnownDifference> {
    let list: List =
        toml::from_str(include_str!("../differences.toml")).expect("the built-in list is well formed");
    list.difference
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
