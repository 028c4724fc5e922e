//! JSON and YAML in which escapes replace the characters that a terminal could interpret. Parsers decode the escapes.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::text::is_unsafe;

/// The ASCII control character that neither serializer escapes.
const DEL: u8 = 0x7f;

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
        match self.escaped_line() {
            Some(escaped) => self.out.write_all(escaped.as_bytes())?,
            None => self.out.write_all(&self.line)?,
        }
        self.line.clear();
        Ok(())
    }

    /// Returns the line with escapes; `None` if it has no unsafe character.
    fn escaped_line(&self) -> Option<String> {
        // Both serializers escape the other ASCII control characters, so most lines need no check of their
        // characters.
        let is_plain = self.line.is_ascii() && !self.line.contains(&DEL);
        if is_plain {
            return None;
        }
        let line = str::from_utf8(&self.line).ok()?;
        let has_unsafe = line.chars().any(|c| c != '\n' && is_unsafe(c));
        has_unsafe.then(|| (self.escape)(line))
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
    let (key, rest) = text.split_at(end_of_key(text)?);
    let value = rest.strip_prefix(':')?;
    Some((key, value.strip_prefix(' ').unwrap_or(value)))
}

/// Returns the end of what could be a key at the beginning of a line; `None` if the line has only a value.
fn end_of_key(text: &str) -> Option<usize> {
    if text.starts_with('"') {
        return end_of_quoted(text);
    }
    if let Some(colon) = text.find(": ") {
        return Some(colon);
    }
    // The value of such a key is on the next lines.
    let key = text.strip_suffix(':')?;
    Some(key.len())
}

/// Returns the end of the string in double quotes with which a text begins, after the closing quote; `None` without
/// that.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (position, c) in text.char_indices().skip(1) {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == '"' {
            return Some(position + 1);
        }
    }
    None
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
