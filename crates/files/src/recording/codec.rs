//! Encodes groups of changes as the text of frames. Numbers are protobuf's varints, which `model::packing` writes and
//! [`Fields`] reads.

use std::collections::HashMap;
use std::io;

use calipam_model::key::BLOCK_PREFIX;
use calipam_model::packing::{push_number, push_sized};
use jiff::{SignedDuration, Timestamp};
use zstd::bulk::{Compressor, decompress};

use super::delta::{apply, delta};
use super::{Change, Group, Position, Positions, kind_of};
use crate::protobuf::Fields;

/// The first byte of the encoding of a deletion.
const DELETED: u8 = 0;
/// The first byte of the encoding of a change that contains the whole new value.
const WHOLE: u8 = 1;
/// The first byte of the encoding of a change that contains only the difference to the earlier value.
const DELTA: u8 = 2;

/// Maximum bytes of earlier groups' text in the dictionary for the next group.
const MAX_DICTIONARY: usize = 128 << 10;
/// Compression level for values that are kept to record the next change as a difference.
const FAST_LEVEL: i32 = 1;

/// True for keys whose values often change in a few places. Their changes are recorded as differences if that is
/// shorter. Most other objects are written once and later deleted.
pub(super) fn has_deltas(key: &[u8]) -> bool {
    key.starts_with(BLOCK_PREFIX.as_bytes()) || key.starts_with(b"ipamblocks/") || key.starts_with(b"nodes/")
}

/// The data from earlier groups that the next group depends on.
pub(super) struct Codec {
    /// The current values of keys whose changes are recorded as differences. The first values are from the full state.
    pub(super) values: Values,
    /// The encoded text of the latest groups, at most [`MAX_DICTIONARY`] bytes.
    pub(super) dictionary: Vec<u8>,
    pub(super) positions: Positions,
    /// The revision of the last change. The next one is stored relative to it.
    revision: i64,
}

impl Codec {
    /// Creates a codec without the values of the full state.
    pub(super) fn new(positions: Positions) -> io::Result<Self> {
        Ok(Self {
            values: Values::new()?,
            dictionary: vec![0],
            positions,
            revision: 0,
        })
    }

    /// Encodes a group, with each value as a difference to the earlier one where that is shorter. The codec then has
    /// the state after the group.
    pub(super) fn encode(&mut self, group: &Group) -> io::Result<Vec<u8>> {
        let milliseconds = group.time.as_millisecond().try_into().unwrap_or_default();
        let set_back_milliseconds = group.set_back.as_millis().try_into().unwrap_or_default();
        let mut text = Vec::new();
        push_number(&mut text, milliseconds);
        push_number(&mut text, set_back_milliseconds);
        push_number(&mut text, group.reached.len() as u64);
        for (kind, revision) in &group.reached {
            push_sized(&mut text, kind.as_bytes());
            push_number(&mut text, (*revision).try_into().unwrap_or_default());
        }
        for change in &group.changes {
            self.encode_change(change, &mut text)?;
        }
        self.note_positions(group);
        self.add_to_dictionary(&text);
        Ok(text)
    }

    /// Appends a change to the text of its group.
    fn encode_change(&mut self, change: &Change, text: &mut Vec<u8>) -> io::Result<()> {
        let Change { key, revision, value } = change;
        // The form comes first, but depends on the value. It is filled in below.
        let form_index = text.len();
        text.push(WHOLE);
        push_sized(text, key);
        push_number(text, zigzag(revision.wrapping_sub(self.revision)));
        self.revision = *revision;

        let Some(value) = value else {
            text[form_index] = DELETED;
            self.values.remove(key);
            return Ok(());
        };
        if has_deltas(key) {
            let old_value = self.values.get(key)?;
            self.values.set(key, value)?;
            if let Some(old_value) = old_value
                && let Some(delta) = delta(&old_value, value)
            {
                text[form_index] = DELTA;
                push_sized(text, &delta);
                return Ok(());
            }
        }
        push_sized(text, value);
        Ok(())
    }

