//! Frames of text in a file: zstd frames, each preceded by a head in a skippable zstd frame. `zstdcat` prints the text
//! of frames that were compressed without a dictionary. Checksums detect changed and missing bytes before
//! decompression.

use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

/// The first bytes of a head: a skippable frame with 12 bytes of content.
pub const MAGIC: [u8; 8] = [0x57, 0x2A, 0x4D, 0x18, 12, 0, 0, 0];
/// Length of a head: [`MAGIC`], the frame's length, the CRC-32 of the frame, and the CRC-32 of all three.
pub const HEAD: usize = MAGIC.len() + 12;
/// Maximum bytes of text that writers put in one frame. A recording's frame can have more if a single change is longer
/// than half of this.
pub const MOST_TEXT: usize = 4 << 20;
/// Maximum bytes of text in any frame, larger than any object; longer text is an error.
const LIMIT: usize = 64 << 20;
/// A fast compression level that finds repeated text.
const FAST_LEVEL: i32 = 1;

/// The compression level for small frames with a dictionary. Such frames are an eighth smaller than with
/// [`FAST_LEVEL`], and compressing one takes a few milliseconds.
const DICTIONARY_LEVEL: i32 = 19;
/// Maximum bytes of text in a small frame. With the high level, each further megabyte would take a third of a second.
const MAX_SMALL_TEXT: usize = 256 << 10;

/// Compresses frames.
pub struct Packer(Compressor<'static>);

impl Packer {
    pub fn new() -> io::Result<Self> {
        Compressor::new(FAST_LEVEL).map(Self)
    }

    /// Like [`Self::push`], but with a `dictionary`, so repeated text takes almost no space. Decompressing the frame
    /// needs the same dictionary.
    pub fn push_with_dictionary(
        &mut self,
        dictionary: &[u8],
        text: &[u8],
        frames: &mut Vec<u8>,
    ) -> io::Result<()> {
        let level = if text.len() > MAX_SMALL_TEXT {
            FAST_LEVEL
        } else {
            DICTIONARY_LEVEL
        };
        self.0.set_dictionary(level, dictionary)?;
        self.push(text, frames)
    }

    /// Compresses `text`, and appends the frame with its head to `frames`.
    pub fn push(&mut self, text: &[u8], frames: &mut Vec<u8>) -> io::Result<()> {
        if text.len() > LIMIT {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the text is too long for a frame",
            ));
        }
        let frame = self.0.compress(text)?;
        let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
        frames.extend_from_slice(&head(length, crc32fast::hash(&frame)));
        frames.extend_from_slice(&frame);
        Ok(())
    }
}

/// The data in a head about the frame that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub length: u32,
    sum: u32,
}

/// Makes the head of a frame, with checksums of its content and of itself.
fn head(length: u32, sum: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&length.to_le_bytes());
    head[12..16].copy_from_slice(&sum.to_le_bytes());
    let own = crc32fast::hash(&head[..16]);
    head[16..].copy_from_slice(&own.to_le_bytes());
    head
}

impl Head {
    /// Reads a head; `None` if the bytes are not a head.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let number = |offset: usize| {
            Some(u32::from_le_bytes(
                bytes.get(offset..offset + 4)?.try_into().ok()?,
            ))
        };
        let length = number(8)?;
        let sum = number(12)?;
        // The magic bytes and the checksum of the head itself must also match.
        if bytes != head(length, sum) {
            return None;
        }
        Some(Self { length, sum })
    }

    pub fn unpack(self, frame: &[u8]) -> io::Result<Vec<u8>> {
        self.unpack_with_dictionary(&[], frame)
    }

    /// Decompresses a frame that [`Packer::push_with_dictionary`] compressed with the same `dictionary`.
    pub fn unpack_with_dictionary(self, dictionary: &[u8], frame: &[u8]) -> io::Result<Vec<u8>> {
        if frame.len() != self.length as usize || crc32fast::hash(frame) != self.sum {
            return Err(damaged());
        }
        // A frame states the length of its text, since it was compressed in one piece. Text above the limit is
        // rejected.
        let Ok(Some(length)) = zstd_safe::get_frame_content_size(frame) else {
            return Err(damaged());
        };
        if !(1..=LIMIT as u64).contains(&length) {
            return Err(damaged());
        }
        let text = Decompressor::with_dictionary(dictionary)?
            .decompress(frame, length as usize)
            .map_err(|_| damaged())?;
        if text.len() as u64 != length {
            return Err(damaged());
        }
        Ok(text)
    }
}

/// The error for a frame that has changed since it was written.
pub fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_and_truncated_frames_are_damaged() {
        let mut frames = Vec::new();
        Packer::new()
            .unwrap()
            .push(b"some text, some text", &mut frames)
            .unwrap();
        let unpack = |bytes: &[u8]| Head::read(bytes.get(..HEAD)?)?.unpack(&bytes[HEAD..]).ok();
        assert_eq!(unpack(&frames).as_deref(), Some(&b"some text, some text"[..]));
        assert_eq!(
            zstd::stream::decode_all(&frames[..]).unwrap(),
            b"some text, some text"
        );
        for place in 0..frames.len() {
            let mut flipped = frames.clone();
            flipped[place] ^= 1;
            assert_eq!(unpack(&flipped), None, "{place}");
            assert_eq!(unpack(&frames[..place]), None, "{place}");
        }
        let dictionary = b"some text, some text";
        let mut after = Vec::new();
        Packer::new()
            .unwrap()
            .push_with_dictionary(dictionary, dictionary, &mut after)
            .unwrap();
        let head = Head::read(&after[..HEAD]).unwrap();
        assert_eq!(
            head.unpack_with_dictionary(dictionary, &after[HEAD..]).unwrap(),
            dictionary
        );
        assert!(after.len() < frames.len() && head.unpack(&after[HEAD..]).is_err());
        // A large object must not delay the changes after it.
        for (length, level) in [
            (MAX_SMALL_TEXT, DICTIONARY_LEVEL),
            (MAX_SMALL_TEXT + 1, FAST_LEVEL),
        ] {
            let text: Vec<u8> = (0..length as u32)
                .map(|place| (place ^ (place >> 7)) as u8)
                .collect();
            let mut frame = Vec::new();
            Packer::new()
                .unwrap()
                .push_with_dictionary(dictionary, &text, &mut frame)
                .unwrap();
            let mut expected = Compressor::with_dictionary(level, dictionary).unwrap();
            assert!(frame[HEAD..] == expected.compress(&text).unwrap(), "{length}");
            let head = Head::read(&frame[..HEAD]).unwrap();
            assert!(
                head.unpack_with_dictionary(dictionary, &frame[HEAD..]).unwrap() == text,
                "{length}"
            );
        }
        assert!(
            Packer::new()
                .unwrap()
                .push(&vec![0; LIMIT + 1], &mut Vec::new())
                .is_err()
        );
        let huge = zstd::bulk::compress(&vec![b'a'; LIMIT + 1], 1).unwrap();
        let head = Head {
            length: huge.len() as u32,
            sum: crc32fast::hash(&huge),
        };
        assert_eq!(head.unpack(&huge).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
