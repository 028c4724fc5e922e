//! Texts and numbers for people.

use std::borrow::Cow;

pub(crate) use calipam_model::words::{count, is_unsafe, quoted, shell_word, thousands};

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

/// Joins texts with `between`.
pub(crate) fn joined(texts: impl IntoIterator<Item: ToString>, between: &str) -> String {
    texts.into_iter().map(|text| text.to_string()).collect::<Vec<_>>().join(between)
}

/// Joins words into a phrase: `a`, `a and b`, `a, b and c`.
pub(crate) fn join<T: AsRef<str>>(words: &[T]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [others @ .., last] => {
            format!("{} and {}", joined(others.iter().map(AsRef::as_ref), ", "), last.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_that_moves_its_cursor() {
        assert_eq!(escape("web-0"), "web-0");
        assert_eq!(escape("a\r\neth0"), "a\\r\\neth0");
        assert_eq!(escape("\u{1b}[2J\u{9b}31m"), "\\u{1b}[2J\\u{9b}31m");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escape("日本 é"), "日本 é");
    }

    #[test]
    fn phrases() {
        assert_eq!(
            (join::<&str>(&[]), join(&["a"]), join(&["a", "b", "c"])),
            ("".into(), "a".into(), "a, b and c".into())
        );
    }
}
