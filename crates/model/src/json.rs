//! Reads JSON like Go's decoder: the case of field names does not matter, the last of several fields with the same name
//! wins, `null` empties an optional field and leaves any other unchanged, and unknown fields are allowed (facts 1.3.2).

pub(crate) mod plain;
mod string_list;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::string_list::string_list;

/// Reads the fields of one JSON object.
pub(crate) trait Fields<'de> {
    /// Reads the value of the field `name` from `map`; must consume it exactly once.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads an entire JSON document into the fields that `create_fields` creates.
pub(crate) fn read_object<'de, F: Fields<'de>>(
    bytes: &'de [u8],
    create_fields: impl Fn() -> F,
) -> serde_json::Result<F> {
    let mut fields = create_fields();
    if plain::read_document(bytes, |reader| Object(&mut fields).deserialize(reader)).is_ok() {
        return Ok(fields);
    }
    // The reader of plain JSON may have filled some fields before it failed, so the general one starts over.
    read_generally(bytes, create_fields())
}

/// Reads a document with serde_json, as [`crate::json::plain`] cannot read all of them.
fn read_generally<'de, F: Fields<'de>>(bytes: &'de [u8], mut fields: F) -> serde_json::Result<F> {
    // Checking the entire text for UTF-8 once is much faster than checking each string.
    match std::str::from_utf8(bytes) {
        Ok(text) => read_document(serde_json::Deserializer::from_str(text), &mut fields)?,
        Err(_) => read_document(serde_json::Deserializer::from_slice(bytes), &mut fields)?,
    }
    Ok(fields)
}

fn read_document<'de, R: serde_json::de::Read<'de>>(
    mut reader: serde_json::Deserializer<R>,
    fields: &mut impl Fields<'de>,
) -> serde_json::Result<()> {
    Object(fields).deserialize(&mut reader)?;
    reader.end()
}

/// Like [`serde_json::from_slice`], but faster if the text is plain.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<T> {
    match plain::read_document(bytes, |reader| T::deserialize(reader)) {
        Ok(value) => Ok(value),
        Err(plain::Unusual) => serde_json::from_slice(bytes),
    }
}

/// Reads a JSON object or `null`, field by field. Returns false for `null`.
pub(crate) struct Object<'f, F>(pub &'f mut F);

impl<'de, F: Fields<'de>> DeserializeSeed<'de> for Object<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fields<'de>> Visitor<'de> for Object<'_, F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        while let Some(name) = map.next_key::<Str<'de>>()? {
            self.0.field(&name.0, &mut map)?;
        }
        Ok(true)
    }
}

/// Reads the items of one JSON array.
pub(crate) trait Items<'de> {
    /// Reads the next item from `seq`; returns false at the end.
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error>;
}

/// Reads a JSON array or `null`, item by item. Returns false for `null`.
pub(crate) struct Array<'f, F>(pub &'f mut F);

impl<'de, F: Items<'de>> DeserializeSeed<'de> for Array<'_, F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Items<'de>> Visitor<'de> for Array<'_, F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        while self.0.item(&mut seq)? {}
        Ok(true)
    }
}

/// A string that borrows from the document if possible.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Sets `target` to the next value of `map`, unless it is `null`.
pub(crate) fn set_unless_null<'de, T, A>(target: &mut T, map: &mut A) -> Result<(), A::Error>
where
    T: serde::Deserialize<'de>,
    A: MapAccess<'de>,
{
    if let Some(value) = map.next_value::<Option<T>>()? {
        *target = value;
    }
    Ok(())
}

/// Reads a value; `null` is read as the default value.
pub fn or_empty<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The unknown fields of an object, by name, with their original values.
pub type Unknown = BTreeMap<String, RawJson>;

/// A JSON value, kept as text to preserve numbers that do not fit in a double.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl fmt::Display for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get())
    }
}

impl RawJson {
    pub fn as_bool(&self) -> Option<bool> {
        self.0.get().parse().ok()
    }
}

impl From<bool> for RawJson {
    fn from(value: bool) -> Self {
        Self(if value { RawValue::TRUE } else { RawValue::FALSE }.to_owned())
    }
}

impl TryFrom<&serde_json::Value> for RawJson {
    type Error = serde_json::Error;

    fn try_from(value: &serde_json::Value) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self)
    }
}

/// Keeps a field that calipam does not know.
pub(crate) fn keep_unknown<'de, A: MapAccess<'de>>(
    unknown: &mut Option<Box<Unknown>>,
    name: &str,
    map: &mut A,
) -> Result<(), A::Error> {
    let value = map.next_value()?;
    unknown.get_or_insert_default().insert(name.to_owned(), value);
    Ok(())
}

/// True if Go's decoder reads `name` as the field `known`. Inlined, so that the compiler knows the length of `known`.
#[inline(always)]
pub(crate) fn is_field(name: &str, known: &str) -> bool {
    name.len() == known.len() && (name == known || name.eq_ignore_ascii_case(known))
}
