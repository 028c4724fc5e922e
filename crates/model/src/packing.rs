//! Numbers and runs of bytes in one buffer, with a length before each run.

use std::cell::RefCell;

/// The size to which a thread's working memory shrinks before it is used again, in bytes.
const BUFFER_SIZE: usize = 1 << 12;

/// Returns the bytes that `write` appended, in a box of their exact size. The thread's working memory is reused: a new
/// buffer for each of a million objects would take twice as long.
pub(crate) fn boxed(write: impl FnOnce(&mut Vec<u8>)) -> Box<[u8]> {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.shrink_to(BUFFER_SIZE);
        write(buffer);
        buffer.as_slice().into()
    })
}

/// Appends the number of bytes, and the bytes.
pub fn push_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a number, seven bits per byte, lowest first.
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads bytes that [`push_sized`] appended, or as many as there are.
pub(crate) fn take_sized<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = take_number(bytes).min(bytes.len());
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

/// Reads a number that [`push_number`] appended.
pub(crate) fn take_number(bytes: &mut &[u8]) -> usize {
    let mut number = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let Some((byte, rest)) = bytes.split_first() else {
            break;
        };
        *bytes = rest;
        number |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}
