//! A JSON list of strings, as in annotations. The errors are those of Go's `encoding/json`, because Calico's plugin
//! prints them.

/// The nesting depth from which Go refuses a text.
const MAX_DEPTH: usize = 10_000;

/// Reads a JSON list of strings. `null` is an empty list, and `null` in the list an empty string.
///
/// # Errors
/// The message that Go's `json.Unmarshal` returns for a `[]string`.
pub fn string_list(text: &str) -> Result<Vec<String>, String> {
    let mut scanner = Scanner {
        text: text.as_bytes(),
        position: 0,
    };
    let elements = match scanner.read_document()? {
        Value::Null => return Ok(Vec::new()),
        Value::List(elements) => elements,
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type []string",
                other.kind()
            ));
        }
    };

    let mut strings = Vec::with_capacity(elements.len());
    for element in elements {
        match element {
            Value::Null => strings.push(String::new()),
            Value::Text(text) => strings.push(text),
            other => {
                return Err(format!(
                    "json: cannot unmarshal {} into Go value of type string",
                    other.kind()
                ));
            }
        }
    }
    Ok(strings)
}

/// A value in a list, or the whole text. The contents of nested lists and objects are dropped.
enum Value {
    Null,
    Bool,
    Number,
    Object,
    Text(String),
    List(Vec<Value>),
}

impl Value {
    /// The kind in the words of Go.
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::Object => "object",
            Self::Text(_) => "string",
            Self::List(_) => "array",
        }
    }
}

/// A list or object that has begun, and not ended yet.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    List,
    Object,
}

struct Scanner<'t> {
    text: &'t [u8],
    position: usize,
}

type Scanned<T> = Result<T, String>;

