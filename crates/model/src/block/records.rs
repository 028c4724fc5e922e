//! Reading the owner records of a block.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::attributes::{AttributeTable, WINDOWS_RESERVED_HANDLE};
use crate::json::{Fields, Items, Object, Str, Unknown, is, keep, read_plain};

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
    /// Records are plain JSON.
    is_plain: bool,
    /// The record that is being read: its memory serves the next one.
    record: RawAttribute<'de>,
}

impl Records<'_> {
    /// Records of addresses that the block lends to others; `is_plain` where the quick reader reads them.
    pub fn lent_by(host: Option<&str>, is_plain: bool) -> Self {
        Self { host: host.map(str::to_owned), is_plain, ..Self::default() }
    }

    /// How many the value has.
    pub fn len(&self) -> usize {
        if self.host.is_some() { self.places.len() } else { self.table.len() }
    }

    /// Takes over the record that was read.
    fn push(&mut self) {
        let record = &self.record;
        let Some(host) = &self.host else { return record.push_to(&mut self.table) };
        if record.is_plainly_on(host) {
            return self.push_own();
        }
        self.places.push(self.table.len() as u32);
        record.push_to(&mut self.table);
    }

    /// Takes over a record of an address that is held on the node which owns the block.
    fn push_own(&mut self) {
        let Some(host) = &self.host else { return };
        let next = self.table.len() as u32;
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
        let is_there = match &self.host {
            Some(_) if self.is_plain => self.take_text(seq)?,
            _ => self.take_fields(seq)?,
        };
        if !is_there {
            return Ok(false);
        }
        if self.len() > u32::MAX as usize / 2 {
            return Err(A::Error::custom("too many attributes"));
        }
        Ok(true)
    }
}

impl<'de> Records<'de> {
    /// Takes the next record field by field; false at the end.
    fn take_fields<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        self.record.clear();
        let is_there = seq.next_element_seed(Object(&mut self.record))?.is_some();
        if is_there {
            self.push();
        }
        Ok(is_there)
    }

    /// Takes the next record by its text, which nearly always tells that it is one of those of which there is one for all.
    fn take_text<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        let Some(text) = seq.next_element::<&'de RawValue>()?.map(RawValue::get) else { return Ok(false) };
        if self.host.as_deref().is_some_and(|host| is_plainly_on(text, host)) {
            self.push_own();
            return Ok(true);
        }
        self.record.clear();
        if !read_plain(text.as_bytes(), &mut self.record) {
            return Err(A::Error::custom("for the general reader"));
        }
        self.push();
        Ok(true)
    }
}

/// True where the text of a record has the form in which Calico writes it, and [`RawAttribute::is_plainly_on`] is true of
/// it. It is plain JSON, so that each quote begins or ends a string.
fn is_plainly_on(record: &str, host: &str) -> bool {
    let walk = || {
        let (handle, rest) = split_string(record.strip_prefix(r#"{"handle_id":"#)?)?;
        let mut rest = rest.strip_prefix(r#","secondary":{"#)?;
        let mut is_on_host = false;
        loop {
            let (key, after) = split_string(rest)?;
            let (value, after) = split_string(after.strip_prefix(':')?)?;
            // The last one of several counts.
            if key == "node" {
                is_on_host = value == host;
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => return Some(after == "}}" && is_on_host && !is_windows_handle(handle)),
            }
        }
    };
    walk().unwrap_or(false)
}

/// The string with which plain JSON begins, and what follows it.
fn split_string(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let end = memchr(b'"', text.as_bytes())?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

fn is_windows_handle(handle: &str) -> bool {
    handle.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE)
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
        nodes.any(|(_, node)| node.0 == host)
            && self.released_at.is_none()
            && !self.alternate.is_there
            && self.unknown.is_none()
            && !self.handle.as_ref().is_some_and(|handle| is_windows_handle(&handle.0))
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
