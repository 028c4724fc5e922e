//! Several texts in one buffer: each with its length before it.

use crate::text::pack_into;

/// Appends a text in packed form. `scratch` is working space that callers reuse.
pub(crate) fn push_text(out: &mut Vec<u8>, scratch: &mut Vec<u8>, text: &str) {
    scratch.clear();
    pack_into(scratch, text);
    push_sized(out, scratch);
}

/// Appends bytes with their number before them.
pub(crate) fn push_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a number, seven bits a byte, lowest first.
pub(crate) fn push_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes what [`push_sized`] appended; what is cut short is taken as far as it goes.
pub(crate) fn take_sized<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = take_number(bytes).min(bytes.len());
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

/// Takes what [`push_number`] appended.
pub(crate) fn take_number(bytes: &mut &[u8]) -> usize {
    let mut number = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else { break };
        *bytes = rest;
        number |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
