//! The file of a journal: its lines in compressed frames. Lines that are made durable together share frames.
//!
//! Each frame consists of a head, which zstd skips, and a zstd frame, so `zstdcat` prints the lines. A frame ends at
//! the end of a line, but a line that is longer than a frame is split into several frames, which contain nothing else.
//! If a killed run left an incomplete frame at the end, it is ignored.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use calipam_files::frames::{HEAD, Head, MOST_TEXT, Packer, damaged};

/// The number of zeros to read at a time at the end of a file.
const PART: u64 = 64 << 10;

/// Makes frames from lines.
pub(super) struct FrameWriter {
    packer: Packer,
    /// Lines that are not in a frame yet.
    text: Vec<u8>,
    frames: Vec<u8>,
}

impl FrameWriter {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            packer: Packer::new()?,
            text: Vec::new(),
            frames: Vec::new(),
        })
    }

    /// Returns the frames of lines that are written together. `add` appends a line to the text of a frame.
    ///
    /// A line that no longer fits into the frame begins the next one. A line that is longer than a frame is alone in
    /// its frames.
    pub(super) fn frames<L>(
        &mut self,
        lines: impl IntoIterator<Item = L>,
        mut add: impl FnMut(L, &mut Vec<u8>),
    ) -> io::Result<&[u8]> {
        self.frames.clear();
        for line in lines {
            let line_start = self.text.len();
            add(line, &mut self.text);

            let is_first = line_start == 0;
            if self.text.len() > MOST_TEXT && !is_first {
                let line_text = self.text.split_off(line_start);
                self.flush()?;
                self.text = line_text;
            }
            if self.text.len() > MOST_TEXT {
                self.flush()?;
            }
        }

        self.flush()?;
        Ok(&self.frames)
    }

    /// Makes frames of the text so far.
    fn flush(&mut self) -> io::Result<()> {
        for piece in self.text.chunks(MOST_TEXT) {
            self.packer.push(piece, &mut self.frames)?;
        }
        self.text.clear();
        Ok(())
    }
}

/// Reads the text of a journal. A damaged frame is reported as an error of the kind
/// [`InvalidData`](io::ErrorKind::InvalidData).
pub(super) struct Text<R> {
    file: R,
    /// The text of the last frame.
    text: Vec<u8>,
    /// The number of bytes that were taken from this text.
    taken: usize,
    /// The end of the last frame in the file.
    end: u64,
}

impl<R: Read> Text<R> {
    /// Begins to read a file of frames.
    pub(super) fn new(file: R) -> Self {
        Self {
            file,
            text: Vec::new(),
            taken: 0,
            end: 0,
        }
    }

    /// Returns the position in the file up to which the text was consumed; `None` within a frame.
    pub(super) fn position(&self) -> Option<u64> {
        if self.taken == self.text.len() {
            Some(self.end)
        } else {
            None
        }
    }

    /// Reads the text of the next frame. At the end of the journal, the text is empty.
    fn read_more(&mut self) -> io::Result<()> {
        self.text.clear();
        self.taken = 0;
        self.text = self.next_frame()?.unwrap_or_default();
        Ok(())
    }

    /// Returns the text of the next frame; `None` if there is no complete frame.
    fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let head = self.read_at_most(HEAD as u64)?;
        if head.len() < HEAD {
            return Ok(None);
        }
        let Some(head) = Head::read(&head) else {
            // After a power failure a file can have its new length, but zeros instead of its content.
            if head.iter().all(|byte| *byte == 0) && self.is_only_zeros()? {
                return Ok(None);
            }
            return Err(damaged());
        };

