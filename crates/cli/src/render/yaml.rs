//! YAML that readers of YAML 1.1 understand as readers of YAML 1.2 do.
//!
//! Of texts that are not quoted, YAML 1.1 takes some for times or numbers that YAML 1.2 takes for texts: PyYAML makes a
//! `datetime` of `2026-05-01T10:00:00Z` and 37800 of `10:30:00`. serde_yaml writes YAML 1.2, so they are quoted here.

use std::io::{self, Write};

use serde::Serialize;

/// Writes a document.
pub fn write(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut quoting = Quoting { out, line: Vec::new(), literal: None };
    serde_yaml::to_writer(&mut quoting, document).map_err(io_error)?;
    quoting.end_line()
}

/// The error of the writer, which serde_yaml tells only in words.
fn io_error(error: serde_yaml::Error) -> io::Error {
    if error.to_string().contains("Broken pipe") {
        return io::ErrorKind::BrokenPipe.into();
    }
    io::Error::other(error)
}

/// Quotes what YAML 1.1 would not take for a text, line by line.
struct Quoting<'a> {
    out: &'a mut dyn Write,
    line: Vec<u8>,
    /// Within a literal text (`|`): the indentation of the line that it belongs to.
    literal: Option<usize>,
}

impl Write for Quoting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Quoting<'_> {
    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
        let (text, end) = text.strip_suffix('\n').map_or((text, ""), |text| (text, "\n"));
        let indentation = text.len() - text.trim_start_matches(' ').len();
        if self.literal.is_some_and(|outer| text.is_empty() || indentation > outer) {
            return self.out.write_all(&line);
        }

        let (before, value) = split(text);
        self.literal = value.starts_with(['|', '>']).then_some(indentation);
        if is_other_in_yaml_11(value) {
            write!(self.out, "{before}'{value}'{end}")
        } else {
            self.out.write_all(&line)
        }
    }
}

/// A line as dashes and key, and the value.
fn split(line: &str) -> (&str, &str) {
    let mut start = line.len() - line.trim_start_matches(' ').len();
    while line[start..].starts_with("- ") {
        start += 2;
    }
    let rest = &line[start..];
    let quote = rest.chars().next().filter(|c| ['\'', '"'].contains(c));
    // A quoted key ends at its quote; within it, quotes are doubled or escaped.
    let key = match quote {
        Some('"') => rest[1..].replace("\\\"", "xx").find("\": ").map(|place| place + 2),
        Some(_) => rest[1..].replace("''", "xx").find("': ").map(|place| place + 2),
        None => rest.find(": "),
    };
    line.split_at(key.map_or(start, |end| start + end + 2))
}

/// True for a text without quotes that YAML 1.1 takes for a time, a number or a merge key, and YAML 1.2 for a text.
fn is_other_in_yaml_11(value: &str) -> bool {
    if ["=", "<<"].contains(&value) {
        return true;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // 2026-05-01, 2026-5-1T10:00:00.5Z, 2026-05-01 10:00:00 +0100
    let mut date = value.splitn(3, '-');
    let (year, month, rest) = (date.next(), date.next(), date.next());
    let day = rest.map(|rest| rest.split(['T', 't', ' ']).next().unwrap_or_default());
    let is_date = year.is_some_and(|year| year.len() == 4 && digits(year))
        && [month, day].into_iter().all(|part| part.is_some_and(|part| part.len() <= 2 && digits(part)));

    let number = value.strip_prefix(['+', '-']).unwrap_or(value);
    let starts_with_digit = number.starts_with(|c: char| c.is_ascii_digit());
    // 10:30:00, 1:30.5, 1_000, 0b1, 0x1_F
    let sexagesimal = starts_with_digit && number.contains(':') && all_in(number, "0123456789:._");
    let grouped =
        starts_with_digit && number.contains('_') && all_in(number, "0123456789abcdefABCDEFxX._eE+-");
    let binary = number.strip_prefix("0b").is_some_and(|rest| all_in(rest, "01_"));
    is_date || sexagesimal || grouped || binary
}

fn all_in(text: &str, characters: &str) -> bool {
    text.chars().all(|c| characters.contains(c))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn text(value: &impl Serialize) -> String {
        let mut out = Vec::new();
        write(value, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_yaml_11_would_take_for_something_else_is_quoted() {
        let others = [
            "2026-05-01",
            "2026-05-01T10:00:00Z",
            "2026-05-01T10:00:00.123456789Z",
            "2026-05-01 10:11:12.5 +0000 UTC",
            "10:30:00",
            "190:20:30.15",
            "1_000",
            "0x1_F",
            "0b1010",
            "-1_0",
            "<<",
            "=",
        ];
        for other in others {
            assert_eq!(text(&BTreeMap::from([("a", other)])), format!("a: '{other}'\n"));
            assert_eq!(text(&[[other]]), format!("- - '{other}'\n"));
        }
        for plain in
            ["web-0", "10.244.1.7", "10.244.1.0/26", "fd00::1", "node-7", "k8s-pod-network.3f9a", "v3.32.1"]
        {
            assert_eq!(text(&BTreeMap::from([("a", plain)])), format!("a: {plain}\n"));
        }
    }

    #[test]
    fn what_is_quoted_or_literal_already_stays() {
        let value = BTreeMap::from([
            ("a: 2026-05-01", "2026-05-01"),
            ("it's: ", "1_0"),
            ("b\"\n\": x", "2026-05-01"),
            ("c", "first\n2026-05-01\n\n- x: 2026-05-01\nlast"),
            ("d", "2026-05-01"),
            ("e", "key: 2026-05-01"),
        ]);
        let written = text(&vec![&value]);
        let read: Vec<BTreeMap<String, String>> = serde_yaml::from_str(&written).unwrap();
        let expected: BTreeMap<String, String> =
            value.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        assert_eq!(read, [expected], "{written}");
        assert_eq!(written.matches("'2026-05-01'\n").count(), 3, "{written}");
        assert!(written.contains("\n    2026-05-01\n\n    - x: 2026-05-01\n"), "{written}");
    }
}
