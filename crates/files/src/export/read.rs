//! Reads an export.

use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use calipam_model::from_json;
use memchr::memchr;

use super::line::Line;
use super::{FORMAT, Header, VERSION};
use crate::error::{Error, FileError, Result};
use crate::raw::RawEntry;
use crate::regular;

/// The first bytes of zstd files.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// Maximum length of a line. Values in etcd are smaller than a tenth of this.
const MAX_LINE: u64 = 1 << 28;
/// Approximate number of bytes that are passed on together, in complete lines.
const PIECE: usize = 1 << 20;

/// True if a file that begins with `head` could be an export, compressed or not.
pub fn looks_like_export(head: &[u8]) -> bool {
    if head.starts_with(&ZSTD_MAGIC) {
        return true;
    }
    // The order of the header's fields is not part of the format.
    let first_line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut parts = first_line.windows(FORMAT.len());
    head.starts_with(b"{") && parts.any(|part| part == FORMAT.as_bytes())
}

/// Reads an export, and passes every entry to `sink`.
///
/// # Errors
/// If the file cannot be read or decompressed, has another version, is cut off, or has a line that cannot be
/// decoded.
pub fn read(path: &Path, sink: impl FnMut(&RawEntry<'_>)) -> Result<Header> {
    read_some(path, &|_| true, sink)
}

/// Reads those entries in an export whose keys are wanted. Other entries are only checked for completeness.
pub(crate) fn read_some(
    path: &Path,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    mut sink: impl FnMut(&RawEntry<'_>),
) -> Result<Header> {
    let failed = |kind| Error::new(path, kind);
    let mut export = Export::open(path).map_err(failed)?;
    let mut tally = Tally::default();
    while let Some(piece) = export.piece().map_err(failed)? {
        let decoded = piece.decode(is_wanted, &mut sink);
        if let ControlFlow::Break(end) = tally.add(decoded) {
            end.map_err(failed)?;
            export.finish().map_err(failed)?;
            return Ok(export.header);
        }
    }
    Err(failed(tally.cut()))
}

/// Reads only the first line of an export.
pub fn header_of(path: &Path) -> Result<Header> {
    let failed = |kind| Error::new(path, kind);
    let mut lines = Lines::open(path).map_err(failed)?;
    read_header(&mut lines).map_err(failed)
}

/// A result whose error has no path.
type FileResult<T> = Result<T, FileError>;

/// Reads the first line, which says that the file is an export, and of which version.
fn read_header(lines: &mut Lines) -> FileResult<Header> {
    if !lines.next()? {
        return Err(FileError::Empty);
    }
    let header: serde_json::Value =
        serde_json::from_slice(&lines.text).map_err(|error| FileError::UnknownKind(format!(" ({error})")))?;
    if header["format"] != FORMAT {
        return Err(FileError::UnknownKind(String::new()));
    }
    if let Some(version) = header["version"].as_u64()
        && version != VERSION
    {
        return Err(FileError::ExportVersion(version));
    }
    serde_json::from_value(header).map_err(|error| FileError::ExportLine {
        line: 1,
        reason: error.to_string(),
    })
}

/// An export whose header has been read.
pub struct Export {
    pub header: Header,
    lines: Lines,
}

impl Export {
    pub fn open(path: &Path) -> FileResult<Self> {
        let mut lines = Lines::open(path)?;
        Ok(Self {
            header: read_header(&mut lines)?,
            lines,
        })
    }

    /// The next lines; `None` at the end of the file.
    pub fn piece(&mut self) -> FileResult<Option<Piece>> {
        Ok(self.lines.next_lines()?.map(Piece))
    }

    /// Reads to the end of the file, which verifies the checksum of a compressed file.
    pub fn finish(&mut self) -> FileResult<()> {
        while self.lines.next_lines()?.is_some() {}
        Ok(())
    }
}

/// Some lines in an export.
pub struct Piece(Vec<u8>);

/// The result of decoding some lines.
#[derive(Default)]
pub struct Decoded {
    lines: u64,
    pub entries: u64,
    /// The end of the export, if these lines reach it.
    end: Option<End>,
}

enum End {
    /// A footer, with the number of entries.
    Footer(u64),
    /// The line is incomplete.
    Cut,
    /// The line cannot be decoded.
    Wrong(String),
}

impl Piece {
    /// Passes each entry with a wanted key to `sink`, up to the end of the export. Other entries are only checked for
    /// completeness.
    pub fn decode(
        &self,
        is_wanted: &(impl Fn(&[u8]) -> bool + ?Sized),
        mut sink: impl FnMut(&RawEntry<'_>),
    ) -> Decoded {
        let mut decoded = Decoded::default();
        let mut unread = self.0.as_slice();
        while !unread.is_empty() {
            let line_length = match memchr(b'\n', unread) {
                Some(line_break) => line_break + 1,
                None => unread.len(),
            };
            let (line, after) = unread.split_at(line_length);
            unread = after;
            decoded.lines += 1;
            decoded.end = decode_line(line, is_wanted, &mut sink);
            if decoded.end.is_some() {
                break;
            }
            decoded.entries += 1;
        }
        decoded
    }
}

/// The key at the start of a line, if the key has no escapes. Most unwanted lines can be skipped by it, without
/// decoding.
fn plain_key(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(br#"{"key":""#)?;
    let key = rest.get(..memchr(b'"', rest)?)?;
    if key.contains(&b'\\') || !line.ends_with(b"}\n") {
        return None;
    }
    Some(key)
}

/// Passes the entry in a line to `sink` if it is wanted. Returns the end of the export if the line is not an entry: its
/// last line, or one that is damaged.
fn decode_line(
    text: &[u8],
    is_wanted: &(impl Fn(&[u8]) -> bool + ?Sized),
    sink: &mut impl FnMut(&RawEntry<'_>),
) -> Option<End> {
    if let Some(key) = plain_key(text)
        && !is_wanted(key)
    {
        return None;
    }
    let without_break = text.strip_suffix(b"\n").unwrap_or(text);
    // If this fails, the line is decoded again with its line break, so that the error's position is a column in this
    // line.
    let line = match from_json::<Line<'_>>(without_break).or_else(|_| serde_json::from_slice(text)) {
        Ok(line) => line,
        // A last line with incomplete JSON was cut; any other line that cannot be decoded is invalid.
        Err(error) if error.is_eof() && !text.ends_with(b"\n") => return Some(End::Cut),
        Err(error) => return Some(End::Wrong(error.to_string())),
    };
    if let Some(stated) = line.entries {
        return Some(End::Footer(stated));
    }

    let mut sink_if_wanted = |entry: &RawEntry<'_>| {
        if is_wanted(entry.key) {
            sink(entry);
        }
    };
    line.pass_to(&mut sink_if_wanted).err().map(End::Wrong)
}

/// The progress through an export.
#[derive(Default)]
pub struct Tally {
    /// The number of lines after the header.
    lines: u64,
    entries: u64,
}

impl Tally {
    /// Adds the next lines. Breaks at the end of the export, with an error if it is incomplete or damaged.
    pub fn add(&mut self, decoded: Decoded) -> ControlFlow<FileResult<()>> {
        self.lines += decoded.lines;
        self.entries += decoded.entries;
        let invalid_line = |reason: String| FileError::ExportLine {
            line: self.lines + 1,
            reason,
        };
        match decoded.end {
            None => ControlFlow::Continue(()),
            Some(End::Footer(stated)) if stated == self.entries => ControlFlow::Break(Ok(())),
            Some(End::Footer(stated)) => {
                let reason = format!("it states {stated} entries, but there are {}", self.entries);
                ControlFlow::Break(Err(invalid_line(reason)))
            }
            Some(End::Cut) => ControlFlow::Break(Err(self.cut())),
            Some(End::Wrong(reason)) => ControlFlow::Break(Err(invalid_line(reason))),
        }
    }

    /// The error for an export that ends here.
    pub fn cut(&self) -> FileError {
        FileError::ExportCut {
            entries: self.entries,
        }
    }
}

struct Lines {
    input: Box<dyn BufRead>,
    packed: bool,
    text: Vec<u8>,
    /// A read error, kept until the lines before it have been passed on.
    failed: Option<std::io::Error>,
}

impl Lines {
    /// Opens an export for reading by lines, compressed or not.
    fn open(path: &Path) -> Result<Self, FileError> {
        let mut file = BufReader::with_capacity(1 << 18, regular::open(path)?);
        let packed = file.fill_buf()?.starts_with(&ZSTD_MAGIC);
        let input: Box<dyn BufRead> = if packed {
            let unpacked = zstd::Decoder::with_buffer(file).map_err(|e| FileError::Unpack(e.to_string()))?;
            Box::new(BufReader::with_capacity(1 << 18, unpacked))
        } else {
            Box::new(file)
        };
        Ok(Self {
            input,
            packed,
            text: Vec::new(),
            failed: None,
        })
    }

    /// Reads the next line into `text`; returns false at the end.
    fn next(&mut self) -> FileResult<bool> {
        self.text.clear();
        let read = self
            .input
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', &mut self.text);
        let len = read.map_err(|error| self.failure(error))?;
        Ok(len > 0)
    }

    /// Reads about [`PIECE`] bytes in complete lines; `None` at the end. After an error, first returns the lines that
    /// were read before it.
    fn next_lines(&mut self) -> FileResult<Option<Vec<u8>>> {
        if let Some(error) = self.failed.take() {
            return Err(self.failure(error));
        }
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        let mut read = self.input.by_ref().take(PIECE as u64).read_to_end(&mut piece);
        if read.is_ok() && !piece.ends_with(b"\n") {
            read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut piece);
        }
        if let Err(error) = read {
            // The lines before the error are still passed on, since they could end the export or be invalid.
            let Some(last_break) = piece.iter().rposition(|byte| *byte == b'\n') else {
                return Err(self.failure(error));
            };
            piece.truncate(last_break + 1);
            self.failed = Some(error);
        }
        if piece.is_empty() {
            return Ok(None);
        }
        Ok(Some(piece))
    }

    /// Converts an I/O error, which zstd also reports for invalid data.
    fn failure(&self, error: std::io::Error) -> FileError {
        if self.packed {
            FileError::Unpack(error.to_string())
        } else {
            FileError::Io(error)
        }
    }
}
