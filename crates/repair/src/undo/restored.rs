//! The values that an undo writes: the values from before the run, with sequence numbers that never decrease.

use bytes::Bytes;
use calipam_datastore::write::Stored;
use calipam_model::block::{Block, BlockContent};
use calipam_model::key::Key;
use calipam_model::writable::Object;

use crate::journal::{compared_by_value, same_value};

/// Returns the value that restores `before`. A sound block gets new sequence numbers, so that clients that have read
/// the old numbers notice a change. Any other object is restored byte by byte.
pub(super) fn restored(key: &Key, now: Option<&Stored>, before: &Bytes) -> Bytes {
    let Some(mut block) = sound(key, before) else {
        return before.clone();
    };
    block.restore(now.and_then(|now| sound_block(now.object.as_ref())));
    Object::from(block).encode().into()
}

/// Returns true if a value is as it was before the run, except for sequence numbers.
pub(super) fn is_restored(key: &Key, now: Option<&Bytes>, before: Option<&Bytes>) -> bool {
    let (Some(now), Some(before)) = (now, before) else {
        return now.is_none() && before.is_none();
    };
    is_equal(key, now, before) || is_equal_block(key, sound(key, now).as_ref(), before)
}

/// Returns true if an object is as it was before the run, except for sequence numbers.
pub(super) fn is_restored_now(key: &Key, now: Option<&Stored>, before: Option<&Bytes>) -> bool {
    let (Some(now), Some(before)) = (now, before) else {
        return now.is_none() && before.is_none();
    };
    is_equal(key, &now.raw, before) || is_equal_block(key, sound_block(now.object.as_ref()), before)
}

/// Returns true if two values are equal, for objects other than blocks.
fn is_equal(key: &Key, now: &Bytes, before: &Bytes) -> bool {
    now == before || (compared_by_value(key.clone()) && same_value(now, before))
}

/// Returns true if a block and a value differ only in sequence numbers.
fn is_equal_block(key: &Key, now: Option<&Block>, before: &Bytes) -> bool {
    let Some(now) = now else { return false };
    sound(key, before).is_some_and(|before| now.differs_only_in_sequences(&before))
}

fn sound_block(object: Option<&Object>) -> Option<&Block> {
    match object {
        Some(Object::Block(BlockContent::Sound(block))) => Some(block),
        _ => None,
    }
}

fn sound(key: &Key, raw: &[u8]) -> Option<Block> {
    match Object::parse(key, raw) {
        Ok(Some(Object::Block(BlockContent::Sound(block)))) => Some(*block),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calipam_model::snapshot::Revision;

    const BEFORE: &str = r#"{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":[0,1,null,null],"unallocated":[2,3],"attributes":[{"handle_id":"x"},{"handle_id":"y"}],"sequenceNumber":18446744073709551000,"sequenceNumberForAllocation":{"0":7,"1":8},"deleted":false,"future":[1]}"#;

    fn key() -> Key {
        Key::Block("10.0.0.0/30".parse().unwrap())
    }

    fn stored(raw: Bytes) -> Stored {
        let object = Object::parse(&key(), &raw).unwrap();
        Stored {
            revision: Revision::Etcd(9),
            raw,
            whole: None,
            object,
            user: None,
        }
    }

    #[test]
    fn sequence_numbers_only_rise() {
        let before = Bytes::from_static(BEFORE.as_bytes());
        let mut block = sound(&key(), &before).unwrap();
        block.update(|update| update.release(&[1]));
        let now = stored(Object::from(block).encode().into());
        assert!(!is_restored(&key(), Some(&now.raw), Some(&before)));
        let text = restored(&key(), Some(&now), &before);
        let expected = BEFORE
            .replace("18446744073709551000", "18446744073709551002")
            .replace(r#""1":8"#, r#""1":18446744073709551001"#);
        assert_eq!(text, expected.as_bytes());
        assert!(is_restored(&key(), Some(&text), Some(&before)));
    }

    #[test]
    fn a_deleted_block_comes_back_with_a_higher_number() {
        let before = Bytes::from_static(BEFORE.as_bytes());
        let text = restored(&key(), None, &before);
        let expected = BEFORE.replace("551000", "551001").replace(
            r#"{"0":7,"1":8}"#,
            r#"{"0":18446744073709551000,"1":18446744073709551000}"#,
        );
        assert_eq!(text, expected.as_bytes());
        assert!(is_restored(&key(), None, None) && !is_restored(&key(), None, Some(&before)));
    }

    #[test]
    fn corrupt_values_are_restored_unchanged() {
        let corrupt = Bytes::from_static(br#"{"cidr":"10.0.0.0/30","allocations":[9]}"#);
        let object = restored(
            &key(),
            Some(&stored(Bytes::from_static(BEFORE.as_bytes()))),
            &corrupt,
        );
        assert_eq!(object, corrupt);
        let handle = Bytes::from_static(b"{ }");
        assert_eq!(restored(&Key::Handle("h".into()), None, &handle), handle);
    }
}
