//! Values as blocks of YAML, in the layout of libyaml, with which serde_yaml writes.

mod collection;

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use serde::ser::{self, Impossible};
use serde::{Serialize, Serializer};

use self::collection::{Collection, Kind};
use super::scalar::{self, Scalar};

/// Bytes that are collected before they are handed on.
const CHUNK: usize = 1 << 16;
/// A longer key stands after a question mark, on lines of its own.
const LONGEST_KEY: usize = 128;

/// Why a value was not written.
#[derive(Debug)]
pub struct Error(pub io::Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl ser::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self(io::Error::other(message.to_string()))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self(error)
    }
}

/// Where the next value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the begin of the document.
    Begin,
    Key,
    /// After the colon of a key.
    Colon,
    /// After a dash, a question mark, or a colon on a line of its own: a collection begins on the same line.
    Dash,
}

/// Writes one document. Tags of enums are not among what it writes, since JSON has none: documents are the same in both.
pub struct Emitter<'a> {
    out: &'a mut dyn Write,
    /// What is not handed on yet.
    buffer: Vec<u8>,
    place: Place,
    /// Of the collection in which the next value lies, in spaces.
    indentation: usize,
    /// Values that only display themselves, one after the other.
    displayed: String,
}

impl<'a> Emitter<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        let buffer = Vec::with_capacity(CHUNK + CHUNK / 4);
        Self { out, buffer, place: Place::Begin, indentation: 0, displayed: String::new() }
    }

    /// Hands on what is left.
    pub fn finish(mut self) -> Result<(), Error> {
        self.hand_on()
    }

    fn hand_on(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes a text as a key or value.
    fn text(&mut self, text: &str) -> Result<(), Error> {
        if self.place == Place::Key {
            return self.key(text);
        }
        self.gap();
        match scalar::of_value(text) {
            Scalar::Plain => self.buffer.extend_from_slice(text.as_bytes()),
            Scalar::Quoted => self.quoted(text),
            Scalar::Other => {
                let written = scalar::value_by_library(text, self.indentation)?;
                self.buffer.extend_from_slice(written.as_bytes());
                return self.flush_where_full();
            }
        }
        self.end_line()
    }

    fn key(&mut self, text: &str) -> Result<(), Error> {
        if text.len() > LONGEST_KEY || scalar::has_line_break(text) {
            self.buffer.push(b'?');
            self.place = Place::Dash;
            self.text(text)?;
            self.indent();
            self.buffer.push(b':');
            return Ok(());
        }
        match scalar::of_key(text) {
            Scalar::Plain => self.buffer.extend_from_slice(text.as_bytes()),
            Scalar::Quoted => self.quoted(text),
            Scalar::Other => self.buffer.extend_from_slice(scalar::key_by_library(text)?.as_bytes()),
        }
        self.end_key();
        Ok(())
    }

    /// Writes what is not a text and needs no quotes: a number or a word.
    fn bare(&mut self, value: impl Display) -> Result<(), Error> {
        let is_key = self.place == Place::Key;
        if !is_key {
            self.gap();
        }
        write!(self.buffer, "{value}")?;
        if is_key {
            self.end_key();
            return Ok(());
        }
        self.end_line()
    }

    fn quoted(&mut self, text: &str) {
        self.buffer.push(b'\'');
        for (index, part) in text.split('\'').enumerate() {
            if index > 0 {
                self.buffer.extend_from_slice(b"''");
            }
            self.buffer.extend_from_slice(part.as_bytes());
        }
        self.buffer.push(b'\'');
    }

    /// The space before a value.
    fn gap(&mut self) {
        if self.place != Place::Begin {
            self.buffer.push(b' ');
        }
    }

    fn end_key(&mut self) {
        self.buffer.push(b':');
        self.place = Place::Colon;
    }

    fn end_line(&mut self) -> Result<(), Error> {
        self.buffer.push(b'\n');
        self.flush_where_full()
    }

    fn flush_where_full(&mut self) -> Result<(), Error> {
        if self.buffer.len() < CHUNK { Ok(()) } else { self.hand_on() }
    }

    fn indent(&mut self) {
        self.buffer.resize(self.buffer.len() + self.indentation, b' ');
    }

    fn begin(&mut self, kind: Kind) -> Result<Collection<'_, 'a>, Error> {
        let (place, outer) = (self.place, self.indentation);
        self.indentation = match (place, kind) {
            (Place::Key, _) => return Err(ser::Error::custom("a key of a map is a collection")),
            (Place::Begin, _) => 0,
            // The items of a list stand below their key, not to the right of it.
            (Place::Colon, Kind::List) => outer,
            (Place::Colon, Kind::Map) | (Place::Dash, _) => outer + 2,
        };
        Ok(Collection { emitter: self, kind, place, outer, is_empty: true })
    }
}

/// Methods for types that are written as they display themselves.
macro_rules! bare {
    ($($method:ident $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            self.bare(value)
        })*
    };
}

impl<'e, 'a> Serializer for &'e mut Emitter<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Collection<'e, 'a>;
    type SerializeTuple = Collection<'e, 'a>;
    type SerializeTupleStruct = Collection<'e, 'a>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Collection<'e, 'a>;
    type SerializeStruct = Collection<'e, 'a>;
    type SerializeStructVariant = Impossible<(), Error>;

    bare!(
        serialize_bool bool,
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_u128 u128
    );

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.bare(scalar::number_by_library(value)?)
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.bare(scalar::number_by_library(value)?)
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        self.text(value)
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Error> {
        let mut displayed = std::mem::take(&mut self.displayed);
        displayed.clear();
        write!(displayed, "{value}").map_err(|error| Error(io::Error::other(error)))?;
        let result = self.text(&displayed);
        self.displayed = displayed;
        result
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Error> {
        Err(ser::Error::custom("bytes are written as texts only"))
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.bare("null")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.bare("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.bare("null")
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<(), Error> {
        Err(tagged(name, variant))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Collection<'e, 'a>, Error> {
        self.begin(Kind::List)
    }

    fn serialize_tuple(self, _: usize) -> Result<Collection<'e, 'a>, Error> {
        self.begin(Kind::List)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Collection<'e, 'a>, Error> {
        self.begin(Kind::List)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(tagged(name, variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Collection<'e, 'a>, Error> {
        self.begin(Kind::Map)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Collection<'e, 'a>, Error> {
        self.begin(Kind::Map)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(tagged(name, variant))
    }
}

fn tagged(name: &str, variant: &str) -> Error {
    ser::Error::custom(format_args!("{name}::{variant} would be written with a tag"))
}
