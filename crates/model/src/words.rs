//! Numbers, phrases and paths for people to read.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;

/// A whole number with commas between thousands. Numbers of addresses can exceed 64 bits.
pub fn thousands(number: impl Display) -> String {
    let text = number.to_string();
    let mut digits = text.as_str();
    let mut grouped = String::new();
    if let Some(magnitude) = text.strip_prefix('-') {
        digits = magnitude;
        grouped.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        let remaining = digits.len() - index;
        if index > 0 && remaining.is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its unit: `1 block`, `16,384 blocks`.
pub fn count(number: impl Display, one: &str, many: &str) -> String {
    let number = thousands(number);
    let unit = if number == "1" { one } else { many };
    format!("{number} {unit}")
}

/// Joins words into a phrase: `a`, `a and b`, `a, b and c`.
pub fn join<T: AsRef<str>>(words: &[T]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [others @ .., last] => {
            let others: Vec<&str> = others.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", others.join(", "), last.as_ref())
        }
    }
}

/// Joins values as text, with the separator `between`.
pub fn joined(texts: impl IntoIterator<Item: ToString>, between: &str) -> String {
    texts
        .into_iter()
        .map(|text| text.to_string())
        .collect::<Vec<_>>()
        .join(between)
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

/// Quotes a word for a shell. Characters that are unsafe in a terminal are escaped in a form that only bash and zsh
/// understand.
pub fn shell_word(text: &str) -> String {
    let needs_no_quotes = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(needs_no_quotes) {
        return text.to_owned();
    }

    if text.chars().any(is_unsafe) {
        let escaped = text.chars().map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_unsafe(c) && u32::from(c) > 0xffff => format!("\\U{:08x}", u32::from(c)),
            c if is_unsafe(c) => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        });
        return format!("$'{}'", escaped.collect::<String>());
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Escapes text from outside for terminals and logs: control characters, including line breaks and escape sequences, and
/// characters that have no width or change the writing direction.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// True for a character that a terminal might not treat as text.
pub fn is_unsafe(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let has_no_width = matches!(c, '\u{00ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    let is_tag = matches!(c, '\u{e0000}'..='\u{e007f}');
    let is_line_break = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || changes_direction || has_no_width || is_tag || is_line_break
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(-1_234_567), "-1,234,567");
        assert_eq!(
            thousands(u128::MAX),
            "340,282,366,920,938,463,463,374,607,431,768,211,455"
        );
        let blocks = |number: i64| count(number, "block", "blocks");
        assert_eq!(
            [1, 0, -1, 16_384].map(blocks),
            ["1 block", "0 blocks", "-1 blocks", "16,384 blocks"]
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("web-0"), "web-0");
        assert_eq!(escape("a\r\neth0"), "a\\r\\neth0");
        assert_eq!(escape("\u{1b}[2J\u{9b}31m"), "\\u{1b}[2J\\u{9b}31m");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escape("a\u{e0041}b"), "a\\u{e0041}b");
        assert_eq!(escape("日本 é"), "日本 é");
    }

    #[test]
    fn phrases() {
        let expected = ("".into(), "a".into(), "a, b and c".into());
        assert_eq!(
            (join::<&str>(&[]), join(&["a"]), join(&["a", "b", "c"])),
            expected
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("shop/web-0"), "shop/web-0");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(
            shell_word("it's\u{1b}[2J\\\u{202e}"),
            r"$'it\'s\u001b[2J\\\u202e'"
        );
    }

    #[test]
    fn paths_can_be_pasted() {
        assert_eq!(quoted(Path::new("/tmp/a-1.jsonl")), "/tmp/a-1.jsonl");
        assert_eq!(quoted(Path::new("it's here")), "'it'\\''s here'");
    }
}
