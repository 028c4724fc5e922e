//! Reading plain JSON: texts without escapes, line breaks, fractions and exponents, as Calico's values nearly always are.
//!
//! A large cluster is gigabytes of JSON of which most is passed over. This reader needs a third of the time of
//! serde_json's, since it looks once over the whole text for all that is rare instead of at each byte. It never judges:
//! what it does not know, a text that is no JSON included, is [`Unusual`], and the general reader begins anew, whose
//! errors people see. Everything that is passed over is still held against the grammar, so that both readers accept the
//! same.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Deeper values are left to the general reader, which knows its own limit.
const MAX_DEPTH: u32 = 48;
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
    depth: u32,
}

/// Reads a whole document with `read`.
pub(super) fn document<'de, T>(
    bytes: &'de [u8],
    read: impl FnOnce(&mut Plain<'de>) -> Result<T>,
) -> Result<T> {
    if !is_plain(bytes) {
        return Err(Unusual);
    }
    let mut reader = Plain { text: std::str::from_utf8(bytes).map_err(|_| Unusual)?, at: 0, depth: 0 };
    let value = read(&mut reader)?;
    reader.skip_blanks();
    if reader.at == bytes.len() { Ok(value) } else { Err(Unusual) }
}

/// True where no byte is a control character or begins an escape: then every quote ends or begins a string. There is no
/// branch for each byte, so that the compiler looks at many at once.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, byte| plain & (*byte >= b' ') & (*byte != b'\\'))
}

/// The place of the first quote.
fn find_quote(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const QUOTES: u64 = ONES * b'"' as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let other = u64::from_le_bytes(*word) ^ QUOTES;
        // The lowest bit that is set lies in the first byte that was a quote.
        let found = other.wrapping_sub(ONES) & !other & (ONES << 7);
        if found != 0 {
            return Some(8 * place + found.trailing_zeros() as usize / 8);
        }
    }
    let place = rest.iter().position(|byte| *byte == b'"')?;
    Some(8 * words.len() + place)
}

impl<'de> Plain<'de> {
    fn skip_blanks(&mut self) {
        while self.text.as_bytes().get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Result<u8> {
        self.skip_blanks();
        self.text.as_bytes().get(self.at).copied().ok_or(Unusual)
    }

    /// Takes a byte that has to be next.
    fn take(&mut self, byte: u8) -> Result<()> {
        if self.peek()? != byte {
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
    fn string(&mut self) -> Result<&'de str> {
        self.take(b'"')?;
        let start = self.at;
        let end = start + find_quote(&self.text.as_bytes()[start..]).ok_or(Unusual)?;
        self.at = end + 1;
        self.text.get(start..end).ok_or(Unusual)
    }

    /// Takes the name of a field and the colon after it.
    fn name(&mut self) -> Result<&'de str> {
        let name = self.string()?;
        self.take(b':')?;
        Ok(name)
    }

    /// Takes the digits of a whole number.
    fn digits(&mut self) -> Result<&'de [u8]> {
        let rest = &self.text.as_bytes()[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = rest.split_at(len);
        let is_whole = !matches!(after.first(), Some(b'.' | b'e' | b'E'));
        if !is_whole || digits.is_empty() || (len > 1 && digits[0] == b'0') {
            return Err(Unusual);
        }
        self.at += len;
        Ok(digits)
    }

    fn number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        let is_negative = self.peek()? == b'-';
        self.at += usize::from(is_negative);
        let digits = self.digits()?;
        let magnitude = digits
            .iter()
            .try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
        let magnitude = magnitude.ok_or(Unusual)?;
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
            b'"' => self.string().map(drop),
            b'{' => self.skip_all(b'}', |reader| {
                reader.name()?;
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
                if self.peek()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.depth -= 1;
        self.take(end)
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
    /// Goes to the next member; false at the end.
    fn advance(&mut self) -> Result<bool> {
        match (self.state, self.reader.peek()?) {
            (State::Ended, _) => return Ok(false),
            (_, byte) if byte == self.end => {
                self.reader.at += 1;
                self.state = State::Ended;
                return Ok(false);
            }
            (State::Begun, _) => self.state = State::Within,
            (State::Within, _) => {
                self.reader.take(b',')?;
                // A comma before the end is no JSON.
                if self.reader.peek()? == self.end {
                    return Err(Unusual);
                }
            }
        }
        Ok(true)
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
