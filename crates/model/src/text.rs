//! Compact strings. A large cluster has millions of handle IDs, pod names and container IDs, and most of their bytes
//! are runs of hexadecimal digits and Go timestamps. [`Text`] stores such runs in binary form and returns exactly the
//! original string. Equal strings have equal bytes, so comparisons and hashes need no unpacking.

use std::borrow::{Borrow, Cow};
use std::fmt;

use crate::packing::{boxed, push_sized, take_sized};
use crate::time::{format_go_utc, parse_go_utc_canonical};

/// Starts a packed run of hexadecimal digits: marker, number of bytes, the bytes. The marker does not occur in UTF-8.
const HEX: u8 = 0xFF;
/// Starts a packed Go timestamp: marker, nanoseconds since 1970 as a big-endian `i64`.
const TIME: u8 = 0xFE;
/// Stands for [`NETWORK`] at the start of a string.
const PREFIX: u8 = 0xFD;
/// The prefix of nearly all handle IDs: the usual network name.
const NETWORK: &str = "k8s-pod-network.";
/// Minimum length of a run of digits that is packed.
const MIN_RUN: usize = 16;
/// Minimum length of a string that is packed. Shorter strings, such as most node and namespace names, contain nothing
/// to pack.
const SHORTEST: usize = if NETWORK.len() < MIN_RUN {
    NETWORK.len()
} else {
    MIN_RUN
};
/// Strings of at least this length need more than one byte for their length.
const SHORT: usize = 0x80;
/// Digits in a container ID. Nearly all strings with a long run of digits are such an ID, or [`NETWORK`] and an ID.
const ID_DIGITS: usize = 64;

/// An owned compact string.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Text(Box<[u8]>);

/// A borrowed compact string.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextRef<'a>(&'a [u8]);

impl Text {
    /// Packs `text`.
    pub fn new(text: &str) -> Self {
        Self(boxed(|out| pack_into(out, text)))
    }

    pub fn as_ref(&self) -> TextRef<'_> {
        TextRef(&self.0)
    }
}

impl TextRef<'static> {
    pub const EMPTY: Self = TextRef(&[]);
}

impl<'a> TextRef<'a> {
    /// Wraps bytes that [`pack_into`] made.
    pub(crate) fn from_packed(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The packed bytes, equal if and only if the strings are equal. Useful as a key of an index.
    pub fn packed(self) -> &'a [u8] {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// True if the packed bytes differ from those of the plain string.
    fn is_packed(self) -> bool {
        self.0.iter().any(|byte| matches!(*byte, HEX | TIME | PREFIX))
    }

    /// Writes the text, unpacked.
    fn write_to(self, out: &mut impl fmt::Write) -> fmt::Result {
        for piece in Pieces(self.0) {
            match piece {
                Piece::Network => out.write_str(NETWORK)?,
                Piece::Plain(text) => out.write_str(text)?,
                Piece::Hex(bytes) => write_hex(out, bytes)?,
                Piece::Time(nanos) => out.write_str(&format_go_utc(nanos))?,
            }
        }
        Ok(())
    }

    /// Appends the plain text to `out`.
    pub fn push_to(self, out: &mut String) {
        // Writing to memory cannot fail.
        let _ = self.write_to(out);
    }

    /// The plain text, borrowed if no part of it is packed, as in most names.
    pub fn plain(self) -> Cow<'a, str> {
        match Pieces(self.0).next() {
            None => Cow::Borrowed(""),
            Some(Piece::Plain(text)) if text.len() == self.0.len() => Cow::Borrowed(text),
            Some(_) => {
                let mut plain = String::with_capacity(self.0.len() * 2);
                self.push_to(&mut plain);
                Cow::Owned(plain)
            }
        }
    }

    /// True if the plain text starts with `prefix`.
    pub fn starts_with(self, prefix: &str) -> bool {
        match Pieces(self.0).next() {
            None => prefix.is_empty(),
            Some(Piece::Network) if prefix.len() <= NETWORK.len() => NETWORK.starts_with(prefix),
            Some(Piece::Plain(text)) if text.len() >= prefix.len() => text.starts_with(prefix),
            Some(_) => self.plain().starts_with(prefix),
        }
    }

