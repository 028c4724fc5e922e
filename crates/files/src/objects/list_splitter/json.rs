//! Splits a JSON list into its items, without reading their content.

use calipam_model::DecodeError;
use serde::Deserialize;

use super::ListMeta;

/// Maximum bytes outside the items: kind, version and metadata.
const MAX_ENVELOPE: usize = 1 << 20;
/// Maximum bytes of one item; an API server accepts no object above a few megabytes.
const MAX_ITEM: usize = 64 << 20;

/// Reads a JSON list.
#[derive(Debug, Default)]
pub struct JsonList {
    /// The bytes outside the items, which form an empty list: `{"items":[],"metadata":{…}}`.
    envelope: Vec<u8>,
    /// The beginning of an incomplete item.
    item: Vec<u8>,
    position: Position,
    text: InText,
    /// The number of open objects and arrays, in either the envelope or the item.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Outside the array of items.
    #[default]
    Envelope,
    /// In the array, outside of its items.
    Between,
    Item,
}

/// The position of the next byte relative to strings, in which brackets and braces have no meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InText {
    #[default]
    No,
    Yes,
    /// After a backslash.
    Escaped,
}

impl JsonList {
    /// Reads a further piece of the document, and passes each complete item on.
    pub fn feed(&mut self, mut piece: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        while !piece.is_empty() {
            let used = match self.position {
                Position::Envelope => self.read_envelope(piece)?,
                Position::Between => self.skip_between(piece)?,
                Position::Item => self.read_item(piece, on_item)?,
            };
            piece = &piece[used..];
        }
        Ok(())
    }

    /// Reads the envelope after the last piece. Fails if the document is cut off or no list.
    pub fn finish(self) -> Result<ListMeta, DecodeError> {
        #[derive(Deserialize)]
        struct Envelope {
            items: Option<Vec<serde::de::IgnoredAny>>,
            metadata: Option<ListMeta>,
        }
        if self.position != Position::Envelope {
            return Err("it is cut off".into());
        }
        let envelope: Envelope = serde_json::from_slice(&self.envelope)
            .map_err(|error| DecodeError(format!("it is not a complete list: {error}")))?;
        // Some servers omit the items of an empty list. A document with neither items nor metadata is not a list.
        match (envelope.items, envelope.metadata) {
            (None, None) => Err("it has neither items nor metadata".into()),
            (_, metadata) => Ok(metadata.unwrap_or_default()),
        }
    }

    /// The bytes outside the items that have been read so far.
    pub fn envelope_so_far(&self) -> &[u8] {
        &self.envelope
    }

    /// Reads a piece outside of the items, up to the beginning of the items if there is one. Returns the number of
    /// bytes read.
    fn read_envelope(&mut self, piece: &[u8]) -> Result<usize, DecodeError> {
        let mut used = 0;
        while let Some(length) = self.next_bracket(&piece[used..]) {
            let end = used + length;
            self.envelope.extend_from_slice(&piece[used..end]);
            used = end;
            let bracket = piece[end - 1];
            let before_bracket = &self.envelope[..self.envelope.len() - 1];
            if bracket == b'[' && self.depth == 1 && ends_with_items(before_bracket) {
                self.position = Position::Between;
                return Ok(used);
            }
            if matches!(bracket, b'{' | b'[') {
                self.depth += 1;
            } else {
                self.depth = self
                    .depth
                    .checked_sub(1)
                    .ok_or("a closing bracket has no opening bracket")?;
            }
        }
        self.envelope.extend_from_slice(&piece[used..]);
        if self.envelope.len() > MAX_ENVELOPE {
            return Err("it has no items".into());
        }
        Ok(piece.len())
    }

    /// Skips the bytes between two items, or ends the items. Returns the number of bytes read.
    fn skip_between(&mut self, piece: &[u8]) -> Result<usize, DecodeError> {
        for (index, byte) in piece.iter().enumerate() {
            match byte {
                b'{' => {
                    self.position = Position::Item;
                    self.depth = 0;
                    return Ok(index);
                }
                b']' => {
                    self.envelope.push(b']');
                    self.position = Position::Envelope;
                    self.depth = 1;
                    return Ok(index + 1);
                }
                b',' | b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => return Err("an item is not an object".into()),
            }
        }
        Ok(piece.len())
    }

