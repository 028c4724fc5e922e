//! The packed owner records of a block.

use std::collections::BTreeMap;

use super::{Attribute, AttributeRef, HAS_ALTERNATE, HAS_HANDLE, HAS_OWNER, HAS_RELEASED, HAS_UNKNOWN};
use crate::json::Unknown;
use crate::owner_map::{OwnerKey, push_entry};
use crate::packing::{push_number, push_sized, take_sized};
use crate::text::{TextRef, push_text};

/// The parts of an owner record before they are packed. `M` is the attributes of an owner.
pub(crate) struct RecordParts<'p, M> {
    pub handle: Option<&'p str>,
    pub owner: Option<M>,
    pub alternate: Option<M>,
    pub released_at: Option<&'p str>,
    pub unknown: &'p Unknown,
}

/// All owner records of a block, packed into one buffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AttributeTable {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    pub has_cooling: bool,
}

impl AttributeTable {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<AttributeRef<'_>> {
        self.packed(index).map(AttributeRef::read)
    }

    /// Returns a record's handle without reading the other fields.
    pub(crate) fn handle(&self, index: usize) -> Option<TextRef<'_>> {
        let (flags, mut rest) = self.packed(index)?.split_first()?;
        if flags & HAS_HANDLE == 0 {
            return None;
        }
        Some(TextRef::from_packed(take_sized(&mut rest)))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = AttributeRef<'_>> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }

    /// Packs a record, and adds it at the end of the table.
    pub(crate) fn push(&mut self, attribute: &Attribute) {
        fn entries(
            map: &Option<BTreeMap<String, String>>,
        ) -> Option<impl ExactSizeIterator<Item = (OwnerKey<'_>, &str)>> {
            let map = map.as_ref()?;
            Some(
                map.iter()
                    .map(|(name, value)| (name.as_str().into(), value.as_str())),
            )
        }
        self.push_parts(RecordParts {
            handle: attribute.handle.as_deref(),
            owner: entries(&attribute.owner),
            alternate: entries(&attribute.alternate),
            released_at: attribute.released_at.as_deref(),
            unknown: &attribute.unknown,
        });
    }

    /// Appends a record from its parts, without building an [`Attribute`] first. A byte that says which parts the
    /// record has comes before them.
    pub(crate) fn push_parts<'a, M>(&mut self, parts: RecordParts<'_, M>)
    where
        M: ExactSizeIterator<Item = (OwnerKey<'a>, &'a str)>,
    {
        let RecordParts {
            handle,
            owner,
            alternate,
            released_at,
            unknown,
        } = parts;
        let mut flags = 0;
        if handle.is_some() {
            flags |= HAS_HANDLE;
        }
        if owner.is_some() {
            flags |= HAS_OWNER;
        }
        if alternate.is_some() {
            flags |= HAS_ALTERNATE;
        }
        if released_at.is_some() {
            flags |= HAS_RELEASED;
        }
        if !unknown.is_empty() {
            flags |= HAS_UNKNOWN;
        }
        self.bytes.push(flags);

        if let Some(handle) = handle {
            push_text(&mut self.bytes, handle);
        }
        for map in [owner, alternate].into_iter().flatten() {
            push_number(&mut self.bytes, map.len() as u64);
            for (key, value) in map {
                push_entry(&mut self.bytes, key, value);
            }
        }
        if let Some(released_at) = released_at {
            push_text(&mut self.bytes, released_at);
        }
        if !unknown.is_empty() {
            push_sized(&mut self.bytes, &serde_json::to_vec(unknown).unwrap_or_default());
        }
        self.ends.push(self.bytes.len() as u32);
        self.has_cooling |= released_at.is_some();
    }

    /// Removes the records for which `keep` is false, and keeps the order of the others. `keep` has an element for each
    /// record.
    pub(crate) fn retain(&mut self, keep: &[bool]) {
        let mut kept = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.ends.len()),
            // Each record that is pushed sets it if it is cooling.
            has_cooling: false,
        };
        for (record, is_kept) in self.records().zip(keep) {
            if *is_kept {
                kept.push_packed(record);
            }
        }
        *self = kept;
    }

    /// Replaces the record at `index` by `replacement`.
    pub(crate) fn replace(&mut self, index: usize, replacement: &Attribute) {
        let mut table = Self::default();
        for (position, record) in self.iter().enumerate() {
            if position == index {
                table.push(replacement);
            } else {
                table.push(&record.to_attribute());
            }
        }
        *self = table;
    }

    fn records(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|index| self.packed(index).unwrap_or_default())
    }

    /// Returns the bytes of the record at an index; `None` if there is no such record.
    fn packed(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 {
            0
        } else {
            self.ends[index - 1] as usize
        };
        Some(&self.bytes[start..end])
    }

    /// Adds a record that is packed already at the end of the table.
    fn push_packed(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len() as u32);
        self.has_cooling |= record.first().is_some_and(|flags| flags & HAS_RELEASED != 0);
    }

    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
