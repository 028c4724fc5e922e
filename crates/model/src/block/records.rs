//! Reading the owner records of a block.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::attributes::{AttributeTable, WINDOWS_RESERVED_HANDLE};
use crate::json::{Fields, Items, Object, Str, Unknown, is, keep};

/// The records of a block as they are read.
#[derive(Default)]
pub(super) struct Records<'de> {
    pub table: AttributeTable,
    /// Where the node that owns the block is known, and records of its own addresses are not wanted: that node.
    pub host: Option<String>,
    /// The place in the table of the one record of all these.
    pub own: Option<u32>,
    /// Places in the table by the index of the record in the value. Empty where they are the same.
    pub places: Vec<u32>,
    /// The record that is being read: its memory serves the next one.
    record: RawAttribute<'de>,
}

impl Records<'_> {
    /// Records of addresses that the block lends to others.
    pub fn lent_by(host: Option<&str>) -> Self {
        Self { host: host.map(str::to_owned), ..Self::default() }
    }

    /// How many the value has.
    pub fn len(&self) -> usize {
        if self.host.is_some() { self.places.len() } else { self.table.len() }
    }

    /// Takes over the record that was read.
    fn push(&mut self) {
        let record = &self.record;
        let Some(host) = &self.host else { return record.push_to(&mut self.table) };
        let next = self.table.len() as u32;
        if !record.is_plainly_on(host) {
            self.places.push(next);
            return record.push_to(&mut self.table);
        }
        let own = *self.own.get_or_insert_with(|| {
            let node = [("node", host.as_str())].into_iter();
            self.table.push_parts(None, Some(node), None, None, &Unknown::new());
            next
        });
        self.places.push(own);
    }
}

impl<'de> Items<'de> for Records<'de> {
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        self.record.clear();
        if seq.next_element_seed(Object(&mut self.record))?.is_none() {
            return Ok(false);
        }
        self.push();
        if self.len() > u32::MAX as usize / 2 {
            return Err(A::Error::custom("too many attributes"));
        }
        Ok(true)
    }
}

#[derive(Default)]
struct RawAttribute<'de> {
    handle: Option<Str<'de>>,
    owner: OwnerEntries<'de>,
    alternate: OwnerEntries<'de>,
    released_at: Option<Str<'de>>,
    unknown: Option<Box<Unknown>>,
}

impl RawAttribute<'_> {
    /// Makes it an empty record.
    fn clear(&mut self) {
        self.handle = None;
        self.owner.clear();
        self.alternate.clear();
        self.released_at = None;
        self.unknown = None;
    }

    fn push_to(&self, table: &mut AttributeTable) {
        let none = Unknown::new();
        table.push_parts(
            self.handle.as_ref().map(|h| &*h.0),
            self.owner.texts(),
            self.alternate.texts(),
            self.released_at.as_ref().map(|t| &*t.0),
            self.unknown.as_deref().unwrap_or(&none),
        );
    }

    /// True where the address is held on that node, and the record says nothing that bears on more than its owner.
    fn is_plainly_on(&self, host: &str) -> bool {
        let mut nodes = self.owner.entries.iter().filter(|(key, _)| key.0 == "node");
        let is_windows = |handle: &Str<'_>| handle.0.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE);
        nodes.any(|(_, node)| node.0 == host)
            && self.released_at.is_none()
            && !self.alternate.is_there
            && self.unknown.is_none()
            && !self.handle.as_ref().is_some_and(is_windows)
    }
}

impl<'de> Fields<'de> for RawAttribute<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            _ if is(name, "handle_id") => self.handle = map.next_value()?,
            _ if is(name, "secondary") => map.next_value_seed(&mut self.owner)?,
            _ if is(name, "alternateOwnerAttrs") => map.next_value_seed(&mut self.alternate)?,
            _ if is(name, "releasedAt") => self.released_at = map.next_value()?,
            _ => keep(&mut self.unknown, name, map)?,
        }
        Ok(())
    }
}

/// A map from text to text, or `null`; `null` values read as the empty text.
#[derive(Default)]
struct OwnerEntries<'de> {
    /// It is no `null`.
    is_there: bool,
    entries: Vec<(Str<'de>, Str<'de>)>,
}

impl OwnerEntries<'_> {
    fn clear(&mut self) {
        self.is_there = false;
        self.entries.clear();
    }

    /// The entries, where there is a map.
    fn texts(&self) -> Option<impl ExactSizeIterator<Item = (&str, &str)>> {
        self.is_there.then(|| self.entries.iter().map(|(key, value)| (&*key.0, &*value.0)))
    }
}

impl<'de> DeserializeSeed<'de> for &mut OwnerEntries<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.clear();
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for &mut OwnerEntries<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.is_there = true;
        while let Some((key, value)) = map.next_entry::<Str<'de>, Option<Str<'de>>>()? {
            if self.entries.iter().any(|(known, _)| known.0 == key.0) {
                self.entries.retain(|(known, _)| known.0 != key.0);
            }
            self.entries.push((key, value.unwrap_or(Str(Cow::Borrowed("")))));
        }
        Ok(())
    }
}
