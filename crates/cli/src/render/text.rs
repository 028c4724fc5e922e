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

/// Joins words into a phrase: `a`, `a and b`, `a, b and c`.
pub(crate) fn join(words: &[&str]) -> String {
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
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
            (join(&[]), join(&["a"]), join(&["a", "b", "c"])),
            ("".into(), "a".into(), "a, b and c".into())
        );
    }
}
