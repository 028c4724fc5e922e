//! How a text stands in YAML: plain, in single quotes, or as serde_yaml decides.
//!
//! Nearly all texts are of printable ASCII, which is judged here as serde_yaml and libyaml judge it; the others go through them.

use std::collections::BTreeMap;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::emitter::Error;

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Plain,
    /// In single quotes, on one line.
    Quoted,
    /// What is not judged here: text that is not ASCII, line breaks, what may be a number.
    Other,
}

/// How a text stands as a value. Of texts without quotes, YAML 1.1 takes some for times or numbers that YAML 1.2 takes for
/// texts: PyYAML makes a `datetime` of `2026-05-01T10:00:00Z` and 37800 of `10:30:00`. They get quotes.
pub(super) fn of_value(text: &str) -> Scalar {
    match of_key(text) {
        Scalar::Plain if is_other_in_yaml_11(text) => Scalar::Quoted,
        scalar => scalar,
    }
}

/// How a text stands as a key.
pub(super) fn of_key(text: &str) -> Scalar {
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Scalar::Other;
    }
    if is_digits(text) && text.len() < 20 || is_word(text) {
        return Scalar::Quoted;
    }
    if may_be_number(text) {
        return Scalar::Other;
    }
    if may_be_plain(text) { Scalar::Plain } else { Scalar::Quoted }
}

/// What stands for nothing or for a truth value.
fn is_word(text: &str) -> bool {
    let words = ["", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"];
    text.len() <= 5 && words.contains(&text)
}

/// True at least for every text that serde_yaml reads as a number.
fn may_be_number(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['+', '-']);
    match unsigned.as_bytes() {
        [b'0', b'x' | b'o' | b'b', ..] | [b'.', b'i' | b'I' | b'n' | b'N', ..] => true,
        [b'0'..=b'9' | b'.', ..] => unsigned.parse::<f64>().is_ok(),
        _ => false,
    }
}

/// True where libyaml needs no quotes around a text of printable ASCII.
fn may_be_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    let begins = match first {
        b' ' | b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"'
        | b'%' | b'@' | b'`' => false,
        b'-' | b'?' | b':' => bytes.get(1).is_some_and(|second| *second != b' ') && !text.starts_with("---"),
        b'.' => !text.starts_with("..."),
        _ => true,
    };
    let ends = ![b' ', b':'].contains(last);
    begins && ends && !bytes.windows(2).any(|pair| pair == b": " || pair == b" #")
}

/// True for a text without quotes that YAML 1.1 takes for a time, a number or a merge key, and YAML 1.2 for a text.
pub(super) fn is_other_in_yaml_11(value: &str) -> bool {
    // Each of them begins with a digit, a sign or one of these.
    if value.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return false;
    }
    if ["=", "<<"].contains(&value) {
        return true;
    }
    // 2026-05-01, 2026-5-1T10:00:00.5Z, 2026-05-01 10:00:00 +0100
    let mut date = value.splitn(3, '-');
    let (year, month, rest) = (date.next(), date.next(), date.next());
    let day = rest.map(|rest| rest.split(['T', 't', ' ']).next().unwrap_or_default());
    let is_date = year.is_some_and(|year| year.len() == 4 && is_digits(year))
        && [month, day].into_iter().all(|part| part.is_some_and(|part| part.len() <= 2 && is_digits(part)));

    let number = value.strip_prefix(['+', '-']).unwrap_or(value);
    let starts_with_digit = number.starts_with(|c: char| c.is_ascii_digit());
    // 10:30:00, 1:30.5, 1_000, 0b1, 0x1_F
    let sexagesimal = starts_with_digit && number.contains(':') && all_in(number, "0123456789:._");
    let grouped =
        starts_with_digit && number.contains('_') && all_in(number, "0123456789abcdefABCDEFxX._eE+-");
    let binary = number.strip_prefix("0b").is_some_and(|rest| all_in(rest, "01_"));
    is_date || sexagesimal || grouped || binary
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn all_in(text: &str, characters: &str) -> bool {
    text.chars().all(|c| characters.contains(c))
}

/// True where libyaml sees more than one line.
pub(super) fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'])
}

/// A text as serde_yaml writes it, as a value inside a collection with an indentation. It ends its line.
pub(super) fn value_by_library(text: &str, indentation: usize) -> Result<String, Error> {
    // The text stands as deep as it will, since its lines may be indented; something follows it, as in a document.
    let levels = indentation / 2;
    let written = by_library(&Nested { levels, text })?;
    let begin: usize = (0..levels).map(|level| 2 * level + "k:\n".len()).sum();
    let begin = begin + indentation + "k: ".len();
    let end = written.len() - indentation - "k: 0\n".len();
    let quoted = written[begin..end].to_owned();
    Ok(match quoted.strip_suffix('\n') {
        // The library takes it for a text, and leaves it without quotes.
        Some(line) if line == text && is_other_in_yaml_11(text) => format!("'{text}'\n"),
        _ => quoted,
    })
}

/// A text of one line as serde_yaml writes it as a key.
pub(super) fn key_by_library(text: &str) -> Result<String, Error> {
    let mut written = by_library(&BTreeMap::from([(text, 0)]))?;
    written.truncate(written.len() - ": 0\n".len());
    Ok(written)
}

/// A number as serde_yaml writes it.
pub(super) fn number_by_library(number: impl Serialize) -> Result<String, Error> {
    let written = by_library(&number)?;
    Ok(written.trim_end().to_owned())
}

fn by_library(value: &impl Serialize) -> Result<String, Error> {
    serde_yaml::to_string(value).map_err(serde::ser::Error::custom)
}

/// A text within maps of maps, and a zero after it.
struct Nested<'a> {
    levels: usize,
    text: &'a str,
}

impl Serialize for Nested<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Nested", 2)?;
        if let Some(levels) = self.levels.checked_sub(1) {
            map.serialize_field("k", &Self { levels, text: self.text })?;
        } else {
            map.serialize_field("k", self.text)?;
            map.serialize_field("k", &0)?;
        }
        map.end()
    }
}