    /// Decodes a group with the changes to wanted keys; `None` if it is malformed. The checksums of unwanted changes in
    /// `positions` can then be wrong, since their differences are not applied.
    pub(super) fn decode(&mut self, text: &[u8], is_wanted: &dyn Fn(&[u8]) -> bool) -> Option<Group> {
        let mut fields = Fields::new(text);
        let mut group = decode_head(&mut fields)?;
        while !fields.is_empty() {
            let form = u8::try_from(fields.varint()?).ok()?;
            let key = fields.sized()?.to_vec();
            self.revision = self.revision.wrapping_add(unzigzag(fields.varint()?));
            let is_key_wanted = is_wanted(&key);
            let value = match form {
                DELETED => None,
                DELTA if is_key_wanted => {
                    let old_value = self.values.get(&key).ok().flatten()?;
                    Some(apply(&old_value, fields.sized()?)?)
                }
                WHOLE | DELTA => Some(fields.sized()?.to_vec()),
                _ => return None,
            };
            match &value {
                Some(value) if is_key_wanted && has_deltas(&key) => self.values.set(&key, value).ok()?,
                Some(_) => {}
                None => self.values.remove(&key),
            }
            group.changes.push(Change {
                key,
                revision: self.revision,
                value,
            });
        }

        self.note_positions(&group);
        self.add_to_dictionary(text);
        group.changes.retain(|change| is_wanted(&change.key));
        Some(group)
    }

    /// Notes the last change of each kind, and the revisions up to which all changes of a kind are known.
    fn note_positions(&mut self, group: &Group) {
        for change in &group.changes {
            let kind = kind_of(&change.key);
            // Unlike `entry`, this copies the name of a kind only once, not for each of its changes.
            let position = match self.positions.get_mut(kind) {
                Some(position) => position,
                None => self.positions.entry(kind.to_owned()).or_default(),
            };
            position.note(change);
        }
        for (kind, revision) in &group.reached {
            let position: &mut Position = self.positions.entry(kind.clone()).or_default();
            position.revision = position.revision.max(*revision);
        }
    }

    /// Appends the text of a group to the dictionary, and removes its oldest text if it gets too long. The first byte
    /// stays.
    fn add_to_dictionary(&mut self, text: &[u8]) {
        self.dictionary.extend_from_slice(text);
        let excess = self.dictionary.len().saturating_sub(MAX_DICTIONARY);
        if excess > 0 {
            self.dictionary.drain(1..=excess.min(self.dictionary.len() - 1));
        }
    }
}

/// Decodes the part of a group before its changes: its time, and the revisions that kinds have reached.
fn decode_head(fields: &mut Fields<'_>) -> Option<Group> {
    let time = Timestamp::from_millisecond(fields.varint()?.cast_signed()).ok()?;
    let set_back = SignedDuration::from_millis(fields.varint()?.cast_signed());
    let mut group = Group {
        time,
        set_back,
        ..Group::default()
    };
    for _ in 0..fields.varint()? {
        let kind = String::from_utf8(fields.sized()?.to_vec()).ok()?;
        group.reached.insert(kind, fields.varint()?.cast_signed());
    }
    Some(group)
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
}

/// A compressed value, and its uncompressed length.
type Packed = (u32, Box<[u8]>);

/// Values by key, compressed because most of them do not change again for a while.
pub(super) struct Values {
    packed: HashMap<Box<[u8]>, Packed>,
    compressor: Compressor<'static>,
}

impl Values {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            packed: HashMap::new(),
            compressor: Compressor::new(FAST_LEVEL)?,
        })
    }

    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self.packed.get(key) {
            Some((length, packed)) => decompress(packed, *length as usize).map(Some),
            None => Ok(None),
        }
    }

    /// Keeps the value of a key, compressed.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let length = u32::try_from(value.len()).map_err(io::Error::other)?;
        let packed = (length, self.compressor.compress(value)?.into());
        // Unlike `insert`, this does not copy a key that is there already.
        match self.packed.get_mut(key) {
            Some(last) => *last = packed,
            None => drop(self.packed.insert(key.into(), packed)),
        }
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) {
        self.packed.remove(key);
    }
}