impl Scanner<'_> {
    /// Reads the whole text. Like Go, reports a syntax error before any other error.
    fn read_document(&mut self) -> Scanned<Value> {
        let first = self.peek_after_blanks()?;
        let value = if first == b'[' {
            self.position += 1;
            self.read_list()?
        } else {
            self.read_value()?
        };
        self.skip_blanks();
        match self.peek() {
            None => Ok(value),
            Some(found) => Err(unexpected(found, "after top-level value")),
        }
    }

    /// Reads the elements of the outermost list, whose bracket has been read.
    fn read_list(&mut self) -> Scanned<Value> {
        let mut elements = Vec::new();
        if self.peek_after_blanks()? == b']' {
            self.position += 1;
            return Ok(Value::List(elements));
        }
        loop {
            elements.push(self.read_value()?);
            match self.peek_after_blanks()? {
                b',' => self.position += 1,
                b']' => {
                    self.position += 1;
                    return Ok(Value::List(elements));
                }
                found => return Err(unexpected(found, "after array element")),
            }
        }
    }

    /// Reads a value. Nested values are checked without recursion, so that no depth overflows the stack.
    fn read_value(&mut self) -> Scanned<Value> {
        let mut open: Vec<Open> = Vec::new();
        let mut outermost = None;
        loop {
            let begun = match self.peek_after_blanks()? {
                b'[' => Some(Open::List),
                b'{' => Some(Open::Object),
                _ => None,
            };
            let mut has_ended = true;
            if let Some(kind) = begun {
                self.position += 1;
                open.push(kind);
                if open.len() >= MAX_DEPTH {
                    return Err("exceeded max depth".to_owned());
                }
                outermost.get_or_insert(match kind {
                    Open::List => Value::List(Vec::new()),
                    Open::Object => Value::Object,
                });
                has_ended = self.is_closed_at_once(kind)?;
                if has_ended {
                    open.pop();
                }
            } else {
                let scalar = self.read_scalar()?;
                outermost.get_or_insert(scalar);
            }

            // The end of a value can also be the end of the lists and objects around it.
            while has_ended {
                let Some(kind) = open.last().copied() else {
                    return outermost.ok_or_else(end_of_input);
                };
                has_ended = self.is_last(kind)?;
                if has_ended {
                    open.pop();
                }
            }
        }
    }

    /// True if a list or object is empty. Otherwise, the next value is to be read, and the key of an object's first
    /// value has been.
    fn is_closed_at_once(&mut self, kind: Open) -> Scanned<bool> {
        let found = self.peek_after_blanks()?;
        let close = if kind == Open::List { b']' } else { b'}' };
        if found == close {
            self.position += 1;
            return Ok(true);
        }
        if kind == Open::Object {
            self.read_key()?;
        }
        Ok(false)
    }

    /// True if the list or object ends after a value. Otherwise, the next value is to be read.
    fn is_last(&mut self, kind: Open) -> Scanned<bool> {
        let found = self.peek_after_blanks()?;
        match (kind, found) {
            (Open::List, b']') | (Open::Object, b'}') => {
                self.position += 1;
                Ok(true)
            }
            (Open::List, b',') => {
                self.position += 1;
                Ok(false)
            }
            (Open::Object, b',') => {
                self.position += 1;
                self.read_key()?;
                Ok(false)
            }
            (Open::List, _) => Err(unexpected(found, "after array element")),
            (Open::Object, _) => Err(unexpected(found, "after object key:value pair")),
        }
    }

    /// Reads an object's key and the colon after it.
    fn read_key(&mut self) -> Scanned<()> {
        match self.peek_after_blanks()? {
            b'"' => drop(self.read_string()?),
            found => return Err(unexpected(found, "looking for beginning of object key string")),
        }
        match self.peek_after_blanks()? {
            b':' => {
                self.position += 1;
                Ok(())
            }
            found => Err(unexpected(found, "after object key")),
        }
    }

    /// Reads a value that is neither a list nor an object.
    fn read_scalar(&mut self) -> Scanned<Value> {
        match self.peek_after_blanks()? {
            b'"' => self.read_string().map(Value::Text),
            b'-' | b'0'..=b'9' => self.skip_number().map(|()| Value::Number),
            b't' => self.skip_literal("true").map(|()| Value::Bool),
            b'f' => self.skip_literal("false").map(|()| Value::Bool),
            b'n' => self.skip_literal("null").map(|()| Value::Null),
            found => Err(unexpected(found, "looking for beginning of value")),
        }
    }

    /// Reads a word such as `true`, whose first letter was read.
    fn skip_literal(&mut self, word: &str) -> Scanned<()> {
        self.position += 1;
        for wanted in word.bytes().skip(1) {
            let found = self.next()?;
            if found != wanted {
                let context = format!("in literal {word} (expecting '{}')", char::from(wanted));
                return Err(unexpected(found, &context));
            }
        }
        Ok(())
    }

    /// Skips a number, with the errors of Go's scanner.
    fn skip_number(&mut self) -> Scanned<()> {
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        match self.next()? {
            b'0' => {}
            b'1'..=b'9' => self.skip_digits(),
            found => return Err(unexpected(found, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.skip_some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.skip_some_digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// Reads one digit, and all that follow it.
    fn skip_some_digits(&mut self, context: &str) -> Scanned<()> {
        let found = self.next()?;
        if !found.is_ascii_digit() {
            return Err(unexpected(found, context));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|found| found.is_ascii_digit()) {
            self.position += 1;
        }
    }

    /// Reads a string. Half of a surrogate pair becomes U+FFFD, as in Go.
    fn read_string(&mut self) -> Scanned<String> {
        self.position += 1;
        let mut units: Vec<u16> = Vec::new();
        let mut text: Vec<u8> = Vec::new();
        loop {
            let found = self.next()?;
            if found == b'\\' {
                match self.read_escape()? {
                    Escape::Byte(byte) => {
                        flush(&mut units, &mut text);
                        text.push(byte);
                    }
                    Escape::Unit(unit) => units.push(unit),
                }
                continue;
            }
            flush(&mut units, &mut text);
            match found {
                b'"' => return Ok(String::from_utf8_lossy(&text).into_owned()),
                0..b' ' => return Err(unexpected(found, "in string literal")),
                byte => text.push(byte),
            }
        }
    }

    /// Reads the part of an escape after the backslash.
    fn read_escape(&mut self) -> Scanned<Escape> {
        let byte = match self.next()? {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            found @ (b'\\' | b'/' | b'"') => found,
            b'u' => return self.read_code_unit().map(Escape::Unit),
            found => return Err(unexpected(found, "in string escape code")),
        };
        Ok(Escape::Byte(byte))
    }

    /// Reads the four hexadecimal digits after `\u`, which give a UTF-16 code unit.
    fn read_code_unit(&mut self) -> Scanned<u16> {
        let mut unit: u16 = 0;
        for _ in 0..4 {
            let found = self.next()?;
            let Some(digit) = char::from(found).to_digit(16) else {
                return Err(unexpected(found, "in \\u hexadecimal character escape"));
            };
            unit = 16 * unit + digit as u16;
        }
        Ok(unit)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn next(&mut self) -> Scanned<u8> {
        let found = self.peek().ok_or_else(end_of_input)?;
        self.position += 1;
        Ok(found)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    /// Skips blanks, and returns the next byte without reading it.
    fn peek_after_blanks(&mut self) -> Scanned<u8> {
        self.skip_blanks();
        self.peek().ok_or_else(end_of_input)
    }
}

enum Escape {
    Byte(u8),
    /// A UTF-16 code unit.
    Unit(u16),
}

/// Appends the text of UTF-16 code units.
fn flush(units: &mut Vec<u16>, text: &mut Vec<u8>) {
    if !units.is_empty() {
        text.extend(String::from_utf16_lossy(units).into_bytes());
        units.clear();
    }
}

fn end_of_input() -> String {
    "unexpected end of JSON input".to_owned()
}

/// The message of Go's scanner for a byte that it does not expect.
fn unexpected(found: u8, context: &str) -> String {
    // Go prints a byte as the character with its number.
    let shown = match found {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        b'\\' => "\\\\".to_owned(),
        7 => "\\a".to_owned(),
        8 => "\\b".to_owned(),
        12 => "\\f".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        11 => "\\v".to_owned(),
        0..b' ' | 0x7f => format!("\\x{found:02x}"),
        0x80..=0xa0 | 0xad => format!("\\u{found:04x}"),
        _ => char::from(found).to_string(),
    };
    format!("invalid character '{shown}' {context}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        for (text, strings) in [
            (r#"["a","b"]"#, &["a", "b"][..]),
            (" [ ] \n", &[]),
            ("null", &[]),
            ("[null]", &[""]),
            (
                r#"["\u0041\t\"\ud83d\ude00\ud800x"]"#,
                &["A\t\"\u{1f600}\u{fffd}x"],
            ),
        ] {
            assert_eq!(string_list(text).unwrap(), strings, "{text}");
        }
    }

    /// The messages of Go 1.26.
    #[test]
    fn errors_are_those_of_go() {
        for (text, error) in [
            ("", "unexpected end of JSON input"),
            ("  ", "unexpected end of JSON input"),
            ("-", "unexpected end of JSON input"),
            ("10.99.3.4", "invalid character '.' after top-level value"),
            (
                "fd00::1",
                "invalid character 'd' in literal false (expecting 'a')",
            ),
            ("[\"a\" \"b\"]", "invalid character '\"' after array element"),
            (
                "true",
                "json: cannot unmarshal bool into Go value of type []string",
            ),
            (r#"["a""#, "unexpected end of JSON input"),
            ("[10.10.0.1]", "invalid character '.' after array element"),
            ("[a]", "invalid character 'a' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            (r#"["a"]x"#, "invalid character 'x' after top-level value"),
            ("a,b", "invalid character 'a' looking for beginning of value"),
            ("[nope]", "invalid character 'o' in literal null (expecting 'u')"),
            (
                "{}",
                "json: cannot unmarshal object into Go value of type []string",
            ),
            (
                r#""x""#,
                "json: cannot unmarshal string into Go value of type []string",
            ),
            (
                "[1]",
                "json: cannot unmarshal number into Go value of type string",
            ),
            (
                "[[]]",
                "json: cannot unmarshal array into Go value of type string",
            ),
            (
                r#"[{"a":[1,{"b":null}]}]"#,
                "json: cannot unmarshal object into Go value of type string",
            ),
            (r#"[{"a" 1}]"#, "invalid character '1' after object key"),
            (
                r#"[{"a":1 2}]"#,
                "invalid character '2' after object key:value pair",
            ),
            (
                r#"[{a}]"#,
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("[\"a\n\"]", "invalid character '\\n' in string literal"),
            (r#"["\x"]"#, "invalid character 'x' in string escape code"),
            (
                r#"["\u12x"]"#,
                "invalid character 'x' in \\u hexadecimal character escape",
            ),
            ("[-]", "invalid character ']' in numeric literal"),
            (
                "[1.]",
                "invalid character ']' after decimal point in numeric literal",
            ),
            ("[1e]", "invalid character ']' in exponent of numeric literal"),
            ("['a']", "invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(string_list(text).unwrap_err(), error, "{text}");
        }
        let deep = "[".repeat(2_000_000);
        assert_eq!(string_list(&deep).unwrap_err(), "exceeded max depth");
    }

    proptest::proptest! {
        #[test]
        fn what_is_a_list_of_strings_is_read(strings: Vec<String>) {
            let text = serde_json::to_string(&strings).unwrap();
            proptest::prop_assert_eq!(string_list(&text).unwrap(), strings);
        }

        #[test]
        fn what_serde_refuses_is_refused(text in "[\\[\\]{}:,\"a0 .\\\\ntu-]{0,12}") {
            let is_json = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let said = string_list(&text);
            let is_syntax = said.as_ref().is_err_and(|error| !error.starts_with("json: "));
            proptest::prop_assert!(is_json != is_syntax || text.contains("\\u"), "{:?}", said);
        }
    }
}
