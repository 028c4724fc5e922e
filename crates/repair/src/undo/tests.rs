//! Tests of the order of writes, of versions and of footprints.

use calipam_model::cidr::parse_cidr;

use super::conflicts::Footprint;
use super::*;

/// A handle that counts `left` addresses in 10.0.0.0/30 after the run, and counted `before` addresses before it.
fn handle(left: Option<u8>, before: Option<u8>) -> UndoObject {
    let value = |count| format!(r#"{{"handleID":"h","block":{{"10.0.0.0/30":{count}}}}}"#).into();
    let left = LeftVersion {
        revision: "7".into(),
        value: left.map(value),
    };
    UndoObject {
        key: Key::Handle("h".into()),
        left: Some(left),
        before: before.map(value),
    }
}

#[test]
fn a_handle_is_written_before_the_block_where_it_counts_more_again() {
    let phase = |left, before| handle(Some(left), Some(before)).phase();
    assert_eq!(
        [phase(1, 2), phase(2, 1), phase(2, 2)],
        [Phase::Claims, Phase::Releases, Phase::Releases]
    );
    assert_eq!(
        [handle(None, Some(1)).phase(), handle(Some(1), None).phase()],
        [Phase::Claims, Phase::Releases]
    );
}

#[test]
fn a_version_is_the_same_by_revision_and_value() {
    let version = |revision: &str, value: u8| {
        handle(Some(value), None).left.map(|left| LeftVersion {
            revision: revision.into(),
            ..left
        })
    };
    let is_same = |other: Option<LeftVersion>| {
        is_same_version(&Key::Handle("h".into()), version("7", 1).as_ref(), other.as_ref())
    };
    let expected = [true, false, false, false];
    assert_eq!(
        [version("7", 1), version("8", 1), version("7", 2), None].map(is_same),
        expected
    );
    assert!(is_same_version(&Key::Handle("h".into()), None, None));
}

#[test]
fn an_existing_object_has_no_footprint() {
    let blocks = |object: UndoObject| match Footprint::recreated(&object) {
        Some(Footprint::Blocks(blocks)) => blocks,
        Some(Footprint::Pool(_)) | None => Vec::new(),
    };
    assert_eq!(
        blocks(handle(None, Some(1))),
        [parse_cidr("10.0.0.0/30").unwrap()]
    );
    assert!(blocks(handle(Some(2), Some(1))).is_empty() && blocks(handle(Some(2), None)).is_empty());
}
