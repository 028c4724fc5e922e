//! A reader of plain JSON: JSON without escapes, line breaks, fractions and exponents, which nearly all Calico values
//! are.
//!
//! A large cluster has gigabytes of JSON, most of which is skipped. This reader needs a fraction of serde_json's time,
//! since it looks for quotes and rare bytes 64 bytes at a time ([`Quotes`]). If a document is not plain, or not even
//! valid JSON, this reader fails with [`Unusual`]. The general reader then starts over, and users see its errors.
//! Skipped values are still checked against the grammar, so both readers accept the same documents.

mod deserialize;
mod quotes;

use std::fmt;

use serde::de::Error;

use self::quotes::Quotes;

/// The maximum depth of nesting. Deeper values are left to the general reader, which has its own limit.
const MAX_DEPTH: u32 = 48;
/// Every number with at most this many digits fits in a `u64`.
const SAFE_DIGITS: usize = 19;

/// The error for a document that is not plain, which is left to the general reader.
#[derive(Debug)]
pub(crate) struct Unusual;

impl fmt::Display for Unusual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not plain JSON")
    }
}

impl std::error::Error for Unusual {}

impl Error for Unusual {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

pub(crate) type Result<T> = std::result::Result<T, Unusual>;

/// A reader of one plain document.
pub(crate) struct Plain<'de> {
    text: &'de str,
    position: usize,
    /// The quotes from the current position on, two for each string, in order.
    quotes: Quotes<'de>,
    depth: u32,
}

/// Reads a whole document. [`Unusual`] if it has something that needs the general reader.
pub(crate) fn read_document<'de, T>(
    bytes: &'de [u8],
    read: impl FnOnce(&mut Plain<'de>) -> Result<T>,
) -> Result<T> {
    let text = simdutf8::basic::from_utf8(bytes).map_err(|_| Unusual)?;
    let mut reader = Plain {
        text,
        position: 0,
        quotes: Quotes::of(text.as_bytes()),
        depth: 0,
    };
    let value = read(&mut reader)?;

    reader.skip_blanks();
    if reader.position != bytes.len() {
        return Err(Unusual);
    }
    Ok(value)
}

impl<'de> Plain<'de> {
    fn skip_blanks(&mut self) {
        while self.text.as_bytes().get(self.position) == Some(&b' ') {
            self.position += 1;
        }
    }

    /// The next byte that is not blank.
    #[inline]
    fn peek(&mut self) -> Result<u8> {
        if self.text.as_bytes().get(self.position) == Some(&b' ') {
            self.skip_blanks();
        }
        self.text.as_bytes().get(self.position).copied().ok_or(Unusual)
    }

    /// Reads a byte that must be next.
    #[inline]
    fn expect_byte(&mut self, byte: u8) -> Result<()> {
        if self.text.as_bytes().get(self.position) != Some(&byte) && self.peek()? != byte {
            return Err(Unusual);
        }
        self.position += 1;
        Ok(())
    }

    /// Reads a word that must be next, such as `true`.
    fn expect_literal(&mut self, literal: &str) -> Result<()> {
        if !self.text.as_bytes()[self.position..].starts_with(literal.as_bytes()) {
            return Err(Unusual);
        }
        self.position += literal.len();
        Ok(())
    }

    #[inline]
    fn read_string(&mut self) -> Result<&'de str> {
        let (start, end) = self.skip_string()?;
        self.text.get(start..end).ok_or(Unusual)
    }

    /// Skips a string. Returns its start and end, without the quotes.
    #[inline]
    fn skip_string(&mut self) -> Result<(usize, usize)> {
        let (open, close) = self.quotes.pair()?;
        if open != self.position {
            self.skip_blanks();
            if open != self.position {
                return Err(Unusual);
            }
        }
        self.position = close + 1;
        Ok((open + 1, close))
    }

    /// Reads the name of a field and the colon after it.
    #[inline]
    fn read_name(&mut self) -> Result<&'de str> {
        let name = self.read_string()?;
        self.expect_byte(b':')?;
        Ok(name)
    }

    /// Reads the digits of a whole number. Returns their count, and the number if there are at most 19.
    #[inline]
    fn read_digits(&mut self) -> Result<(usize, u64)> {
        let rest = self.text.as_bytes().get(self.position..).ok_or(Unusual)?;
        let mut len = 0;
        let mut number = 0u64;
        for byte in rest.iter().take_while(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            len += 1;
        }
        let is_whole = !matches!(rest.get(len), Some(b'.' | b'e' | b'E'));
        if !is_whole || len == 0 || (len > 1 && rest[0] == b'0') {
            return Err(Unusual);
        }
        self.position += len;
        Ok((len, number))
    }

    /// Reads the digits of a number that fits in a `u64`.
    #[inline]
    fn read_magnitude(&mut self) -> Result<u64> {
        let (len, magnitude) = self.read_digits()?;
        if len <= SAFE_DIGITS {
            return Ok(magnitude);
        }
        self.text[self.position - len..self.position]
            .parse()
            .map_err(|_| Unusual)
    }

    /// Reads a minus sign and the digits after it.
    fn read_negative(&mut self) -> Result<i64> {
        self.position += 1;
        let magnitude = i64::try_from(self.read_magnitude()?).map_err(|_| Unusual)?;
        // The general reader reads `-0` as a floating-point number.
        if magnitude == 0 {
            return Err(Unusual);
        }
        Ok(-magnitude)
    }

    /// Enters an object or array.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unusual);
        }
        Ok(())
    }

    /// Skips a value of any type, with its members. Only its form is checked.
    fn skip_value(&mut self) -> Result<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' => self.skip_members(b'}', |reader| {
                reader.skip_string()?;
                reader.expect_byte(b':')?;
                reader.skip_value()
            }),
            b'[' => self.skip_members(b']', Plain::skip_value),
            b't' => self.expect_literal("true"),
            b'f' => self.expect_literal("false"),
            b'n' => self.expect_literal("null"),
            b'-' => {
                self.position += 1;
                self.read_digits().map(drop)
            }
            _ => self.read_digits().map(drop),
        }
    }

    /// Skips an object or array up to its `end`. `skip_one` skips each member.
    #[inline]
    fn skip_members(&mut self, end: u8, mut skip_one: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.enter()?;
        self.position += 1;
        if self.peek()? != end {
            loop {
                skip_one(self)?;
                match self.peek()? {
                    b',' => self.position += 1,
                    byte if byte == end => break,
                    _ => return Err(Unusual),
                }
            }
        }
        self.position += 1;
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
