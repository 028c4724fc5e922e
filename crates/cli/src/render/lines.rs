//! JSON and YAML in which escapes replace the characters that a terminal could interpret. Parsers decode the escapes.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::text::is_unsafe;

/// Writes text line by line. A line with an unsafe character is first passed through `escape`.
pub(in crate::render) struct Lines<'w> {
    out: &'w mut dyn Write,
    line: Vec<u8>,
    escape: fn(&str) -> String,
}

impl<'w> Lines<'w> {
    /// Creates a writer for JSON, in which unsafe characters can occur only in strings.
    pub(in crate::render) fn json(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            line: Vec::new(),
            escape: json_line,
        }
    }

    /// Creates a writer for YAML in which each string is on one line, plain or in double quotes.
    pub(in crate::render) fn yaml(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            line: Vec::new(),
            escape: yaml_line,
        }
    }

    /// Passes a finished line on, with unsafe characters escaped.
    fn pass_on(&mut self) -> io::Result<()> {
        // Both serializers escape ASCII control characters except DEL. Therefore most lines need no check of their
        // characters.
        let is_plain = self.line.is_ascii() && !self.line.contains(&0x7f);
        match str::from_utf8(&self.line) {
            Ok(line) if !is_plain && line.chars().any(|c| c != '\n' && is_unsafe(c)) => {
                self.out.write_all((self.escape)(line).as_bytes())?;
            }
            _ => self.out.write_all(&self.line)?,
        }
        self.line.clear();
        Ok(())
    }
}

impl Write for Lines<'_> {
    /// Collects bytes, and passes each line on as soon as it ends.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.pass_on()?;
            }
        }
        Ok(bytes.len())
    }

    /// Also writes an unfinished last line.
    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.out.flush()
    }
}

/// Escapes text for a JSON string, in which a character above U+FFFF is two escapes, one for each UTF-16 unit.
fn json_line(text: &str) -> String {
    escaped(text, |shown, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    })
}

/// Escapes text for a double-quoted YAML string, in which a character above U+FFFF has eight digits.
fn yaml_string(text: &str) -> String {
    escaped(text, |shown, c| {
        let code = u32::from(c);
        let _ = if code > 0xffff {
            write!(shown, "\\U{code:08x}")
        } else {
            write!(shown, "\\u{code:04x}")
        };
    })
}

/// Escapes the unsafe characters of a line.
fn escaped(text: &str, escape: impl Fn(&mut String, char)) -> String {
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c != '\n' && is_unsafe(c) {
            escape(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Escapes a YAML line, which consists of dashes, followed by a key with a colon, a value, or both. A key or value that
/// needs escapes is put in double quotes.
fn yaml_line(line: &str) -> String {
    // The indent and the dashes of lists stay as they are.
    let start = line.len() - line.trim_start_matches([' ', '-']).len();
    let mut shown = line[..start].to_owned();
    let mut rest = line[start..].trim_end_matches('\n');
    if let Some((key, value)) = split_key(rest) {
        shown.push_str(&yaml_text(key));
        shown.push_str(if value.is_empty() { ":" } else { ": " });
        rest = value;
    }
    if !rest.is_empty() {
        shown.push_str(&yaml_text(rest));
    }
    shown.push('\n');
    shown
}

/// Splits a line of YAML into key and value; `None` if it has no key. A quoted key keeps its quotes.
fn split_key(text: &str) -> Option<(&str, &str)> {
    let key_end = if let Some(quoted) = text.strip_prefix('"') {
        let mut is_escaped = false;
        let is_closing_quote = |c: char| {
            let is_closing = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_closing
        };
        // The key includes both quotes.
        quoted.find(is_closing_quote)? + 2
    } else if let Some(colon) = text.find(": ") {
        colon
    } else if text.ends_with(':') {
        text.len() - 1
    } else {
        return None;
    };
    let value = text[key_end..].strip_prefix(':')?;
    Some((&text[..key_end], value.strip_prefix(' ').unwrap_or(value)))
}

/// Formats a text as a scalar of YAML, with escapes for unsafe characters. Only a scalar in double quotes can have
/// them.
fn yaml_text(text: &str) -> String {
    let is_quoted = text.starts_with('"');
    if is_quoted || !text.chars().any(is_unsafe) {
        return yaml_string(text);
    }
    // Within double quotes, backslashes and quotes need an escape, too.
    let content = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", yaml_string(&content))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::yaml;
    use super::*;

    /// A C1 control character, DEL, characters that change the writing direction, zero-width characters, and a tag.
    const UNSAFE: &str = "\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200b}\u{ad}\u{e0041}";

    fn assert_safe(text: &str) {
        assert!(!text.chars().any(|c| c != '\n' && is_unsafe(c)), "{text:?}");
    }

    #[test]
    fn json_and_yaml_escape_unsafe_characters_without_loss() {
        for text in [
            UNSAFE.to_owned(),
            "\u{202e}a".into(),
            "a\\b\"c: d\u{202e}".into(),
            "\u{202e}: b".into(),
        ] {
            let value =
                serde_json::json!({"a": text, "list": [text, {text.clone(): [text]}], text.clone(): 1});

            let mut json = Vec::new();
            let mut out = Lines::json(&mut json);
            serde_json::to_writer_pretty(&mut out, &value).unwrap();
            out.flush().unwrap();
            assert_safe(str::from_utf8(&json).unwrap());
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap(), value);

            let mut written = Vec::new();
            yaml::write(&value, &mut written).unwrap();
            let written = String::from_utf8(written).unwrap();
            assert_safe(&written);
            assert_eq!(
                serde_yaml::from_str::<serde_json::Value>(&written).unwrap(),
                value,
                "{written}"
            );
        }
        let plain = BTreeMap::from([("a", "é: ü")]);
        let mut written = Vec::new();
        yaml::write(&plain, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "a: \"é: ü\"\n");
    }
}
