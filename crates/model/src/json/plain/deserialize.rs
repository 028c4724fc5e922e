//! The reader of plain JSON as a serde deserializer.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::{Plain, Result, Unusual};

/// The name by which `serde_json::value::RawValue` requests the text of a value. If serde_json changes it, objects with
/// unknown fields go to the general reader.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl<'de> Plain<'de> {
    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'-' => visitor.visit_i64(self.read_negative()?),
            _ => visitor.visit_u64(self.read_magnitude()?),
        }
    }

    /// Passes an object or array to `visit`, which must read all of it.
    fn visit_members<T>(
        &mut self,
        end: u8,
        visit: impl FnOnce(&mut Members<'_, 'de>) -> Result<T>,
    ) -> Result<T> {
        self.enter()?;
        self.position += 1;
        let mut members = Members {
            reader: self,
            end,
            state: State::Begun,
        };
        let value = visit(&mut members)?;
        if members.state != State::Ended {
            return Err(Unusual);
        }
        self.depth -= 1;
        Ok(value)
    }
}

/// Leaves types that do not occur in Calico values to the general reader.
macro_rules! leave_to_the_general_reader {
    ($($method:ident($($argument:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $argument,)* _: V) -> Result<V::Value> {
            Err(Unusual)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Plain<'de> {
    type Error = Unusual;

    /// Reads a value of the type that it has.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek()? {
            b'"' => visitor.visit_borrowed_str(self.read_string()?),
            b'{' => self.visit_members(b'}', |members| visitor.visit_map(members)),
            b'[' => self.visit_members(b']', |members| visitor.visit_seq(members)),
            b'-' | b'0'..=b'9' => self.visit_number(visitor),
            b'n' => {
                self.expect_literal("null")?;
                visitor.visit_unit()
            }
            b't' => {
                self.expect_literal("true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.expect_literal("false")?;
                visitor.visit_bool(false)
            }
            _ => Err(Unusual),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.peek()? == b'n' {
            self.expect_literal("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.read_string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip_value()?;
        visitor.visit_unit()
    }

    /// Reads a value; a raw one as its text.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name != RAW_VALUE {
            return visitor.visit_newtype_struct(self);
        }
        self.skip_blanks();
        let start = self.position;
        self.skip_value()?;
        let text = self.text.get(start..self.position).ok_or(Unusual)?;
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
    /// No member has been read.
    Begun,
    /// A member has been read.
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
    /// Moves to the next member; returns false at the end. After a comma there must be a member: the byte that ends an
    /// object or array cannot start a name or a value.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        if self.state == State::Ended {
            return Ok(false);
        }
        let byte = self.reader.peek()?;
        if self.state == State::Within && byte == b',' {
            self.reader.position += 1;
            return Ok(true);
        }
        if byte == self.end {
            self.reader.position += 1;
            self.state = State::Ended;
            return Ok(false);
        }
        if self.state == State::Within {
            return Err(Unusual);
        }
        self.state = State::Within;
        Ok(true)
    }
}

impl<'de> MapAccess<'de> for &mut Members<'_, 'de> {
    type Error = Unusual;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.advance()? {
            return Ok(None);
        }
        let name = self.reader.read_name()?;
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

/// A value's text in the form that `RawValue` expects: an object with one field.
struct RawValue<'de> {
    text: Option<&'de str>,
}

impl<'de> MapAccess<'de> for RawValue<'de> {
    type Error = Unusual;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.text.is_none() {
            return Ok(None);
        }
        seed.deserialize(BorrowedStrDeserializer::new(RAW_VALUE))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let text = self.text.take().ok_or(Unusual)?;
        seed.deserialize(BorrowedStrDeserializer::new(text))
    }
}
