//! Reading plain JSON: texts without escapes, line breaks, fractions and exponents, as Calico's values nearly always are.
//!
//! A large cluster is gigabytes of JSON of which most is passed over. This reader needs a fraction of the time of
//! serde_json's, since it looks at 64 bytes at a time for quotes and for all that is rare ([`Quotes`]). It never judges:
//! what it does not know, a text that is no JSON included, is [`Unusual`], and the general reader begins anew, whose
//! errors people see. Everything that is passed over is still held against the grammar, so that both readers accept the
//! same.

mod quotes;

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use self::quotes::Quotes;

/// Deeper values are left to the general reader, which knows its own limit.
const MAX_DEPTH: u32 = 48;
/// Every number of so many digits is a `u64`.
const SAFE_DIGITS: usize = 19;
/// The name by which `serde_json::value::RawValue` asks for the text of a value. Should it change, blocks with unknown
/// fields go to the general reader.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Something that the general reader has to look at.
#[derive(Debug)]
pub(super) struct Unusual;

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

type Result<T> = std::result::Result<T, Unusual>;

/// A reader of one plain document.
pub(super) struct Plain<'de> {
    text: &'de str,
    /// Where it is.
    at: usize,
    /// The quotes from there on: strings are taken in their order, and each takes two.
    quotes: Quotes<'de>,
    depth: u32,
}

