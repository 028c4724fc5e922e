//! Reading the owner records of a block.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::attributes::{AttributeTable, WINDOWS_RESERVED_HANDLE};
use crate::json::{Fields, Items, Object, Str, Unknown, is, keep};

/// The records of a block as they are read.
#[derive(Default)]
pub(super) struct Records {
    pub table: AttributeTable,
    /// Where the node that owns the block is known, and records of its own addresses are not wanted: that node.
    pub host: Option<String>,
    /// The place in the table of the one record of all these.
    pub own: Option<u32>,
    /// Places in the table by the index of the record in the value. Empty where they are the same.
    pub places: Vec<u32>,
}

impl Records {
    /// Records of addresses that the block lends to others.
    pub fn lent_by(host: Option<&str>) -> Self {
        Self { host: host.map(str::to_owned), ..Self::default() }
    }

    /// How many the value has.
    pub fn len(&self) -> usize {
        if self.host.is_some() { self.places.len() } else { self.table.len() }
    }

    fn push(&mut self, record: &RawAttribute<'_>) {
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

impl<'de> Items<'de> for Records {
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        let mut raw = RawAttribute::default();
        if seq.next_element_seed(Object(&mut raw))?.is_none() {
            return Ok(false);
        }
        self.push(&raw);
        if self.len() > u32::MAX as usize / 2 {
            return Err(A::Error::custom("too many attributes"));
        }
        Ok(true)
    }
}

#[derive(Default)]
struct RawAttribute<'de> {
    handle: Option<Str<'de>>,
    owner: Option<OwnerEntries<'de>>,
    alternate: Option<OwnerEntries<'de>>,
    released_at: Option<Str<'de>>,
    unknown: Option<Box<Unknown>>,
}

impl RawAttribute<'_> {
    fn push_to(&self, table: &mut AttributeTable) {
        fn entries<'a>(
            map: &'a Option<OwnerEntries<'_>>,
        ) -> Option<impl ExactSizeIterator<Item = (&'a str, &'a str)>> {
            map.as_ref().map(|m| m.0.iter().map(|(k, v)| (&*k.0, &*v.0)))
        }
        table.push_parts(
            self.handle.as_ref().map(|h| &*h.0),
            entries(&self.owner),
            entries(&self.alternate),
            self.released_at.as_ref().map(|t| &*t.0),
            self.unknown.as_deref().unwrap_or(&Unknown::new()),
        );
    }

    /// True where the address is held on that node, and the record says nothing that bears on more than its owner.
    fn is_plainly_on(&self, host: &str) -> bool {
        let entries = self.owner.iter().flat_map(|owner| &owner.0);
        let mut nodes = entries.filter(|(key, _)| key.0 == "node");
        let is_windows = |handle: &Str<'_>| handle.0.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE);
        nodes.any(|(_, node)| node.0 == host)
            && self.released_at.is_none()
            && self.alternate.is_none()
            && self.unknown.is_none()
            && !self.handle.as_ref().is_some_and(is_windows)
    }
}

impl<'de> Fields<'de> for RawAttribute<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            _ if is(name, "handle_id") => self.handle = map.next_value()?,
            _ if is(name, "secondary") => self.owner = map.next_value()?,
            _ if is(name, "alternateOwnerAttrs") => self.alternate = map.next_value()?,
            _ if is(name, "releasedAt") => self.released_at = map.next_value()?,
            _ => keep(&mut self.unknown, name, map)?,
        }
        Ok(())
    }
}

/// A map from text to text; `null` values read as the empty text.
struct OwnerEntries<'de>(Vec<(Str<'de>, Str<'de>)>);

impl<'de> Deserialize<'de> for OwnerEntries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = OwnerEntries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(Str<'de>, Str<'de>)> = Vec::with_capacity(6);
                while let Some((key, value)) = map.next_entry::<Str<'de>, Option<Str<'de>>>()? {
                    if entries.iter().any(|(known, _)| known.0 == key.0) {
                        entries.retain(|(known, _)| known.0 != key.0);
                    }
                    entries.push((key, value.unwrap_or(Str(Cow::Borrowed("")))));
                }
                Ok(OwnerEntries(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
