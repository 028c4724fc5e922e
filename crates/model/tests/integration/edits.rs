//! What edits say where their guards do not hold.

use std::borrow::Cow;

use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent};
use calipam_model::edit::{BlockEdit, Current, Edit, Held, apply};
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::Revision;

/// Why an address that was held by `record` is not released once the block is as given.
fn refusal(record: &Attribute, sequence: u64, block: Block) -> String {
    let cidr = block.cidr();
    let held = vec![Held { ordinal: 1, record: record.clone(), sequence }];
    let edits = [Edit::Block(cidr, BlockEdit::Release { held, cooldown: 60 })];
    let (revision, object) = (Revision::Etcd(7), Object::from(block));
    let now = "2026-05-01T10:01:00Z".parse().unwrap();
    let current = |key: &Key| {
        assert_eq!(*key, Key::Block(cidr));
        Some(Current { revision: &revision, object: Some(Cow::Borrowed(&object)) })
    };
    apply(&edits, now, current).unwrap_err()
}

#[test]
fn an_address_that_cools_was_released_and_not_reassigned() {
    let now = "2026-05-01T10:00:00Z".parse().unwrap();
    let mut block = Block::new("10.0.0.0/30".parse().unwrap(), None, now).unwrap();
    let [first, second] = ["net.a", "net.b"].map(|handle| Attribute::new(Some(handle), []));
    block.update(|edit| edit.assign(1, &first)).unwrap();
    let sequence = block.allocation(1).unwrap().sequence;

    let released = {
        let held = vec![Held { ordinal: 1, record: first.clone(), sequence }];
        let edits = [Edit::Block(block.cidr(), BlockEdit::Release { held, cooldown: 60 })];
        let (revision, object) = (Revision::Etcd(7), Object::from(block.clone()));
        let current = |_: &Key| Some(Current { revision: &revision, object: Some(Cow::Borrowed(&object)) });
        match apply(&edits, now, current).unwrap().pop() {
            Some((_, Some(Object::Block(BlockContent::Sound(block))))) => *block,
            other => panic!("{other:?}"),
        }
    };
    let why = refusal(&first, sequence, released);
    assert!(why.ends_with("10.0.0.1 has been released since it was read"), "{why}");

    block.update(|edit| edit.release(&[1]));
    block.update(|edit| edit.assign(1, &second)).unwrap();
    let why = refusal(&first, sequence, block);
    assert!(why.ends_with("10.0.0.1 has been reassigned since it was read"), "{why}");
}
