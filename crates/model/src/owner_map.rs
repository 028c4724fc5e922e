//! Owner attributes of a record, packed: which pod, node or service an address belongs to.

use crate::packing::{push_text, take_number, take_sized};
use crate::text::TextRef;

/// Keys of owner maps that take one byte in the table (facts 4.3). Only ever append.
const KNOWN_KEYS: [&str; 12] = [
    "pod",
    "namespace",
    "node",
    "timestamp",
    "type",
    "service",
    "vmi-name",
    "vmi-uid",
    "vm-uid",
    "vmim-uid",
    "note",
    "network",
];

/// Appends one entry of an owner map: code or key, then value. `packed` is scratch space.
pub(crate) fn push_entry(out: &mut Vec<u8>, packed: &mut Vec<u8>, key: &str, value: &str) {
    match KNOWN_KEYS.iter().position(|known| *known == key) {
        Some(code) => out.push(code as u8 + 1),
        None => {
            out.push(0);
            push_text(out, packed, key);
        }
    }
    push_text(out, packed, value);
}

/// Owner attributes in place: text by text, sorted by key as Go writes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerMap<'a> {
    len: usize,
    entries: &'a [u8],
}

impl<'a> OwnerMap<'a> {
    /// Takes a map from the front of `bytes`.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Self {
        let len = take_number(bytes);
        let all: &'a [u8] = bytes;
        let mut walk = OwnerEntries { left: len, rest: all };
        while walk.next().is_some() {}
        *bytes = walk.rest;
        Self { len, entries: &all[..all.len() - walk.rest.len()] }
    }

    /// True where there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The attributes in the order of the record.
    pub fn iter(&self) -> impl Iterator<Item = (TextRef<'a>, TextRef<'a>)> + use<'a> {
        OwnerEntries { left: self.len, rest: self.entries }
    }

    /// The value of one attribute, by one of Calico's keys (facts 4.3). Those pack to themselves, so
    /// that comparing the bytes is enough.
    pub fn get(&self, key: &str) -> Option<TextRef<'a>> {
        self.iter().find(|(k, _)| k.packed() == key.as_bytes()).map(|(_, value)| value)
    }
}

struct OwnerEntries<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for OwnerEntries<'a> {
    type Item = (TextRef<'a>, TextRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let (code, rest) = self.rest.split_first()?;
        self.rest = rest;
        let key = match code.checked_sub(1) {
            Some(known) => KNOWN_KEYS.get(usize::from(known)).copied().unwrap_or_default().as_bytes(),
            None => take_sized(&mut self.rest),
        };
        let value = take_sized(&mut self.rest);
        Some((TextRef::from_packed(key), TextRef::from_packed(value)))
    }
}
