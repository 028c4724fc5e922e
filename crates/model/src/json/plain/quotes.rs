//! Finds the quotes in a document, 64 bytes at a time.

use super::{Result, Unusual};

/// The number of bytes that are compared together, one for each bit of a `u64`.
const BLOCK: usize = 64;

/// Iterates over the quotes in a document. Each one starts or ends a string, since the iteration stops at a backslash
/// or a control character, which are [`Unusual`].
pub(super) struct Quotes<'t> {
    bytes: &'t [u8],
    /// The end of the current block.
    end: usize,
    /// The remaining quotes in the current block. Each bit stands for one byte, starting with the lowest bit.
    ahead: u64,
}

impl<'t> Quotes<'t> {
    pub(super) fn of(bytes: &'t [u8]) -> Self {
        Self {
            bytes,
            end: 0,
            ahead: 0,
        }
    }

    /// The positions of the next two quotes.
    #[inline]
    pub(super) fn pair(&mut self) -> Result<(usize, usize)> {
        let after_first = without_lowest(self.ahead);
        if after_first == 0 {
            return Ok((self.next()?, self.next()?));
        }
        let first = self.first_position(self.ahead);
        let second = self.first_position(after_first);
        self.ahead = without_lowest(after_first);
        Ok((first, second))
    }

    /// Returns the position of the next quote.
    #[inline]
    pub(super) fn next(&mut self) -> Result<usize> {
        while self.ahead == 0 {
            self.advance()?;
        }
        let position = self.first_position(self.ahead);
        self.ahead = without_lowest(self.ahead);
        Ok(position)
    }

    /// The position of the first of `quotes`, which are in the current block.
    #[inline]
    fn first_position(&self, quotes: u64) -> usize {
        self.end - BLOCK + quotes.trailing_zeros() as usize
    }

    /// Moves to the next block. Not inlined, to keep the common path short.
    #[inline(never)]
    fn advance(&mut self) -> Result<()> {
        let rest = self.bytes.get(self.end..).ok_or(Unusual)?;
        self.ahead = match rest.first_chunk() {
            Some(block) => quotes_in(block)?,
            None => quotes_in(&pad_with_blanks(rest))?,
        };
        self.end += BLOCK;
        Ok(())
    }
}

/// Clears the lowest bit that is set.
#[inline]
fn without_lowest(bits: u64) -> u64 {
    bits & bits.wrapping_sub(1)
}

/// Pads the last block of a document with blanks.
fn pad_with_blanks(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// A factor that gathers the lowest bits of eight bytes in the highest byte.
const GATHER: u64 = 0x0102_0408_1020_4080;

/// The quotes in a block. Each bit stands for one byte, starting with the lowest bit. [`Unusual`] if a byte is a
/// backslash or control character.
#[inline]
fn quotes_in(block: &[u8; BLOCK]) -> Result<u64> {
    // Without branches, the compiler compares many bytes at once.
    let mut is_quote = [0; BLOCK];
    let mut is_unusual = 0;
    for (mark, byte) in is_quote.iter_mut().zip(block) {
        *mark = u8::from(*byte == b'"');
        is_unusual |= u8::from(*byte < b' ') | u8::from(*byte == b'\\');
    }
    if is_unusual != 0 {
        return Err(Unusual);
    }

    let (chunks, _) = is_quote.as_chunks();
    let mut quotes = 0;
    for chunk in chunks.iter().rev() {
        let marks = u64::from_le_bytes(*chunk);
        let bits = marks.wrapping_mul(GATHER) >> (u64::BITS - 8);
        quotes = quotes << 8 | bits;
    }
    Ok(quotes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(text: &[u8]) -> Vec<usize> {
        let mut quotes = Quotes::of(text);
        std::iter::from_fn(|| quotes.next().ok()).collect()
    }

    proptest! {
        #[test]
        fn all_quotes_are_found_up_to_an_unusual_byte(
            bytes in prop::collection::vec(prop_oneof![3 => Just(b'"'), 9 => 32u8..=255, 1 => any::<u8>()], 0..200),
            plain: bool,
        ) {
            let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'\\';
            let bytes: Vec<u8> = bytes.into_iter().filter(|byte| !plain || is_plain(byte)).collect();
            // An unusual byte rejects the entire block of bytes that contains it.
            let usual: usize =
                bytes.chunks(BLOCK).take_while(|block| block.iter().all(is_plain)).map(<[u8]>::len).sum();
            let expected: Vec<usize> = (0..usual).filter(|place| bytes[*place] == b'"').collect();
            prop_assert_eq!(places(&bytes), expected);
        }
    }
}
