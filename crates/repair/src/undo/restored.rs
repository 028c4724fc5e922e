//! The value that undo writes: what was stored before, with sequence numbers that only rise.

use bytes::Bytes;
use calipam_datastore::write::{Object, Stored};
use calipam_model::block::{Block, BlockContent};
use calipam_model::key::Key;
use serde_json::Value;

const SEQUENCE: &str = "sequenceNumber";
const SEQUENCES: &str = "sequenceNumberForAllocation";

/// What to write to bring `before` back. A block gets the number after the higher one of its versions, and
/// an address whose record changes gets the number of a new allocation: whoever remembers the old number
/// must see that something happened (facts 3.2). Anything else comes back as it was, byte by byte; so
/// does a block that was corrupt.
pub(super) fn restored(key: &Key, now: Option<&Stored>, before: &Bytes) -> Object {
    let block = matches!(key, Key::Block(_)).then(|| sound(before)).flatten();
    let raised = block.and_then(|block| raised(&block, now.and_then(|s| sound(&s.raw)).as_ref(), before));
    raised.map_or_else(|| Object::Verbatim(before.clone()), |block| Object::Block(Box::new(block)))
}

fn sound(raw: &[u8]) -> Option<Block> {
    match BlockContent::parse(raw).ok()? {
        BlockContent::Sound(block) => Some(*block),
        BlockContent::Corrupt(_) => None,
    }
}

fn raised(block: &Block, now: Option<&Block>, before: &[u8]) -> Option<Block> {
    let mut value: Value = serde_json::from_slice(before).ok()?;
    let fields = value.as_object_mut()?;
    let newest = block.sequence().max(now.map_or(0, Block::sequence));
    fields.insert(SEQUENCE.into(), newest.wrapping_add(1).into());
    let mut numbers =
        fields.remove(SEQUENCES).filter(Value::is_object).unwrap_or_else(|| serde_json::json!({}));
    for ordinal in changed(block, now) {
        numbers[ordinal.to_string()] = newest.into();
    }
    fields.insert(SEQUENCES.into(), numbers);
    sound(&serde_json::to_vec(&value).ok()?)
}

/// Ordinals that are allocated in `block` and are not, or otherwise, in `now`.
fn changed(block: &Block, now: Option<&Block>) -> Vec<u32> {
    let same = |ordinal: u32| match (block.allocation(ordinal), now.and_then(|now| now.allocation(ordinal))) {
        (Some(a), Some(b)) => a.attribute.to_attribute() == b.attribute.to_attribute(),
        (a, _) => a.is_none(),
    };
    (0..block.size()).filter(|ordinal| !same(*ordinal)).collect()
}

/// True where an object is as it was before the run, but for sequence numbers.
pub(super) fn is_restored(key: &Key, now: Option<&Stored>, before: Option<&Bytes>) -> bool {
    match (now, before) {
        (None, None) => true,
        (Some(now), Some(before)) if matches!(key, Key::Block(_)) => {
            now.raw == *before
                || without_sequences(&now.raw).is_some_and(|now| Some(now) == without_sequences(before))
        }
        (Some(now), Some(before)) => now.raw == *before,
        _ => false,
    }
}

/// The block as Calico writes it today, without its sequence numbers.
fn without_sequences(raw: &[u8]) -> Option<Value> {
    let mut value = serde_json::to_value(sound(raw)?).ok()?;
    let fields = value.as_object_mut()?;
    fields.remove(SEQUENCE);
    fields.remove(SEQUENCES);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use calipam_datastore::write::Content;
    use calipam_model::snapshot::Revision;

    const BEFORE: &str = r#"{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":[0,1,null,null],"unallocated":[2,3],"attributes":[{"handle_id":"x"},{"handle_id":"y"}],"sequenceNumber":18446744073709551000,"sequenceNumberForAllocation":{"0":7,"1":8},"deleted":false,"future":[1]}"#;

    fn key() -> Key {
        Key::Block("10.0.0.0/30".parse().unwrap())
    }

    fn stored(raw: Bytes) -> Stored {
        let content = Content::Block(BlockContent::parse(&raw).unwrap());
        Stored { revision: Revision::Etcd(9), raw, content }
    }

    #[test]
    fn sequence_numbers_only_rise() {
        let before = Bytes::from_static(BEFORE.as_bytes());
        let mut block = sound(&before).unwrap();
        block.update(|edit| edit.release(&[1]));
        let now = stored(Object::Block(Box::new(block)).encode());
        assert!(!is_restored(&key(), Some(&now), Some(&before)));
        let text = restored(&key(), Some(&now), &before).encode();
        let expected = BEFORE
            .replace("18446744073709551000", "18446744073709551002")
            .replace(r#""1":8"#, r#""1":18446744073709551001"#);
        assert_eq!(text, expected.as_bytes());
        assert!(is_restored(&key(), Some(&stored(text)), Some(&before)));
    }

    #[test]
    fn a_deleted_block_comes_back_with_a_higher_number() {
        let before = Bytes::from_static(BEFORE.as_bytes());
        let text = restored(&key(), None, &before).encode();
        let expected = BEFORE
            .replace("551000", "551001")
            .replace(r#"{"0":7,"1":8}"#, r#"{"0":18446744073709551000,"1":18446744073709551000}"#);
        assert_eq!(text, expected.as_bytes());
        assert!(is_restored(&key(), None, None) && !is_restored(&key(), None, Some(&before)));
    }

    #[test]
    fn what_was_corrupt_comes_back_as_it_was() {
        let corrupt = Bytes::from_static(br#"{"cidr":"10.0.0.0/30","allocations":[9]}"#);
        let object = restored(&key(), Some(&stored(Bytes::from_static(BEFORE.as_bytes()))), &corrupt);
        assert_eq!(object, Object::Verbatim(corrupt));
        let handle = Bytes::from_static(b"{ }");
        assert_eq!(restored(&Key::Handle("h".into()), None, &handle), Object::Verbatim(handle));
    }
}
