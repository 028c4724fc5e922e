//! Differences between the old and the new value of an object, of which most parts stay the same. An assignment, for
//! example, changes only a few places in its block. Both values are split into parts after each comma and bracket.

use calipam_model::packing::{push_number, push_sized};

use crate::protobuf::Fields;

/// The number of equal parts in a row that end a difference.
const MIN_EQUAL_PARTS: usize = 8;
/// Maximum number of parts in one difference.
const MAX_PARTS: usize = 400;

/// Returns the change from `before` to `after`; `None` if it is too large, or not shorter than `after`.
pub(super) fn delta(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let delta = encode_edits(&parts(before), &parts(after))?;
    if delta.len() >= after.len() {
        return None;
    }
    Some(delta)
}

/// Applies a difference to the earlier value; `None` if the difference does not match that value.
pub(super) fn apply(before: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let parts = parts(before);
    let mut remaining = parts.as_slice();
    let mut after = Vec::with_capacity(before.len());
    let mut delta = Fields::new(delta);
    while !delta.is_empty() {
        let kept_count = delta.varint()?.try_into().ok()?;
        let removed_count = delta.varint()?.try_into().ok()?;
        let inserted = delta.sized()?;

        let (kept, others) = remaining.split_at_checked(kept_count)?;
        remaining = others.get(removed_count..)?;
        for part in kept {
            after.extend_from_slice(part);
        }
        after.extend_from_slice(inserted);
    }
    for part in remaining {
        after.extend_from_slice(part);
    }
    Some(after)
}

fn parts(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| b",[]{}".contains(byte)).collect()
}

/// Encodes the edits that turn `before` into `after`. Each consists of the number of parts to keep, the number to
/// remove after them, and the parts to insert. `None` if an edit is too large.
fn encode_edits(mut before: &[&[u8]], mut after: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edits = Vec::new();
    loop {
        let kept = common_length(before, after);
        before = &before[kept..];
        after = &after[kept..];
        if before.is_empty() && after.is_empty() {
            return Some(edits);
        }

        let (removed, inserted) = difference(before, after)?;
        push_number(&mut edits, kept as u64);
        push_number(&mut edits, removed as u64);
        push_sized(&mut edits, &after[..inserted].concat());
        before = &before[removed..];
        after = &after[inserted..];
    }
}

/// The number of parts at the beginning that two values have in common.
fn common_length(before: &[&[u8]], after: &[&[u8]]) -> usize {
    let pairs = before.iter().zip(after);
    pairs.take_while(|(before, after)| before == after).count()
}

/// The numbers of parts that are removed from `before` and inserted into `after` at their beginning, until they agree
/// again. `None` if there are more than [`MAX_PARTS`].
fn difference(before: &[&[u8]], after: &[&[u8]]) -> Option<(usize, usize)> {
    let agree_after = |removed: usize, inserted: usize| {
        let (Some(rest_before), Some(rest_after)) = (before.get(removed..), after.get(inserted..)) else {
            return false;
        };
        let pairs = rest_before.iter().zip(rest_after).take(MIN_EQUAL_PARTS);
        let equal = pairs.take_while(|(before, after)| before == after).count();
        let reaches_both_ends = equal == rest_before.len() && equal == rest_after.len();
        equal == MIN_EQUAL_PARTS || reaches_both_ends
    };
    // Most often, a single part is replaced.
    if agree_after(1, 1) {
        return Some((1, 1));
    }
    // The smallest difference comes first.
    for changed in 1..=MAX_PARTS {
        for removed in 0..=changed {
            let inserted = changed - removed;
            if agree_after(removed, inserted) {
                return Some((removed, inserted));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u32) -> String {
        format!(
            r#"{{"handle_id":"net.{number:064x}","secondary":{{"node":"n","pod":"web, [{number}]\"{{"}}}}"#
        )
    }

    fn block(numbers: &[Option<u32>], free: &[u32], records: &[u32], sequence: u32) -> String {
        let number = |number: &Option<u32>| number.map_or("null".to_owned(), |number| number.to_string());
        let numbers: Vec<String> = numbers.iter().map(number).collect();
        let free: Vec<String> = free.iter().map(u32::to_string).collect();
        let records: Vec<String> = records.iter().map(|number| record(*number)).collect();
        format!(
            r#"{{"cidr":"10.0.0.0/29","allocations":[{}],"unallocated":[{}],"attributes":[{}],"sequenceNumber":{sequence},"deleted":false}}"#,
            numbers.join(","),
            free.join(","),
            records.join(",")
        )
    }

    #[test]
    fn a_block_comes_back_by_little_more_than_the_record_that_is_new() {
        let full: Vec<Option<u32>> = (0..8).map(Some).collect();
        let before = block(&full, &[], &[0, 1, 2, 3, 4, 5, 6, 7], 8);
        let mut numbers: Vec<Option<u32>> = (0..7).map(Some).collect();
        numbers.insert(2, None);
        let released = block(&numbers, &[2], &[0, 1, 3, 4, 5, 6, 7], 9);
        let made = delta(before.as_bytes(), released.as_bytes()).unwrap();
        assert!(made.len() < 100, "{}", made.len());
        assert_eq!(
            apply(before.as_bytes(), &made).as_deref(),
            Some(released.as_bytes())
        );

        numbers[2] = Some(7);
        let assigned = block(&numbers, &[], &[0, 1, 3, 4, 5, 6, 7, 9], 10);
        let made = delta(released.as_bytes(), assigned.as_bytes()).unwrap();
        // Two differences that are close together become one.
        assert!(made.len() < record(9).len() + 120, "{}", made.len());
        assert_eq!(
            apply(released.as_bytes(), &made).as_deref(),
            Some(assigned.as_bytes())
        );
        for cut in 0..made.len() {
            assert_ne!(
                apply(released.as_bytes(), &made[..cut]).as_deref(),
                Some(assigned.as_bytes())
            );
        }
    }

    #[test]
    fn any_value_comes_back_or_has_no_delta() {
        let values = [
            block(&[Some(0), Some(0)], &[], &[1], 3),
            block(&[Some(0), Some(1)], &[], &[1, 1], 3),
            block(&[Some(7), None], &[1], &[1], 3),
            String::new(),
            "null".to_owned(),
            "]}\",{[\u{e4}".to_owned(),
            r#"{"allocations":[0,"attributes":[{}]"#.to_owned(),
            (0..3_000).map(|number| format!("{number},")).collect(),
        ];
        for before in &values {
            for after in &values {
                if let Some(made) = delta(before.as_bytes(), after.as_bytes()) {
                    assert_eq!(apply(before.as_bytes(), &made).as_deref(), Some(after.as_bytes()));
                }
            }
        }
        for wrong in [&[9, 0, 0][..], &[0, 99, 0], &[0, 0, 9], &[0], &[0xFF; 12]] {
            assert_eq!(apply(b"{}", wrong), None, "{wrong:?}");
        }
    }
}
