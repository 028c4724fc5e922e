//! A list in Kubernetes protobuf: an envelope made of magic bytes and a message with the list as its second field.

use calipam_model::DecodeError;

use super::ListMeta;
use crate::protobuf::{Fields, Value, varint};

/// The first bytes of every response in this encoding.
const MAGIC: &[u8] = b"k8s\0";
/// Number of the envelope's field with the object.
const OBJECT: u32 = 2;
/// Tag of that field, which is length-delimited.
const RAW: u64 = (OBJECT as u64) << 3 | 2;
/// Number of the list's field with its metadata.
const METADATA: u64 = 1;
/// Number of the list's field with an item.
const ITEM: u64 = 2;
/// Maximum bytes of one item; an API server accepts no object above a few megabytes.
const MAX_FIELD: u64 = 64 << 20;

/// The largest number of bytes of a tag and a length.
const TWO_VARINTS: usize = 20;

/// Reads a protobuf list.
#[derive(Debug, Default)]
pub struct ProtobufList {
    /// The beginning of an incomplete field.
    incomplete: Vec<u8>,
    position: Position,
    meta: Option<ListMeta>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before the magic bytes.
    #[default]
    Start,
    /// In the envelope, before the list.
    Before,
    /// In the list, with the number of bytes that remain.
    List(u64),
    /// In the envelope, after the list.
    After,
}

impl ProtobufList {
    /// Reads a further piece of the message, and passes each complete item on.
    pub fn feed(&mut self, mut piece: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        // Only a field that began in an earlier piece is copied; the fields after it are read in place.
        let mut incomplete = std::mem::take(&mut self.incomplete);
        while !incomplete.is_empty() && !piece.is_empty() {
            let missing_length = missing(&incomplete).min(piece.len());
            let (continuation, after) = piece.split_at(missing_length);
            incomplete.extend_from_slice(continuation);
            piece = after;
            let used = self.read_fields(&incomplete, on_item)?;
            incomplete.drain(..used);
        }
        if incomplete.is_empty() {
            let used = self.read_fields(piece, on_item)?;
            incomplete.extend_from_slice(&piece[used..]);
        }
        self.incomplete = incomplete;
        Ok(())
    }

    pub fn meta(&self) -> Option<&ListMeta> {
        self.meta.as_ref()
    }

    pub fn finish(self) -> Result<ListMeta, DecodeError> {
        if self.position != Position::After || !self.incomplete.is_empty() {
            return Err("it is cut off".into());
        }
        Ok(self.meta.unwrap_or_default())
    }

    /// Reads complete fields, and passes the items among them on. Returns the number of bytes read; the bytes after
    /// them are the beginning of an incomplete field.
    fn read_fields(&mut self, bytes: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<usize, DecodeError> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            if self.position == Position::Start {
                if rest.len() < MAGIC.len() {
                    return Ok(used);
                }
                if !rest.starts_with(MAGIC) {
                    return Err("it does not begin like Kubernetes protobuf".into());
                }
                used += MAGIC.len();
                self.position = Position::Before;
                continue;
            }
            if self.position == Position::List(0) {
                self.position = Position::After;
                continue;
            }
            // The list is too large to be read as one field, so only its tag and length are read here.
            if self.position == Position::Before
                && let Some((RAW, length, size)) = varints(rest)
            {
                used += size;
                self.position = Position::List(length);
                continue;
            }

            let Some(field) = next_field(rest)? else {
                return Ok(used);
            };
            if let Position::List(length) = self.position {
                self.read_list_field(field, length, on_item)?;
            }
            let (_, _, size) = field;
            used += size;
        }
    }

    /// Reads a field of the list, of which `length` bytes remain.
    fn read_list_field(
        &mut self,
        field: Field<'_>,
        length: u64,
        on_item: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DecodeError> {
        let (tag, content, size) = field;
        let remaining = length
            .checked_sub(size as u64)
            .ok_or("an item is larger than its list")?;
        match tag >> 3 {
            METADATA => self.meta = Some(list_meta(content)?),
            ITEM => on_item(content),
            _ => {}
        }
        self.position = Position::List(remaining);
        Ok(())
    }
}

/// Returns the object in a response with one object; `None` if the response is malformed or has none.
pub fn object(body: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields::new(body.strip_prefix(MAGIC)?);
    let mut object = None;
    while let Some((field, value)) = fields.next_field()? {
        if let (OBJECT, Value::Bytes(bytes)) = (field, value) {
            object = Some(bytes);
        }
    }
    object
}

/// The tag, content and size of a field.
type Field<'a> = (u64, &'a [u8], usize);