/// Reads a whole document with `read`.
pub(super) fn document<'de, T>(
    bytes: &'de [u8],
    read: impl FnOnce(&mut Plain<'de>) -> Result<T>,
) -> Result<T> {
    let text = simdutf8::basic::from_utf8(bytes).map_err(|_| Unusual)?;
    let mut reader = Plain { text, at: 0, quotes: Quotes::of(bytes), depth: 0 };
    let value = read(&mut reader)?;
    reader.skip_blanks();
    if reader.at == bytes.len() { Ok(value) } else { Err(Unusual) }
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

    /// Takes a byte that has to be next.
    #[inline]
    fn take(&mut self, byte: u8) -> Result<()> {
        if self.text.as_bytes().get(self.at) != Some(&byte) && self.peek()? != byte {
            return Err(Unusual);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes the rest of a literal, whose first byte is the next one.
    fn literal(&mut self, literal: &str) -> Result<()> {
        if !self.text.as_bytes()[self.at..].starts_with(literal.as_bytes()) {
            return Err(Unusual);
        }
        self.at += literal.len();
        Ok(())
    }

    /// Takes a string.
    #[inline]
    fn string(&mut self) -> Result<&'de str> {
        let (start, end) = self.skip_string()?;
        self.text.get(start..end).ok_or(Unusual)
    }

    /// Passes over a string. Gives the places where it begins and ends, without the quotes.
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

    /// Takes the name of a field and the colon after it.
    #[inline]
    fn name(&mut self) -> Result<&'de str> {
        let name = self.string()?;
        self.take(b':')?;
        Ok(name)
    }

    /// Takes the digits of a whole number. Gives how many there are, and the number, where that has at most 19.
    #[inline]
    fn digits(&mut self) -> Result<(usize, u64)> {
        let rest = self.text.as_bytes().get(self.at..).ok_or(Unusual)?;
        let (mut len, mut number) = (0, 0u64);
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

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let is_negative = self.peek()? == b'-';
        self.at += usize::from(is_negative);
        let (len, mut magnitude) = self.digits()?;
        if len > SAFE_DIGITS {
            magnitude = self.text[self.at - len..self.at].parse().map_err(|_| Unusual)?;
        }
        if !is_negative {
            return visitor.visit_u64(magnitude);
        }
        // `-0` is a fraction to the general reader.
        let number = i64::try_from(magnitude).ok().filter(|number| *number > 0).ok_or(Unusual)?;
        visitor.visit_i64(-number)
    }

    /// Begins an object or array.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Unusual) } else { Ok(()) }
    }

    /// Passes over a value.
    fn skip(&mut self) -> Result<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' => self.skip_all(b'}', |reader| {
                reader.skip_string()?;
                reader.take(b':')?;
                reader.skip()
            }),
            b'[' => self.skip_all(b']', Self::skip),
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

    /// Passes over an object or array up to its `end`.
    fn skip_all(&mut self, end: u8, skip_one: impl Fn(&mut Self) -> Result<()>) -> Result<()> {
        self.enter()?;
        self.at += 1;
        if self.peek()? != end {
            loop {
                skip_one(self)?;
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

    /// Gives an object or array to `visit`, which has to take all of it.
    fn members<T>(&mut self, end: u8, visit: impl FnOnce(&mut Members<'_, 'de>) -> Result<T>) -> Result<T> {
        self.enter()?;
        self.at += 1;
        let mut members = Members { reader: self, end, state: State::Begun };
        let value = visit(&mut members)?;
        let is_whole = members.state == State::Ended;
        self.depth -= 1;
        if is_whole { Ok(value) } else { Err(Unusual) }
    }
}

/// Types that no value of Calico has.
macro_rules! leave_to_the_general_reader {
    ($($method:ident($($argument:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $argument,)* _: V) -> Result<V::Value> {
            Err(Unusual)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Plain<'de> {
    type Error = Unusual;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'"' => visitor.visit_borrowed_str(self.string()?),
            b'{' => self.members(b'}', |members| visitor.visit_map(members)),
            b'[' => self.members(b']', |members| visitor.visit_seq(members)),
            b'-' | b'0'..=b'9' => self.number(visitor),
            b'n' => {
                self.literal("null")?;
                visitor.visit_unit()
            }
            b't' => {
                self.literal("true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.literal("false")?;
                visitor.visit_bool(false)
            }
            _ => Err(Unusual),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek()? == b'n' {
            self.literal("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name != RAW_VALUE {
            return visitor.visit_newtype_struct(self);
        }
        self.skip_blanks();
        let start = self.at;
        self.skip()?;
        let text = self.text.get(start..self.at).ok_or(Unusual)?;
        visitor.visit_map(RawValue { text: Some(text) })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 unit seq map struct
    }

    leave_to_the_general_reader! {
        deserialize_char() deserialize_f32() deserialize_f64() deserialize_bytes() deserialize_byte_buf()
        deserialize_unit_struct(&'static str) deserialize_tuple(usize)
        deserialize_tuple_struct(&'static str, usize)
        deserialize_enum(&'static str, &'static [&'static str])
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it was taken.
    Begun,
    /// A member was taken.
    Within,
    Ended,
}

/// The members of an object or array.
struct Members<'r, 'de> {
    reader: &'r mut Plain<'de>,
    end: u8,
    state: State,
}

impl Members<'_, '_> {
    /// Goes to the next member; false at the end. After a comma there has to be one: nothing that ends an object or array
    /// begins a name or a value.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if self.state == State::Ended {
            return Ok(false);
        }
        let byte = self.reader.peek()?;
        if self.state == State::Within && byte == b',' {
            self.reader.at += 1;
            return Ok(true);
        }
        if byte == self.end {
            self.reader.at += 1;
            self.state = State::Ended;
            return Ok(false);
        }
        match std::mem::replace(&mut self.state, State::Within) {
            State::Begun => Ok(true),
            State::Within | State::Ended => Err(Unusual),
        }
    }
}

impl<'de> MapAccess<'de> for &mut Members<'_, 'de> {
    type Error = Unusual;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.advance()? {
            return Ok(None);
        }
        let name = self.reader.name()?;
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for &mut Members<'_, 'de> {
    type Error = Unusual;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.advance()? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

/// The text of a value in the form in which `RawValue` takes it: an object with one field.
struct RawValue<'de> {
    text: Option<&'de str>,
}

impl<'de> MapAccess<'de> for RawValue<'de> {
    type Error = Unusual;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.text.is_none() {
            return Ok(None);
        }
        seed.deserialize(BorrowedStrDeserializer::new(RAW_VALUE)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let text = self.text.take().ok_or(Unusual)?;
        seed.deserialize(BorrowedStrDeserializer::new(text))
    }
}

#[cfg(test)]
mod tests;