    /// The part before the first carriage return, which is the handle ID that Calico looks up (facts 3.13).
    pub fn cut_at_carriage_return(self) -> TextRef<'a> {
        let mut start = 0;
        for piece in Pieces(self.0) {
            if let Piece::Plain(text) = piece
                && let Some(offset) = text.find('\r')
            {
                return TextRef(&self.0[..start + offset]);
            }
            start += piece.packed_len();
        }
        self
    }

    /// True if the text contains a carriage return.
    pub fn has_carriage_return(self) -> bool {
        self.cut_at_carriage_return().0.len() != self.0.len()
    }

    /// True if the text contains an ASCII capital letter.
    pub fn has_capital(self) -> bool {
        Pieces(self.0).any(|piece| match piece {
            Piece::Plain(text) => text.bytes().any(|byte| byte.is_ascii_uppercase()),
            Piece::Network | Piece::Hex(_) => false,
            Piece::Time(_) => true,
        })
    }

    /// Nanoseconds since 1970 if the text is a packed Go timestamp.
    pub(crate) fn packed_time(self) -> Option<i64> {
        if let Some(Piece::Time(nanos)) = Pieces(self.0).next() {
            Some(nanos)
        } else {
            None
        }
    }
}

impl PartialEq<str> for TextRef<'_> {
    fn eq(&self, other: &str) -> bool {
        // The bytes of a plain text contain no marker.
        self.0 == other.as_bytes() || (self.is_packed() && self.plain() == other)
    }
}

impl fmt::Display for TextRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.width().is_some() || f.precision().is_some() {
            return f.pad(&self.plain());
        }
        self.write_to(f)
    }
}

impl fmt::Debug for TextRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.plain(), f)
    }
}

/// Allows lookups in maps by the [packed bytes](TextRef::packed).
impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_ref(), f)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Packs several strings into one buffer.
pub(crate) fn boxed_texts(texts: &[&str]) -> Box<[u8]> {
    boxed(|out| {
        for text in texts {
            push_text(out, text);
        }
    })
}

/// The string at this index in the result of [`boxed_texts`].
pub(crate) fn text_at(mut texts: &[u8], index: usize) -> TextRef<'_> {
    for _ in 0..index {
        take_sized(&mut texts);
    }
    TextRef::from_packed(take_sized(&mut texts))
}

/// Appends a string in packed form.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    if text.len() >= SHORT {
        let mut packed = Vec::with_capacity(text.len());
        pack_into(&mut packed, text);
        return push_sized(out, &packed);
    }
    // The packed form is never longer than the string, so its length also fits into one byte.
    let length_position = out.len();
    out.push(0);
    pack_into(out, text);
    out[length_position] = (out.len() - length_position - 1) as u8;
}

/// Appends the packed form of `text`, which is never longer than `text` itself.
pub(crate) fn pack_into(out: &mut Vec<u8>, text: &str) {
    if text.len() < SHORTEST {
        return out.extend_from_slice(text.as_bytes());
    }
    if let Some(nanos) = parse_go_utc_canonical(text) {
        out.push(TIME);
        out.extend_from_slice(&nanos.to_be_bytes());
        return;
    }

    let mut bytes = text.as_bytes();
    if let Some(rest) = text.strip_prefix(NETWORK) {
        out.push(PREFIX);
        bytes = rest.as_bytes();
    }
    if let Ok(id) = bytes.try_into()
        && are_digits::<ID_DIGITS>(id)
    {
        out.extend_from_slice(&[HEX, (ID_DIGITS / 2) as u8]);
        return out.extend_from_slice(&bytes_of_id(id));
    }

    let mut packed_up_to = 0;
    while let Some((start, digits)) = next_run(bytes, packed_up_to) {
        // The number of packed bytes is stored in one byte.
        let len = (digits / 2).min(u8::MAX as usize);
        let end = start + 2 * len;
        out.extend_from_slice(&bytes[packed_up_to..start]);
        out.push(HEX);
        out.push(len as u8);
        push_digits(out, &bytes[start..end]);
        packed_up_to = end;
    }
    out.extend_from_slice(&bytes[packed_up_to..]);
}

/// Returns start and length of the next run of at least [`MIN_RUN`] digits; `None` if there is none. Such a run covers
/// one of the tested positions, which are [`MIN_RUN`] apart, so only a few bytes of most strings are tested.
fn next_run(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let mut start = start;
    loop {
        let tested = start + MIN_RUN - 1;
        if !is_digit(*bytes.get(tested)?) {
            start = tested + 1;
            continue;
        }
        let digits_before = bytes[start..tested]
            .iter()
            .rev()
            .take_while(|byte| is_digit(**byte))
            .count();
        let digits_from_tested = digits_at_start(&bytes[tested..]);
        let digits = digits_before + digits_from_tested;
        if digits >= MIN_RUN {
            return Some((tested - digits_before, digits));
        }
        start = tested + digits_from_tested;
    }
}

