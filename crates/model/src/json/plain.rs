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
    at: usize,
    /// The quotes from the current position on, two for each string, in order.
    quotes: Quotes<'de>,
    depth: u32,
}

/// Reads a whole document. [`Unusual`] if it has something that needs the general reader.
pub(crate) fn document<'de, T>(
    bytes: &'de [u8],
    read: impl FnOnce(&mut Plain<'de>) -> Result<T>,
) -> Result<T> {
    let text = simdutf8::basic::from_utf8(bytes).map_err(|_| Unusual)?;
    let mut reader = Plain {
        text,
        at: 0,
        quotes: Quotes::of(text.as_bytes()),
        depth: 0,
    };
    let value = read(&mut reader)?;
    reader.skip_blanks();
    if reader.at == bytes.len() {
        Ok(value)
    } else {
        Err(Unusual)
    }
}

impl<'de> Plain<'de> {
    fn skip_blanks(&mut self) {
        while self.text.as_bytes().get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    /// The next byte that is not blank.
    #[inline]
    fn peek(&mut self) -> Result<u8> {
        if self.text.as_bytes().get(self.at) == Some(&b' ') {
            self.skip_blanks();
        }
        self.text.as_bytes().get(self.at).copied().ok_or(Unusual)
    }

    /// Reads a byte that must be next.
    #[inline]
    fn take(&mut self, byte: u8) -> Result<()> {
        if self.text.as_bytes().get(self.at) != Some(&byte) && self.peek()? != byte {
            return Err(Unusual);
        }
        self.at += 1;
        Ok(())
    }

    fn literal(&mut self, literal: &str) -> Result<()> {
        if !self.text.as_bytes()[self.at..].starts_with(literal.as_bytes()) {
            return Err(Unusual);
        }
        self.at += literal.len();
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<&'de str> {
        let (start, end) = self.skip_string()?;
        self.text.get(start..end).ok_or(Unusual)
    }

    /// Skips a string. Returns its start and end, without the quotes.
    #[inline]
    fn skip_string(&mut self) -> Result<(usize, usize)> {
        let (open, close) = self.quotes.pair()?;
        if open != self.at {
            self.skip_blanks();
            if open != self.at {
                return Err(Unusual);
            }
        }
        self.at = close + 1;
        Ok((open + 1, close))
    }

    /// Reads the name of a field and the colon after it.
    #[inline]
    fn name(&mut self) -> Result<&'de str> {
        let name = self.string()?;
        self.take(b':')?;
        Ok(name)
    }

    /// Reads the digits of a whole number. Returns their count, and the number if there are at most 19.
    #[inline]
    fn digits(&mut self) -> Result<(usize, u64)> {
        let rest = self.text.as_bytes().get(self.at..).ok_or(Unusual)?;
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
        self.at += len;
        Ok((len, number))
    }

    /// Reads the digits of a number that fits in a `u64`.
    #[inline]
    fn magnitude(&mut self) -> Result<u64> {
        let (len, magnitude) = self.digits()?;
        if len <= SAFE_DIGITS {
            return Ok(magnitude);
        }
        self.text[self.at - len..self.at].parse().map_err(|_| Unusual)
    }

    /// Reads a minus sign and the digits after it.
    fn negative(&mut self) -> Result<i64> {
        self.at += 1;
        // The general reader reads `-0` as a floating-point number.
        let magnitude = i64::try_from(self.magnitude()?).ok().filter(|number| *number > 0);
        magnitude.map(|number| -number).ok_or(Unusual)
    }

    /// Enters an object or array.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(Unusual)
        } else {
            Ok(())
        }
    }

    /// Skips a value.
    fn skip(&mut self) -> Result<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' => self.each(b'}', |reader| {
                reader.skip_string()?;
                reader.take(b':')?;
                reader.skip()
            }),
            b'[' => self.each(b']', Plain::skip),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' => {
                self.at += 1;
                self.digits().map(drop)
            }
            _ => self.digits().map(drop),
        }
    }

    /// Reads an object or array up to its `end`. `take_one` reads each member.
    #[inline]
    fn each(&mut self, end: u8, mut take_one: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.enter()?;
        self.at += 1;
        if self.peek()? != end {
            loop {
                take_one(self)?;
                match self.peek()? {
                    b',' => self.at += 1,
                    byte if byte == end => break,
                    _ => return Err(Unusual),
                }
            }
        }
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