        let frame = self.read_at_most(head.length.into())?;
        if frame.len() < head.length as usize {
            return Ok(None);
        }
        let text = head.unpack(&frame)?;
        self.end += (HEAD + frame.len()) as u64;
        Ok(Some(text))
    }

    /// Reads this number of bytes, or fewer at the end of the file.
    fn read_at_most(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.by_ref().take(length).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns true if the rest of the file consists of zeros.
    fn is_only_zeros(&mut self) -> io::Result<bool> {
        let mut part = Vec::new();
        loop {
            part.clear();
            self.file.by_ref().take(PART).read_to_end(&mut part)?;
            if part.is_empty() {
                return Ok(true);
            }
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = Read::read(&mut self.fill_buf()?, into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: Read> BufRead for Text<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.taken == self.text.len() {
            self.read_more()?;
        }
        Ok(&self.text[self.taken..])
    }

    fn consume(&mut self, amount: usize) {
        self.taken += amount;
    }
}

/// Returns the text of the last frame of a file; `None` if there is none, or it is incomplete or damaged.
pub(super) fn last_frame(file: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    let mut last = None;
    let mut start = 0;
    loop {
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut bytes)?;
        let Some(head) = Head::read(&bytes) else { break };
        last = Some((head, start + HEAD as u64));
        start += HEAD as u64 + u64::from(head.length);
    }

    let Some((head, place)) = last else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(place))?;
    let mut bytes = Vec::new();
    file.by_ref().take(head.length.into()).read_to_end(&mut bytes)?;
    Ok(head.unpack(&bytes).ok())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn framed(batches: &[&[Vec<u8>]]) -> Vec<u8> {
        let mut writer = FrameWriter::new().unwrap();
        let frames = |lines: &&[Vec<u8>]| {
            writer
                .frames(lines.iter(), |line, text| text.extend_from_slice(line))
                .unwrap()
                .to_vec()
        };
        batches.iter().flat_map(frames).collect()
    }

    fn text(file: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        Text::new(file).read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn lines_of_any_length_come_back_and_any_tool_reads_them() {
        let line = |byte: u8, length: usize| [vec![byte; length], vec![b'\n']].concat();
        let small: Vec<Vec<u8>> = (b'a'..b'f').map(|byte| line(byte, 10)).collect();
        let large = [
            line(b'x', 7),
            line(b'y', 2 * MOST_TEXT + 5),
            line(b'z', MOST_TEXT),
        ];
        let file = framed(&[&small[..1], &small[1..], &large]);
        let whole = [small.concat(), large.concat()].concat();
        assert!(text(&file).unwrap() == whole);
        assert!(zstd::stream::decode_all(&file[..]).unwrap() == whole);
        assert_eq!(
            text(&whole).unwrap_err().kind(),
            io::ErrorKind::InvalidData,
            "lines without frames"
        );
        let last = last_frame(&mut Cursor::new(&file)).unwrap().unwrap();
        assert!(last == whole[whole.len() - 1..], "the end of the longest line");
        assert_eq!(last_frame(&mut Cursor::new(&whole)).unwrap(), None);
    }

    #[test]
    fn truncated_frames_are_ignored_and_changed_frames_are_errors() {
        let lines: Vec<Vec<u8>> = (0..3).map(|n| format!("line {n}\n").into_bytes()).collect();
        let batches: Vec<&[Vec<u8>]> = lines.chunks(1).collect();
        let file = framed(&batches);
        let ends: Vec<usize> = (0..=3).map(|count| framed(&batches[..count]).len()).collect();
        for length in 0..=file.len() {
            let whole = ends.iter().filter(|end| **end <= length).count() - 1;
            assert_eq!(
                text(&file[..length]).unwrap(),
                lines[..whole].concat(),
                "{length}"
            );
            if whole == 0 {
                continue;
            }
            let zeros = [&file[..ends[whole]], &vec![0; length - ends[whole]]].concat();
            assert_eq!(text(&zeros).unwrap(), lines[..whole].concat(), "{length}");
        }
        for place in 0..file.len() {
            let mut flipped = file.clone();
            flipped[place] ^= 1;
            assert!(text(&flipped).is_err(), "{place}");
        }
    }
}