/// True if all bytes are digits. Without branches, the compiler compares many bytes at once.
fn are_digits<const COUNT: usize>(bytes: &[u8; COUNT]) -> bool {
    bytes.iter().fold(true, |all, byte| all & is_digit(*byte))
}

/// The bytes that the digits of an ID stand for.
fn bytes_of_id(id: &[u8; ID_DIGITS]) -> [u8; ID_DIGITS / 2] {
    let (pairs, _) = id.as_chunks::<2>();
    std::array::from_fn(|index| digit_value(pairs[index][0]) << 4 | digit_value(pairs[index][1]))
}

fn is_digit(byte: u8) -> bool {
    (byte.wrapping_sub(b'0') < 10) | (byte.wrapping_sub(b'a') < 6)
}

/// The number of digits at the start of `bytes`. Container IDs have 64 digits, so many digits are tested together.
fn digits_at_start(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<MIN_RUN>();
    let full_chunks = chunks.iter().take_while(|chunk| are_digits(chunk)).count();
    let in_chunks = MIN_RUN * full_chunks;
    let after_chunks = bytes[in_chunks..].iter().take_while(|byte| is_digit(**byte));
    in_chunks + after_chunks.count()
}

/// Appends the bytes that the digits stand for.
fn push_digits(out: &mut Vec<u8>, digits: &[u8]) {
    let (words, rest) = digits.as_chunks::<8>();
    for word in words {
        let [a, _, b, _, c, _, d, _] = pair_values(u64::from_le_bytes(*word)).to_le_bytes();
        out.extend_from_slice(&[a, b, c, d]);
    }
    for pair in rest.chunks_exact(2) {
        out.push(digit_value(pair[0]) << 4 | digit_value(pair[1]));
    }
}

/// The values of four pairs of digits, each in the first of its two bytes.
fn pair_values(digits: u64) -> u64 {
    /// The number 1 in each byte.
    const ONES: u64 = u64::MAX / 255;
    // As in `digit_value`, but for eight digits.
    let values = (digits & (15 * ONES)) + 9 * ((digits >> 6) & ONES);
    values << 4 | values >> 8
}

/// The value of a digit, without a branch: letters have bit 6 set, and `a` ends in 1.
fn digit_value(byte: u8) -> u8 {
    (byte & 15) + 9 * (byte >> 6)
}

/// Writes bytes as hex digits, many at once.
fn write_hex(out: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 64];
    for part in bytes.chunks(digits.len() / 2) {
        let (pairs, _) = digits.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(part) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        out.write_str(std::str::from_utf8(&digits[..2 * part.len()]).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

enum Piece<'a> {
    Network,
    Plain(&'a str),
    Hex(&'a [u8]),
    Time(i64),
}

impl Piece<'_> {
    /// The number of bytes of the piece in a packed text, with the byte that marks its kind. Plain text has no mark.
    fn packed_len(&self) -> usize {
        match self {
            Piece::Network => 1,
            Piece::Plain(text) => text.len(),
            Piece::Hex(bytes) => 2 + bytes.len(),
            Piece::Time(_) => 9,
        }
    }
}

/// Iterates over the pieces of a packed text. Stops at bytes that [`pack_into`] cannot have written.
struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    /// Returns the next piece of a packed text; `None` at the end, or if the text is not packed correctly.
    fn next(&mut self) -> Option<Piece<'a>> {
        let (piece, rest) = match *self.0.first()? {
            PREFIX => (Piece::Network, &self.0[1..]),
            HEX => {
                let len = *self.0.get(1)? as usize;
                (Piece::Hex(self.0.get(2..2 + len)?), &self.0[2 + len..])
            }
            TIME => {
                let nanos = self.0.get(1..9)?.try_into().ok()?;
                (Piece::Time(i64::from_be_bytes(nanos)), &self.0[9..])
            }
            _ => {
                let end = self.0.iter().position(|byte| *byte == HEX);
                let end = end.unwrap_or(self.0.len());
                let text = std::str::from_utf8(&self.0[..end]).ok()?;
                (Piece::Plain(text), &self.0[end..])
            }
        };
        self.0 = rest;
        Some(piece)
    }
}

#[cfg(test)]
mod tests;
