//! How the value that a change leaves differs from the one before it. A block of which some addresses are released stays the same
//! but for these: the journal says what differs.

use serde::{Deserialize, Serialize};

/// Of the text before: so many bytes stay, so many after them go, and this comes in their place. Bytes after the last edit
/// stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextEdit(usize, usize, String);

/// Parts that are looked at to find where two texts go on alike.
const NEAR: usize = 2048;
/// Shorter texts are written as they are.
const SHORT: usize = 256;

/// What makes `after` of `before`; `None` where that is not much shorter than `after` itself.
pub(super) fn edits(before: &str, after: &str) -> Option<Vec<TextEdit>> {
    if after.len() < SHORT {
        return None;
    }
    let edits = differences(&parts(before), &parts(after));
    let length: usize = edits.iter().map(|TextEdit(.., insert)| insert.len() + 16).sum();
    let is_right = || apply(before, &edits).as_deref() == Some(after);
    (length < after.len() / 2 && is_right()).then_some(edits)
}

/// The text that edits make; `None` where they do not fit.
pub(super) fn apply(before: &str, edits: &[TextEdit]) -> Option<String> {
    let mut after = String::with_capacity(before.len());
    let mut rest = before;
    for TextEdit(keep, remove, insert) in edits {
        let (kept, others) = rest.split_at_checked(*keep)?;
        rest = others.split_at_checked(*remove)?.1;
        after.push_str(kept);
        after.push_str(insert);
    }
    after.push_str(rest);
    Some(after)
}

/// JSON, cut where entries of arrays and objects end.
fn parts(text: &str) -> Vec<&str> {
    text.split_inclusive(',').collect()
}

fn differences(before: &[&str], after: &[&str]) -> Vec<TextEdit> {
    let mut edits: Vec<TextEdit> = Vec::new();
    let (mut old, mut new) = (before, after);
    let mut keep = 0;
    loop {
        match (old, new) {
            ([], []) => return edits,
            ([first, old_rest @ ..], [other, new_rest @ ..]) if first == other => {
                keep += first.len();
                (old, new) = (old_rest, new_rest);
            }
            _ => {
                let (removed, inserted) = until_alike(old, new);
                let (gone, come);
                (gone, old) = old.split_at(removed);
                (come, new) = new.split_at(inserted);
                let gone: usize = gone.iter().map(|part| part.len()).sum();
                match edits.last_mut().filter(|_| keep == 0) {
                    Some(TextEdit(_, remove, insert)) => {
                        *remove += gone;
                        insert.extend(come.iter().copied());
                    }
                    None => edits.push(TextEdit(keep, gone, come.concat())),
                }
                keep = 0;
            }
        }
    }
}

/// After how many parts of either, which differ in their first, the texts may go on alike.
fn until_alike(old: &[&str], new: &[&str]) -> (usize, usize) {
    let (Some(first), Some(other)) = (old.first(), new.first()) else { return (old.len(), new.len()) };
    let removed = old.iter().take(NEAR).position(|part| part == other);
    let inserted = new.iter().take(NEAR).position(|part| part == first);
    match (removed, inserted) {
        (Some(removed), Some(inserted)) if removed <= inserted => (removed, 0),
        (_, Some(inserted)) => (0, inserted),
        (Some(removed), None) => (removed, 0),
        (None, None) => (1, 1),
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::attributes::Attribute;
    use calipam_model::block::Block;
    use calipam_model::object::Object;

    use super::*;

    fn text(block: &Block) -> String {
        String::from_utf8(Object::from(block.clone()).encode()).unwrap()
    }

    #[test]
    fn of_a_block_little_more_than_what_is_released_differs() {
        let now = "2026-05-01T10:00:00Z".parse().unwrap();
        let mut block = Block::new("10.0.0.0/26".parse().unwrap(), None, now).unwrap();
        let record = |ordinal: u32| {
            let pod = format!("web-{ordinal}");
            Attribute::new(
                Some(&format!("net.{:064x}", ordinal * 7919)),
                [("node", "n"), ("pod", pod.as_str())],
            )
        };
        block.update(|update| (0..60).for_each(|o| update.assign(o, &record(o)).unwrap()));
        let before = text(&block);
        let after = |change: &dyn Fn(&mut Block)| {
            let mut later = block.clone();
            change(&mut later);
            text(&later)
        };
        let cases = [
            after(&|block| drop(block.update(|update| update.release(&[3, 4, 17, 40, 59])))),
            after(&|block| drop(block.update(|update| update.cool(&[0, 30], now)))),
            after(&|block| block.update(|update| update.assign(62, &record(62)).unwrap())),
            after(&|block| block.update(|update| update.set_attribute(9, &record(99)).unwrap())),
        ];
        for after in cases {
            let edits = edits(&before, &after).unwrap();
            assert_eq!(apply(&before, &edits).unwrap(), after);
            let written = serde_json::to_string(&edits).unwrap();
            assert!(written.len() < 700 && before.len() > 7000, "{} bytes: {written}", written.len());
        }
        let freed = after(&|block| drop(block.update(|update| update.release(&(0..60).collect::<Vec<_>>()))));
        assert_eq!(edits(&freed, &before), None, "nearly all of it is new");
    }

    #[test]
    fn any_text_comes_back_whatever_the_texts_are() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % most
        };
        for _ in 0..2000 {
            let mut text = || -> String {
                let length = below(40);
                (0..length).map(|_| ["a", "b", "ä", ",", ",", "[1,2]"][below(6)]).collect()
            };
            let (before, after) = (text(), text());
            let edits = differences(&parts(&before), &parts(&after));
            assert_eq!(apply(&before, &edits).as_deref(), Some(after.as_str()), "{before} {edits:?}");
        }
    }

    #[test]
    fn edits_that_do_not_fit_make_nothing() {
        for edits in
            [[TextEdit(4, 0, String::new())], [TextEdit(0, 4, String::new())], [TextEdit(1, 0, "x".into())]]
        {
            assert_eq!(apply("äb", &edits), None, "{edits:?}");
        }
        assert_eq!(apply("äb", &[TextEdit(2, 1, "c".into())]).as_deref(), Some("äc"));
        assert_eq!(apply("äb", &[TextEdit(usize::MAX, usize::MAX, String::new())]), None);
    }
}
