//! The subset of protobuf that calipam needs: varints, length-delimited fields, and the message KeyValue.
//! Bytes are not copied; truncated or malformed input gives `None`.

use crate::raw::RawEntry;

pub use calipam_model::packing::push_number as put_varint;

/// Appends a number field, unless the number is the default 0.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field) << 3);
        put_varint(out, number);
    }
}

/// Appends a bytes field, unless it is empty, which is the default.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_message(out, field, bytes);
    }
}

/// Appends an embedded message, even if it is empty.
pub fn put_message(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a varint; returns its value and size. `None` if it is incomplete or too long.
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    // Nearly all tags and lengths take one byte.
    if let Some(byte) = bytes.first()
        && byte & 0x80 == 0
    {
        return Some((u64::from(*byte), 1));
    }

    let mut number = 0u64;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7F) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((number, i + 1));
        }
    }
    None
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    /// Bytes, a string or an embedded message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which etcd does not use.
    Fixed,
}

impl<'a> Value<'a> {
    /// The number; 0 for any other value.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) | Self::Fixed => 0,
        }
    }

    /// The bytes; empty for any other value.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) | Self::Fixed => &[],
        }
    }
}

/// Reads a message: field by field, or numbers and bytes without fields.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field; `Some(None)` at the end, `None` if the message is malformed.
    pub fn next_field(&mut self) -> Option<Option<(u32, Value<'a>)>> {
        if self.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let field = u32::try_from(tag >> 3).ok()?;
        // The last three bits are the wire type. Groups (3 and 4) are obsolete.
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => Value::Bytes(self.sized()?),
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        Some(Some((field, value)))
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn varint(&mut self) -> Option<u64> {
        let (number, size) = varint(self.rest)?;
        self.rest = &self.rest[size..];
        Some(number)
    }

    /// Reads a number of bytes, and then the bytes.
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?.try_into().ok()?;
        self.take(len)
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.rest.get(..len)?;
        self.rest = &self.rest[len..];
        Some(taken)
    }
}

/// Reads `mvccpb.KeyValue`, as in responses and snapshot files; `None` if it is malformed. Fields that it lacks are
/// empty.
pub fn read_key_value(message: &[u8]) -> Option<RawEntry<'_>> {
    let mut entry = RawEntry::default();
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field()? {
        match field {
            1 => entry.key = value.bytes(),
            2 => entry.create_revision = value.number() as i64,
            3 => entry.mod_revision = value.number() as i64,
            4 => entry.version = value.number() as i64,
            5 => entry.value = value.bytes(),
            6 => entry.lease = value.number() as i64,
            _ => {}
        }
    }
    Some(entry)
}

/// Appends `mvccpb.KeyValue`.
pub fn put_key_value(out: &mut Vec<u8>, entry: &RawEntry<'_>) {
    put_bytes(out, 1, entry.key);
    put_number(out, 2, entry.create_revision as u64);
    put_number(out, 3, entry.mod_revision as u64);
    put_number(out, 4, entry.version as u64);
    put_bytes(out, 5, entry.value);
    put_number(out, 6, entry.lease as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_values_come_back() {
        let entry = RawEntry {
            key: b"/calico/x",
            value: &[0xFF; 300],
            create_revision: 3,
            mod_revision: i64::MAX,
            version: 1,
            lease: -5,
        };
        let mut bytes = Vec::new();
        put_key_value(&mut bytes, &entry);
        assert_eq!(read_key_value(&bytes), Some(entry));
        for len in 0..bytes.len() {
            if let Some(cut) = read_key_value(&bytes[..len]) {
                assert!(cut.value.is_empty() || cut.value == entry.value, "cut at {len}");
            }
        }
    }

    #[test]
    fn unknown_fields_are_passed_over_and_nonsense_refused() {
        let mut bytes = Vec::new();
        put_message(&mut bytes, 99, b"future");
        bytes.extend([(77 << 3 & 0x7F) | 1 | 0x80, 4, 1, 2, 3, 4, 5, 6, 7, 8]);
        put_bytes(&mut bytes, 1, b"k");
        assert_eq!(read_key_value(&bytes).map(|e| e.key), Some(b"k".as_slice()));
        assert_eq!(read_key_value(&[0x0B]), None);
        assert_eq!(read_key_value(&[0x80; 11]), None);
        assert_eq!(read_key_value(&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]), None);
    }
}