    /// Reads a piece of an item, and passes it on when it is complete. Returns the number of bytes read.
    fn read_item(&mut self, piece: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<usize, DecodeError> {
        let Some(end) = self.end_of_item(piece) else {
            self.item.extend_from_slice(piece);
            if self.item.len() > MAX_ITEM {
                return Err("one of its items is longer than any object can be".into());
            }
            return Ok(piece.len());
        };

        if self.item.is_empty() {
            // The whole item is in this piece, so it need not be copied.
            on_item(&piece[..end]);
        } else {
            self.item.extend_from_slice(&piece[..end]);
            on_item(&self.item);
            self.item.clear();
        }
        self.position = Position::Between;
        Ok(end)
    }

    /// The index after the item's last byte, if the piece contains it.
    fn end_of_item(&mut self, piece: &[u8]) -> Option<usize> {
        let mut end = 0;
        while let Some(length) = self.next_bracket(&piece[end..]) {
            end += length;
            match piece[end - 1] {
                b'{' | b'[' => self.depth += 1,
                _ => self.depth -= 1,
            }
            if self.depth == 0 {
                return Some(end);
            }
        }
        None
    }

    /// Returns the index after the next bracket or brace outside of strings; `None` if the piece has no more. A string
    /// or an escape can continue in the next piece.
    fn next_bracket(&mut self, piece: &[u8]) -> Option<usize> {
        let mut index = 0;
        while let Some(byte) = piece.get(index) {
            match self.text {
                InText::Yes => {
                    index += memchr::memchr2(b'"', b'\\', &piece[index..])?;
                    self.text = if piece[index] == b'"' {
                        InText::No
                    } else {
                        InText::Escaped
                    };
                }
                InText::Escaped => self.text = InText::Yes,
                InText::No => match byte {
                    b'"' => self.text = InText::Yes,
                    b'{' | b'[' | b'}' | b']' => return Some(index + 1),
                    _ => {}
                },
            }
            index += 1;
        }
        None
    }
}

/// True if the next value belongs to the field `items`.
fn ends_with_items(envelope: &[u8]) -> bool {
    let Some(rest) = envelope.trim_ascii_end().strip_suffix(b":") else {
        return false;
    };
    let Some(rest) = rest.trim_ascii_end().strip_suffix(b"\"items\"") else {
        return false;
    };
    !rest.ends_with(b"\\")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Feeds `body` in pieces of `size` bytes.
    fn read(body: &[u8], size: usize) -> Result<(Vec<Value>, ListMeta), DecodeError> {
        let mut list = JsonList::default();
        let mut items = Vec::new();
        for piece in body.chunks(size) {
            list.feed(piece, &mut |item| {
                items.push(serde_json::from_slice(item).unwrap())
            })?;
        }
        Ok((items, list.finish()?))
    }

    #[test]
    fn items_come_whole_wherever_the_body_is_cut() {
        let items = [
            json!({"metadata": {"name": "a\"}]"}, "spec": {"items": [{"x": "\\"}, []]}}),
            json!({}),
            json!({"text": "\\\\\"{[", "more": [[{}]], "é": "ß€😀"}),
        ];
        let meta = json!({"continue": "next\"page", "resourceVersion": "48211", "remainingItemCount": 7});
        let bodies = [
            json!({"apiVersion": "x/v1", "items": items, "kind": "L", "metadata": meta}).to_string(),
            format!(
                "{{\n \"metadata\": {meta}, \"items\" : [\n{},\n {} , {}\n]\n}}\n",
                items[0], items[1], items[2]
            ),
        ];
        for body in bodies {
            for size in 1..body.len() {
                let (found, meta) = read(body.as_bytes(), size).unwrap();
                assert_eq!(found, items, "{size}");
                assert_eq!((meta.next.as_str(), meta.remaining), ("next\"page", 7));
                assert_eq!(meta.resource_version, "48211");
            }
        }
    }

    #[test]
    fn other_fields_of_that_name_are_not_taken_for_the_items() {
        let body = br#"{"x\"items":[{"no":1}],"metadata":{"items":[{"no":2}]},"other":["items",[{}]],"items":[{"yes":1}]}"#;
        assert_eq!(read(body, 3).unwrap().0, [json!({"yes": 1})]);
        assert_eq!(
            read(br#"{"kind":"L","items":null,"metadata":{}}"#, 5).unwrap().0,
            [Value::Null; 0]
        );
    }

    #[test]
    fn truncated_bodies_and_other_values_are_errors() {
        let body =
            json!({"items": [{"a": "b"}, {"c": [1]}], "metadata": {"resourceVersion": "1"}}).to_string();
        for len in 0..body.len() {
            assert!(read(&body.as_bytes()[..len], 9).is_err(), "{len}");
        }
        for body in [
            "<html>",
            "[]",
            "{}",
            "null",
            r#"{"items":[1]}"#,
            r#"{"items":["x"]}"#,
            "}",
            "]",
        ] {
            assert!(read(body.as_bytes(), 4).is_err(), "{body}");
        }
        let endless = [b"{\"a\":\"".as_slice(), &[b'x'; MAX_ENVELOPE]].concat();
        assert!(read(&endless, 4096).is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[\\PC\"\\\\]{0,6}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_items_come_out_as_they_went_in(
            items in prop::collection::vec(value(), 0..6),
            size in 1usize..40,
        ) {
            let items: Vec<Value> = items.into_iter().map(|v| json!({"spec": v})).collect();
            let body = json!({"items": items, "metadata": {"resourceVersion": "5"}}).to_string();
            prop_assert_eq!(read(body.as_bytes(), size).unwrap().0, items);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\items 1".to_vec()), 0..60)) {
            let mut list = JsonList::default();
            if list.feed(&bytes, &mut |_| {}).is_ok() {
                let _ = list.finish();
            }
        }
    }
}
