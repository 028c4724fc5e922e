//! Formatting of text and numbers.

use std::borrow::Cow;
use std::fmt::Display;

pub(crate) use calipam_model::words::{count, is_unsafe, join, joined, quoted, shell_word, thousands};

/// Escapes text from the datastore for terminals: control characters, including line breaks and escape sequences, and
/// characters that have no width or change the writing direction.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Returns `text`, or a dash if `text` is empty.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Formats a value, or a dash if there is no value or its text is empty.
pub(crate) fn dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| or_dash(&value.to_string()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("web-0"), "web-0");
        assert_eq!(escape("a\r\neth0"), "a\\r\\neth0");
        assert_eq!(escape("\u{1b}[2J\u{9b}31m"), "\\u{1b}[2J\\u{9b}31m");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escape("a\u{e0041}b"), "a\\u{e0041}b");
        assert_eq!(escape("日本 é"), "日本 é");
    }
}
