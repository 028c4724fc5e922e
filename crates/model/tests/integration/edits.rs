//! Errors from edits whose guards fail.

use std::borrow::Cow;

use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent};
use calipam_model::edit::{AllocationGuard, BlockEdit, Current, Edit, EditError, HandleEdit, apply};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::writable::Object;

/// Applies a single edit to an object.
fn edited(edit: Edit, object: Object) -> Result<Option<Object>, EditError> {
    let (revision, own) = (Revision::Etcd(7), edit.key());
    let current = |key: &Key| {
        assert_eq!(*key, own);
        Some(Current {
            revision: &revision,
            object: Some(Cow::Borrowed(&object)),
        })
    };
    let changes = apply(&[edit], "2026-05-01T10:01:00Z".parse().unwrap(), current)?;
    Ok(changes.into_iter().next().unwrap().1)
}

fn after(edit: Edit, object: Object) -> Option<Object> {
    edited(edit, object).unwrap()
}

#[test]
fn an_address_that_cools_was_released_and_not_reassigned() {
    let now = "2026-05-01T10:00:00Z".parse().unwrap();
    let mut block = Block::new("10.0.0.0/30".parse().unwrap(), None, now).unwrap();
    let [first, second] = ["net.a", "net.b"].map(|handle| Attribute::new(Some(handle), []));
    block.update(|edit| edit.assign(1, &first)).unwrap();
    let held = vec![AllocationGuard::new(&block.allocation(1).unwrap())];
    let release = Edit::Block(block.cidr(), BlockEdit::Release { held, cooldown: 60 });
    let refusal = |object: Object| edited(release.clone(), object).unwrap_err().to_string();

    let released = after(release.clone(), Object::from(block.clone())).unwrap();
    let why = refusal(released);
    assert!(
        why.ends_with("10.0.0.1 has been released since it was read"),
        "{why}"
    );

    block.update(|edit| edit.release(&[1]));
    block.update(|edit| edit.assign(1, &second)).unwrap();
    let why = refusal(Object::from(block));
    assert!(
        why.ends_with("10.0.0.1 has been reassigned since it was read"),
        "{why}"
    );
}

#[test]
fn a_release_in_a_block_of_the_oldest_form_gives_it_no_owner() {
    let stored = br#"{"cidr":"10.0.0.0/30","hostAffinity":"node-1","allocations":[0,1,null,null],"unallocated":[2,3],"attributes":[{"handle_id":"x"},{"handle_id":"y"}],"deleted":false}"#;
    let key = Key::Block("10.0.0.0/30".parse().unwrap());
    let Ok(Some(Object::Block(BlockContent::Sound(block)))) = Object::parse(&key, stored) else {
        panic!()
    };
    let held = vec![AllocationGuard::new(&block.allocation(0).unwrap())];
    let edit = Edit::Block(block.cidr(), BlockEdit::Release { held, cooldown: 0 });
    let text = String::from_utf8(after(edit, Object::from(*block)).unwrap().encode()).unwrap();
    assert!(
        text.contains(r#""affinity":null"#) && text.contains(r#""hostAffinity":"node-1""#),
        "{text}"
    );
    assert!(text.contains(r#""allocations":[null,0,null,null]"#), "{text}");
}

#[test]
fn counts_at_the_end_of_their_range_stay_there() {
    let cidr = "10.0.0.0/26".parse().unwrap();
    let mut handle = Handle::new("h");
    handle.set_count(cidr, i64::MAX);
    let up = Edit::Handle("h".into(), HandleEdit::Increment(cidr, 2));
    let Some(Object::Handle(handle)) = after(up, Object::Handle(handle)) else {
        panic!()
    };
    assert_eq!(handle.count(cidr), i64::MAX);
    let down = Edit::Handle("h".into(), HandleEdit::Decrement(cidr, i64::MIN));
    let Some(Object::Handle(handle)) = after(down, Object::Handle(handle)) else {
        panic!()
    };
    assert_eq!(handle.count(cidr), i64::MAX);
}

/// Numbers beyond the precision or range of doubles are kept, and the object stays decodable.
#[test]
fn unknown_numbers_keep_their_text() {
    let unknown = r#""future":{"huge":1e400,"long":12345678901234567890123,"exact":0.10}"#;
    let block = format!(
        r#"{{"cidr":"10.0.0.0/30","affinity":null,"allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[{{"handle_id":"x",{unknown}}}],"sequenceNumber":1,"sequenceNumberForAllocation":{{"0":1}},"deleted":false,{unknown}}}"#
    );
    let handle = format!(r#"{{"block":{{"10.0.0.0/30":1}},"deleted":false,{unknown}}}"#);
    let affinity = format!(r#"{{"state":"confirmed","deleted":false,{unknown}}}"#);
    let cidr = "10.0.0.0/30".parse().unwrap();
    let key = AffinityKey {
        kind: AffinityType::Host,
        node: "n".into(),
        cidr,
    };
    for (key, text) in [
        (Key::Block(cidr), block),
        (Key::Handle("x".into()), handle),
        (Key::Affinity(key), affinity),
    ] {
        let object = Object::parse(&key, text.as_bytes()).unwrap().unwrap();
        assert!(
            !matches!(object, Object::Block(BlockContent::Corrupt(_))),
            "{key}"
        );
        assert_eq!(String::from_utf8(object.encode()).unwrap(), text, "{key}");
    }
}
