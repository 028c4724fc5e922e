//! Node label selectors.

use calipam_model::selector::Selector;

/// Parses a selector as Calico does.
pub(crate) fn selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|reason| {
        format!(
            "{reason}\nexpected a selector as in a pool's nodeSelector, such as `rack == 'a'` or `has(gpu)`"
        )
    })
}
