//! Selector errors.

use super::MAX_DEPTH;
use super::tokens::{MAX_LABEL, Token};

/// The reason why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("expected {0}, but the selector ends")]
    Ends(&'static str),
    #[error("expected {wanted}, found {found}")]
    Unexpected { found: String, wanted: &'static str },
    #[error("expected an operator after the label {label:?}, found {found}")]
    NotAnOperator { found: String, label: String },
    #[error("the label {0:?} is followed by no operator")]
    NoOperator(String),
    #[error("a string has no closing quote")]
    OpenText,
    #[error("`{0}(` has no closing `)`")]
    OpenFunction(&'static str),
    #[error("a label is longer than {MAX_LABEL} bytes")]
    LongLabel,
    /// The selector is nested too deeply for this program. Calico has no such limit.
    #[error("parentheses nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl SelectorError {
    pub(super) fn unexpected(found: &Token, wanted: &'static str) -> Self {
        Self::Unexpected { found: found.to_string(), wanted }
    }
}
