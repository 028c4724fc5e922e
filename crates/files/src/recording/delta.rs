//! Differences between values that stay mostly the same: an assignment changes only a few places in its block.
//!
//! Both values are split after each comma and bracket. When a record in a block is removed, Calico moves the others,
//! which changes many numbers in `allocations`: a difference names a record by its checksum instead.

use std::ops::Range;

use calipam_model::packing::{push_number, push_sized, take_bytes, take_u64};
use memchr::memmem;

/// The fields of a block with the record numbers by ordinal and with the records.
const NUMBERS: &[u8] = br#""allocations":["#;
const RECORDS: &[u8] = br#""attributes":["#;
/// Bits of the checksum that names a record. If equal checksums make a difference inexact, the full value is recorded.
const SUM: u32 = 0xFF_FFFF;
/// The number of equal parts in a row that end a difference.
const RUN: usize = 8;
/// Maximum number of parts in one difference.
const MOST: usize = 400;

/// Returns the change from `before` to `after`; `None` if it would not be shorter than `after`, or not exact.
pub(super) fn delta(before: &[u8], after: &[u8]) -> Option<Vec<u8>> {
    let (named, new) = (by_sum(before), by_sum(after));
    let delta = edits(&parts(&named), &parts(&new))?;
    let is_exact = delta.len() < after.len() && apply(before, &delta).as_deref() == Some(after);
    is_exact.then_some(delta)
}

/// Applies a difference to the earlier value; `None` if it does not fit.
pub(super) fn apply(before: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    let named = by_sum(before);
    let parts = parts(&named);
    let mut rest = parts.as_slice();
    let mut after = Vec::with_capacity(named.len());
    while !delta.is_empty() {
        let (same, others) = rest.split_at_checked(take_length(&mut delta)?)?;
        rest = others.get(take_length(&mut delta)?..)?;
        same.iter().for_each(|part| after.extend_from_slice(part));
        after.extend_from_slice(take_bytes(&mut delta)?);
    }
    rest.iter().for_each(|part| after.extend_from_slice(part));
    Some(by_number(&after))
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    take_u64(bytes)?.try_into().ok()
}

fn parts(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| b",[]{}".contains(byte)).collect()
}

/// Encodes edits in order: the number of parts to keep, the number to remove after them, and the parts to insert.
fn edits(mut before: &[&[u8]], mut after: &[&[u8]]) -> Option<Vec<u8>> {
    let mut edits = Vec::new();
    loop {
        let same = before.iter().zip(after).take_while(|(before, after)| before == after).count();
        (before, after) = (&before[same..], &after[same..]);
        if before.is_empty() && after.is_empty() {
            return Some(edits);
        }
        let (gone, new) = difference(before, after)?;
        push_number(&mut edits, same);
        push_number(&mut edits, gone);
        push_sized(&mut edits, &after[..new].concat());
        (before, after) = (&before[gone..], &after[new..]);
    }
}

/// The numbers of parts to skip in `before` and `after` until they agree again. Tries a single replaced part first.
fn difference(before: &[&[u8]], after: &[&[u8]]) -> Option<(usize, usize)> {
    let goes_on = |&(gone, new): &(usize, usize)| {
        let (Some(before), Some(after)) = (before.get(gone..), after.get(new..)) else { return false };
        let alike = before.iter().zip(after).take(RUN).take_while(|(before, after)| before == after).count();
        alike == RUN || (alike == before.len() && alike == after.len())
    };
    let all = (1..=MOST).flat_map(|sum| (0..=sum).map(move |gone| (gone, sum - gone)));
    std::iter::once((1, 1)).chain(all).find(goes_on)
}

/// Replaces a block's record numbers with checksums; returns any other value unchanged.
fn by_sum(value: &[u8]) -> Vec<u8> {
    rename(value, |number, sums| {
        let number: usize = std::str::from_utf8(number).ok()?.parse().ok()?;
        Some(format!("~{:06x}", sums.get(number)?))
    })
}

/// Replaces the checksums in a block with record numbers again.
fn by_number(value: &[u8]) -> Vec<u8> {
    rename(value, |name, sums| {
        let sum = u32::from_str_radix(std::str::from_utf8(name.strip_prefix(b"~")?).ok()?, 16).ok()?;
        Some(sums.iter().position(|own| *own == sum)?.to_string())
    })
}

fn rename(value: &[u8], name: impl Fn(&[u8], &[u32]) -> Option<String>) -> Vec<u8> {
    let (Some(numbers), Some(records)) = (elements(value, NUMBERS), elements(value, RECORDS)) else {
        return value.to_vec();
    };
    let sums: Vec<u32> = records.into_iter().map(|record| crc32fast::hash(&value[record]) & SUM).collect();
    let (mut renamed, mut from) = (Vec::with_capacity(value.len()), 0);
    for place in numbers {
        if let Some(name) = name(&value[place.clone()], &sums) {
            renamed.extend_from_slice(&value[from..place.start]);
            renamed.extend_from_slice(name.as_bytes());
            from = place.end;
        }
    }
    renamed.extend_from_slice(&value[from..]);
    renamed
}

/// The positions of an array's elements.
fn elements(text: &[u8], field: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut from = memmem::find(text, field)? + field.len();
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    let mut found = Vec::new();
    for (place, byte) in text.iter().enumerate().skip(from) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth += 1,
            b']' if depth == 0 => {
                found.push(from..place);
                return Some(found);
            }
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(from..place);
                from = place + 1;
            }
            _ => {}
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
        assert_eq!(apply(before.as_bytes(), &made).as_deref(), Some(released.as_bytes()));

        numbers[2] = Some(7);
        let assigned = block(&numbers, &[], &[0, 1, 3, 4, 5, 6, 7, 9], 10);
        let made = delta(released.as_bytes(), assigned.as_bytes()).unwrap();
        // Two differences that are close together become one.
        assert!(made.len() < record(9).len() + 120, "{}", made.len());
        assert_eq!(apply(released.as_bytes(), &made).as_deref(), Some(assigned.as_bytes()));
        for cut in 0..made.len() {
            assert_ne!(apply(released.as_bytes(), &made[..cut]).as_deref(), Some(assigned.as_bytes()));
        }
    }

    #[test]
    fn any_value_comes_back_or_has_no_delta() {
        let values = [
            block(&[Some(0), Some(0)], &[], &[1], 3),
            // Two equal records have the same checksum.
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
