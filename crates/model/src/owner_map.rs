//! A record's packed owner attributes: the pod, node or service that an address belongs to.

use std::collections::BTreeMap;

use crate::packing::{take_number, take_sized};
use crate::text::{TextRef, push_text};

/// Keys of owner maps that are stored as one byte (facts 4.3). New keys must be added at the end.
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

/// Codes of keys: their positions in [`KNOWN_KEYS`], from 1.
const POD: u8 = 1;
const NAMESPACE: u8 = 2;
const NODE: u8 = 3;
const VMI_NAME: u8 = 7;
const VMI_UID: u8 = 8;
const VM_UID: u8 = 9;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerKey<'a> {
    pub code: u8,
    pub text: &'a str,
}

impl<'a> From<&'a str> for OwnerKey<'a> {
    fn from(text: &'a str) -> Self {
        Self {
            code: code_of(text),
            text,
        }
    }
}

/// The code of a key; 0 if it has none.
pub(crate) fn code_of(key: &str) -> u8 {
    KNOWN_KEYS
        .iter()
        .position(|known| *known == key)
        .map_or(0, |index| index as u8 + 1)
}

/// Appends one entry to an owner map: the code of the key, the key if it has no code, and the value.
pub(crate) fn push_entry(out: &mut Vec<u8>, key: OwnerKey<'_>, value: &str) {
    out.push(key.code);
    if key.code == 0 {
        push_text(out, key.text);
    }
    push_text(out, value);
}

/// A view of packed owner attributes, in the order in which they were packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerMap<'a> {
    len: usize,
    entries: &'a [u8],
}

impl<'a> OwnerMap<'a> {
    /// Reads a map from the front of `bytes`.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Self {
        let len = take_number(bytes);
        let packed: &'a [u8] = bytes;
        let mut entries = OwnerEntries {
            remaining: len,
            rest: packed,
        };
        while entries.advance().is_some() {}

        *bytes = entries.rest;
        Self {
            len,
            entries: &packed[..packed.len() - entries.rest.len()],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (TextRef<'a>, TextRef<'a>)> + use<'a> {
        OwnerEntries {
            remaining: self.len,
            rest: self.entries,
        }
    }

    /// True if both maps have the same entries, in whatever order they are stored.
    pub fn is_same(self, other: OwnerMap<'_>) -> bool {
        self.entries == other.entries || self.to_map() == other.to_map()
    }

    /// Returns an unpacked copy.
    pub fn to_map(self) -> BTreeMap<String, String> {
        self.iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    /// The value of one attribute, by one of Calico's keys (facts 4.3). Packing does not change these keys, so their
    /// bytes can be compared.
    pub fn get(&self, key: &str) -> Option<TextRef<'a>> {
        self.iter()
            .find(|(name, _)| name.packed() == key.as_bytes())
            .map(|(_, value)| value)
    }

    /// Reads the attributes that identify the user, in one pass over the codes, because a check does this for every
    /// allocation.
    pub fn owner(&self) -> Owner<'a> {
        let mut owner = Owner::default();
        let mut entries = OwnerEntries {
            remaining: self.len,
            rest: self.entries,
        };
        while let Some((code, _, value)) = entries.advance() {
            match code {
                POD => owner.pod = Some(value),
                NAMESPACE => owner.namespace = Some(value),
                NODE => owner.node = Some(value),
                VMI_NAME | VMI_UID | VM_UID => owner.is_machine = true,
                _ => {}
            }
        }
        owner
    }
}

/// The attributes that identify the user of an address, if they are set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner<'a> {
    pub namespace: Option<TextRef<'a>>,
    pub pod: Option<TextRef<'a>>,
    pub node: Option<TextRef<'a>>,
    /// True if the attributes name a KubeVirt machine or its instance.
    pub is_machine: bool,
}

struct OwnerEntries<'a> {
    remaining: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for OwnerEntries<'a> {
    type Item = (TextRef<'a>, TextRef<'a>);

    /// Returns the next attribute, as key and value. A key that is stored as a number has its text in a table.
    fn next(&mut self) -> Option<Self::Item> {
        let (code, mut key, value) = self.advance()?;
        let index = code.checked_sub(1).map(usize::from);
        if let Some(known_key) = index.and_then(|index| KNOWN_KEYS.get(index)) {
            key = TextRef::from_packed(known_key.as_bytes());
        }
        Some((key, value))
    }
}

impl<'a> OwnerEntries<'a> {
    /// The next attribute: its code, its key if it has no code, and its value.
    fn advance(&mut self) -> Option<(u8, TextRef<'a>, TextRef<'a>)> {
        self.remaining = self.remaining.checked_sub(1)?;
        let (code, rest) = self.rest.split_first()?;
        self.rest = rest;
        let key = if *code == 0 {
            take_sized(&mut self.rest)
        } else {
            &[]
        };
        let value = take_sized(&mut self.rest);
        Some((*code, TextRef::from_packed(key), TextRef::from_packed(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_keys() {
        let key = |code: u8| KNOWN_KEYS[usize::from(code) - 1];
        let codes = [POD, NAMESPACE, NODE, VMI_NAME, VMI_UID, VM_UID];
        assert_eq!(
            codes.map(key),
            ["pod", "namespace", "node", "vmi-name", "vmi-uid", "vm-uid"]
        );
    }
}
