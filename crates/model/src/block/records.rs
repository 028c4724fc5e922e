//! Reads the owner records of a block.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::attributes::{AttributeTable, RecordParts, WINDOWS_RESERVED_HANDLE};
use crate::json::{Fields, Items, Object, Str, Unknown, is_field, keep_unknown};
use crate::owner_map::{OwnerKey, code_of};

#[derive(Default)]
pub(super) struct Records<'de> {
    pub kept: Kept,
    /// The current record. Reading the next one reuses its memory.
    record: RawAttribute<'de>,
}

/// A placeholder for the index of the record that the node's own addresses share, until that index is known.
const OWN: u32 = u32::MAX;

/// The records that were read and kept.
#[derive(Default)]
pub(super) struct Kept {
    table: AttributeTable,
    /// The node whose own records are merged into one; `None` to keep all records.
    pub host: Option<String>,
    /// The newest `timestamp` of the merged records; `None` if there are none.
    pub own: Option<String>,
    /// The place of each record in the table, by the record's index in the value. Empty if index and place are the
    /// same.
    places: Vec<u32>,
}

impl Kept {
    /// The number of records that were read.
    pub(super) fn len(&self) -> usize {
        if self.host.is_some() {
            self.places.len()
        } else {
            self.table.len()
        }
    }

    /// Adds a record, or merges it if it is like most records of the host.
    fn push(&mut self, record: &RawAttribute<'_>) {
        let Some(host) = &self.host else {
            return record.push_to(&mut self.table);
        };
        if !record.is_plainly_on(host) {
            self.places.push(self.table.len() as u32);
            return record.push_to(&mut self.table);
        }
        self.places.push(OWN);

        let newest = self.own.get_or_insert_default();
        let time = record.time();
        // The text form that Go prints sorts chronologically.
        if time > newest.as_str() {
            newest.clear();
            newest.push_str(time);
        }
    }

    /// Adds the merged record, and returns the table of records and, for each record that was pushed, its index in the
    /// table. Without a host, nothing was merged, and there are no such places: each record has its own index.
    pub(super) fn finish(mut self) -> (AttributeTable, Vec<u32>) {
        if let (Some(host), Some(newest)) = (&self.host, &self.own) {
            let mut attributes = vec![("node".into(), host.as_str())];
            if !newest.is_empty() {
                attributes.push(("timestamp".into(), newest.as_str()));
            }
            let own_place = self.table.len() as u32;
            self.table.push_parts(RecordParts {
                handle: None,
                owner: Some(attributes.into_iter()),
                alternate: None,
                released_at: None,
                unknown: &Unknown::new(),
            });
            for place in &mut self.places {
                if *place == OWN {
                    *place = own_place;
                }
            }
        }
        self.table.shrink();
        (self.table, self.places)
    }
}

impl<'de> Items<'de> for Records<'de> {
    /// Reads the next record of the list.
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        self.record.clear();
        if seq.next_element_seed(Object(&mut self.record))?.is_none() {
            return Ok(false);
        }
        if self.kept.len() >= u32::MAX as usize / 2 {
            return Err(A::Error::custom("too many attributes"));
        }
        self.kept.push(&self.record);
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
    fn clear(&mut self) {
        self.handle = None;
        self.owner.clear();
        self.alternate.clear();
        self.released_at = None;
        self.unknown = None;
    }

    /// Adds the record to a table.
    fn push_to(&self, table: &mut AttributeTable) {
        let no_unknown = Unknown::new();
        table.push_parts(RecordParts {
            handle: self.handle.as_ref().map(|handle| &*handle.0),
            owner: self.owner.texts(),
            alternate: self.alternate.texts(),
            released_at: self.released_at.as_ref().map(|time| &*time.0),
            unknown: self.unknown.as_deref().unwrap_or(&no_unknown),
        });
    }

    /// Returns the assignment time; empty if it is not recorded.
    fn time(&self) -> &str {
        for entry in &self.owner.entries {
            if entry.key.0 == "timestamp" {
                return &entry.value.0;
            }
        }
        ""
    }

    /// True if the record can be merged: it belongs to an address in use on `host`, and has no alternate owner or
    /// unknown fields.
    fn is_plainly_on(&self, host: &str) -> bool {
        let mut entries = self.owner.entries.iter();
        let is_on_host = entries.any(|entry| entry.key.0 == "node" && entry.value.0 == host);
        let is_reserved_by_windows = self
            .handle
            .as_ref()
            .is_some_and(|handle| handle.0.eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE));
        is_on_host
            && self.released_at.is_none()
            && !self.alternate.is_present
            && self.unknown.is_none()
            && !is_reserved_by_windows
    }
}

impl<'de> Fields<'de> for RawAttribute<'de> {
    /// Reads a field of a record.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "handle_id") {
            self.handle = map.next_value()?;
        } else if is_field(name, "secondary") {
            map.next_value_seed(&mut self.owner)?;
        } else if is_field(name, "alternateOwnerAttrs") {
            map.next_value_seed(&mut self.alternate)?;
        } else if is_field(name, "releasedAt") {
            self.released_at = map.next_value()?;
        } else {
            keep_unknown(&mut self.unknown, name, map)?;
        }
        Ok(())
    }
}

/// A map of strings, or `null`. A `null` inside the map reads as an empty string.
#[derive(Default)]
struct OwnerEntries<'de> {
    /// True if the value is present and not `null`.
    is_present: bool,
    entries: Vec<Entry<'de>>,
}

struct Entry<'de> {
    key: Str<'de>,
    code: u8,
    value: Str<'de>,
}

impl Entry<'_> {
    /// Borrows the key and the value.
    fn texts(&self) -> (OwnerKey<'_>, &str) {
        (
            OwnerKey {
                code: self.code,
                text: &self.key.0,
            },
            &self.value.0,
        )
    }
}

impl OwnerEntries<'_> {
    fn clear(&mut self) {
        self.is_present = false;
        self.entries.clear();
    }

    fn texts(&self) -> Option<impl ExactSizeIterator<Item = (OwnerKey<'_>, &str)>> {
        self.is_present.then(|| self.entries.iter().map(Entry::texts))
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

    /// Reads the attributes. Of several with the same key, the last one counts.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.is_present = true;
        while let Some((key, value)) = map.next_entry::<Str<'de>, Option<Str<'de>>>()? {
            self.entries.retain(|earlier| earlier.key.0 != key.0);
            let value = value.unwrap_or(Str(Cow::Borrowed("")));
            self.entries.push(Entry {
                code: code_of(&key.0),
                key,
                value,
            });
        }
        Ok(())
    }
}