/// Reads the next field; `None` if more bytes are needed. A field must have a length, as all fields of lists and
/// envelopes do.
fn next_field(bytes: &[u8]) -> Result<Option<Field<'_>>, DecodeError> {
    let Some((tag, length, head_size)) = varints(bytes) else {
        if bytes.len() < TWO_VARINTS {
            return Ok(None);
        }
        return Err("its fields cannot be decoded".into());
    };
    if tag & 7 != 2 || length > MAX_FIELD {
        return Err("its fields cannot be decoded".into());
    }
    let size = head_size + length as usize;
    let content = bytes.get(head_size..size);
    Ok(content.map(|content| (tag, content, size)))
}

/// The number of bytes that an incomplete field lacks; 1 if their number is not known yet.
fn missing(incomplete: &[u8]) -> usize {
    let Some((_, length, head_size)) = varints(incomplete) else {
        return 1;
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let size = head_size.saturating_add(length);
    size.saturating_sub(incomplete.len()).max(1)
}

/// Reads two varints, tag and length of a field; also returns their size.
fn varints(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (tag, first) = varint(bytes)?;
    let (len, second) = varint(&bytes[first..])?;
    Some((tag, len, first + second))
}

/// Reads `ListMeta`.
fn list_meta(message: &[u8]) -> Result<ListMeta, DecodeError> {
    decode_list_meta(message).ok_or_else(|| "its metadata cannot be decoded".into())
}

/// Reads `ListMeta`; `None` if it is malformed.
fn decode_list_meta(message: &[u8]) -> Option<ListMeta> {
    let text = |value: Value<'_>| String::from_utf8(value.bytes().to_vec()).ok();
    let mut meta = ListMeta::default();
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field()? {
        match field {
            2 => meta.resource_version = text(value)?,
            3 => meta.next = text(value)?,
            4 => meta.remaining = value.number(),
            _ => {}
        }
    }
    Some(meta)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::{put_bytes, put_message, put_number};

    fn body(items: &[Vec<u8>]) -> Vec<u8> {
        let mut meta = Vec::new();
        put_bytes(&mut meta, 2, b"48211");
        put_bytes(&mut meta, 3, b"next");
        put_number(&mut meta, 4, 7);
        let mut list = Vec::new();
        put_message(&mut list, 1, &meta);
        for item in items.iter() {
            put_message(&mut list, 2, item);
        }
        let mut body = MAGIC.to_vec();
        put_message(&mut body, 1, b"\n\x02v1\x12\x07PodList");
        put_message(&mut body, 2, &list);
        put_message(&mut body, 3, b"");
        put_message(&mut body, 4, b"");
        body
    }

    fn read(body: &[u8], size: usize) -> Result<(Vec<Vec<u8>>, ListMeta), DecodeError> {
        let mut list = ProtobufList::default();
        let mut items = Vec::new();
        for piece in body.chunks(size) {
            list.feed(piece, &mut |item| items.push(item.to_vec()))?;
        }
        Ok((items, list.finish()?))
    }

    #[test]
    fn items_come_whole_wherever_the_body_is_cut() {
        let items = vec![vec![1; 3], vec![], vec![0xFF; 300]];
        let body = body(&items);
        for size in 1..body.len() {
            let (found, meta) = read(&body, size).unwrap();
            assert_eq!(found, items);
            let expected = ListMeta {
                resource_version: "48211".into(),
                next: "next".into(),
                remaining: 7,
            };
            assert_eq!(meta, expected);
        }
    }

    #[test]
    fn the_metadata_is_known_before_the_items() {
        let body = body(&[vec![1; 300]]);
        let mut list = ProtobufList::default();
        list.feed(&body[..60], &mut |_| panic!("no item is complete yet"))
            .unwrap();
        assert_eq!(list.meta().unwrap().next, "next");
    }

    #[test]
    fn truncated_bodies_and_other_values_are_errors() {
        let body = body(&[vec![1; 30], vec![2; 40]]);
        let end_of_list = body.len() - 4;
        for len in 0..end_of_list {
            assert!(read(&body[..len], 9).is_err(), "{len}");
        }
        for body in [
            b"{\"kind\":\"List\"}".as_slice(),
            b"k8s",
            b"k8s\0\x08\x01",
            b"k8s\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        ] {
            assert!(read(body, 64).is_err(), "{body:?}");
        }
        assert_eq!(object(&body).map(<[u8]>::len), Some(body.len() - 4 - 15 - 4 - 2));
        assert_eq!(object(b"{}"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut list = ProtobufList::default();
            let _ = list.feed(MAGIC, &mut |_| {}).and_then(|()| list.feed(&bytes, &mut |_| {}));
            let _ = list.finish();
        }
    }
}
