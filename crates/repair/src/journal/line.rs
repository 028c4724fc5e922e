//! The lines of a journal as bytes. Each ends with a checksum over its content and the checksum of the line before it,
//! so that flipped bytes and moved lines are detected. The types of the content are in `entry.rs`.

use std::io::{self, BufRead, Read};

use super::frames::Text;

/// The text before and after the eight digits of a checksum.
const FIELD: (&[u8], &[u8]) = (b",\"sum\":\"", b"\"}\n");
const DIGITS: usize = 8;
/// The length of the checksum field, including the end of the object and the line break.
pub(super) const LENGTH: usize = FIELD.0.len() + DIGITS + FIELD.1.len();

/// Maximum length of a line, several times what one write can hold. Readers treat a longer line as damage: a small file
/// could unpack to more text than fits into memory.
pub(super) const LONGEST: usize = 64 << 20;

/// The checksum of the last line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u32);

impl Sum {
    fn add(&mut self, object: &[u8]) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_be_bytes());
        hasher.update(object);
        self.0 = hasher.finalize();
    }

    /// Appends a JSON object as a line, with the field `sum` added.
    pub(super) fn seal(&mut self, object: &[u8], text: &mut Vec<u8>) {
        self.add(object);
        text.extend_from_slice(object.strip_suffix(b"}").unwrap_or(object));
        text.extend_from_slice(FIELD.0);
        text.extend_from_slice(format!("{:08x}", self.0).as_bytes());
        text.extend_from_slice(FIELD.1);
    }

    /// Removes the checksum from a line. Returns false if the checksum is wrong: the line was changed, or did not
    /// follow the previous one.
    fn open(&mut self, line: &mut Vec<u8>) -> bool {
        let field = line.len().checked_sub(LENGTH).and_then(|start| line.get(start..));
        let digits = field.and_then(|field| field.strip_prefix(FIELD.0)?.strip_suffix(FIELD.1));
        let Some(digits) = digits.map(<[u8]>::to_vec) else {
            return false;
        };

        line.truncate(line.len() - LENGTH);
        line.push(b'}');
        self.add(line);
        digits == format!("{:08x}", self.0).as_bytes()
    }
}

/// A line of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line<'l> {
    /// The text without the checksum.
    pub text: &'l [u8],
    /// True if the checksum is right.
    pub is_sound: bool,
}

impl Line<'_> {
    /// A line that cannot be unpacked, or is too long.
    const NO_TEXT: Line<'static> = Line {
        text: &[],
        is_sound: false,
    };
}

/// Reads lines and checks their checksums.
pub(super) struct Lines<R> {
    text: Text<R>,
    line: Vec<u8>,
    /// The checksum of the last line.
    pub sum: Sum,
    /// The end of the last complete line in the file; `None` if the frame continues after the line.
    pub end: Option<u64>,
    /// The number of the last line, from 1.
    pub number: usize,
}

impl<R: Read> Lines<R> {
    /// Begins to read the lines of a journal.
    pub(super) fn new(file: R) -> Self {
        Self {
            text: Text::new(file),
            line: Vec::new(),
            sum: Sum::default(),
            end: Some(0),
            number: 0,
        }
    }

    /// Returns the next line; `None` at the end. Callers must stop after an unsound line. An incomplete last line is
    /// ignored: if it is an intent, its write never began.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let mut limited = (&mut self.text).take(LONGEST as u64);
        match limited.read_until(b'\n', &mut self.line) {
            Ok(_) => {}
            // A frame is damaged.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.number += 1;
                return Ok(Some(Line::NO_TEXT));
            }
            Err(error) => return Err(error),
        }

        if !self.line.ends_with(b"\n") {
            if self.line.len() < LONGEST {
                return Ok(None);
            }
            self.number += 1;
            return Ok(Some(Line::NO_TEXT));
        }

        self.end = self.text.position();
        self.number += 1;
        let is_sound = self.sum.open(&mut self.line);
        Ok(Some(Line {
            text: &self.line,
            is_sound,
        }))
    }
}

#[cfg(test)]
mod tests {
    use calipam_files::frames::{MOST_TEXT, Packer};

    use super::super::frames::FrameWriter;
    use super::*;

    fn framed(text: &[u8]) -> Vec<u8> {
        let mut writer = FrameWriter::new().unwrap();
        writer
            .frames([text], |text, out| out.extend_from_slice(text))
            .unwrap()
            .to_vec()
    }

    /// A journal of a few kilobytes that unpacks to gigabytes, without a line break.
    #[test]
    fn a_line_without_an_end_is_damage_and_is_not_kept_in_memory() {
        let mut frame = Vec::new();
        Packer::new()
            .unwrap()
            .push(&vec![b'a'; MOST_TEXT], &mut frame)
            .unwrap();
        let file = frame.repeat(2 * LONGEST / MOST_TEXT);
        let mut lines = Lines::new(&file[..]);
        assert_eq!(lines.next().unwrap(), Some(Line::NO_TEXT));
        assert_eq!(lines.line.len(), LONGEST);
        assert!(
            lines.text.position().unwrap() <= file.len() as u64 / 2,
            "the rest is not unpacked"
        );
    }

    /// Returns true if all lines of `text` are sound.
    fn sound(text: &[u8]) -> bool {
        let file = framed(text);
        let mut lines = Lines::new(&file[..]);
        std::iter::from_fn(|| lines.next().unwrap().map(|line| line.is_sound)).all(|sound| sound)
    }

    #[test]
    fn flipped_moved_or_dropped_lines_are_detected() {
        let mut sum = Sum::default();
        let mut text = Vec::new();
        let objects: Vec<String> = (0..4).map(|n| format!("{{\"n\":{n}}}")).collect();
        for object in objects.iter() {
            sum.seal(object.as_bytes(), &mut text);
        }
        let file = framed(&text);
        let mut lines = Lines::new(&file[..]);
        for object in &objects {
            let text = object.as_bytes();
            let is_sound = true;
            assert_eq!(lines.next().unwrap(), Some(Line { text, is_sound }));
        }
        assert_eq!(lines.next().unwrap(), None);
        assert_eq!((lines.end, lines.number), (Some(file.len() as u64), 4));
        // Flipping the last newline only makes its line incomplete.
        for byte in 0..text.len() - 1 {
            let mut flipped = text.clone();
            flipped[byte] ^= 1;
            assert!(!sound(&flipped), "{byte}");
        }
        let lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
        assert!(!sound(&[lines[0], lines[2], lines[1], lines[3]].concat()));
        assert!(!sound(&[lines[0], lines[2], lines[3]].concat()));
        assert!(!sound(&[lines[0], lines[1], lines[1]].concat()));
    }
}
