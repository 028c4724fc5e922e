//! Formatting of text and numbers.

use std::fmt::Display;

pub(crate) use calipam_model::words::{
    count, escape, is_unsafe, join, joined, quoted, shell_word, thousands,
};

/// Returns `text`, or a dash if `text` is empty.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Formats a value, or a dash if there is no value or its text is empty.
pub(crate) fn dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| or_dash(&value.to_string()).to_owned())
}
