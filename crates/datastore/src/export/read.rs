//! Reading an export.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::line::Line;
use super::{FORMAT, Header, VERSION};
use crate::error::{Error, FileError, Result};
use crate::raw::RawEntry;

/// What files of zstd begin with.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// A line of more than this is not an export: etcd holds no value of even a tenth.
const MAX_LINE: u64 = 1 << 28;

/// True where a file that begins with `head` may be an export, compressed or not.
pub fn looks_like_export(head: &[u8]) -> bool {
    // The order of the header's fields is not part of the format.
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let names_format = || line.windows(FORMAT.len()).any(|part| part == FORMAT.as_bytes());
    head.starts_with(&ZSTD_MAGIC) || (head.starts_with(b"{") && names_format())
}

/// Reads an export: every entry goes to `sink`.
///
/// # Errors
/// Where the file cannot be read or unpacked, is of a later version, is cut off, or holds a line that
/// cannot be decoded.
pub fn read(path: &Path, sink: impl FnMut(&RawEntry<'_>)) -> Result<Header> {
    read_some(path, &|_| true, sink)
}

/// Reads the entries of an export whose keys are wanted. Of the others it is only looked at that they are all there.
///
/// # Errors
/// As [`read`].
pub fn read_some(
    path: &Path,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    mut sink: impl FnMut(&RawEntry<'_>),
) -> Result<Header> {
    let mut begin = || -> std::result::Result<Header, FileError> {
        let mut lines = Lines::open(path)?;
        let header = read_header(&mut lines)?;
        read_entries(&mut lines, is_wanted, &mut sink)?;
        Ok(header)
    };
    begin().map_err(|kind| Error::file(path, kind))
}

/// Reads the first line of an export only.
///
/// # Errors
/// As [`read`].
pub fn header_of(path: &Path) -> Result<Header> {
    let header = Lines::open(path).and_then(|mut lines| read_header(&mut lines));
    header.map_err(|kind| Error::file(path, kind))
}

fn read_header(lines: &mut Lines) -> std::result::Result<Header, FileError> {
    if !lines.next()? {
        return Err(FileError::Empty);
    }
    let value: serde_json::Value =
        serde_json::from_slice(&lines.text).map_err(|e| FileError::UnknownKind(format!(" ({e})")))?;
    if value["format"] != FORMAT {
        return Err(FileError::UnknownKind(String::new()));
    }
    match value["version"].as_u64() {
        Some(version) if version > VERSION => Err(FileError::ExportVersion(version)),
        _ => serde_json::from_value(value).map_err(|e| lines.error(e)),
    }
}

fn read_entries(
    lines: &mut Lines,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    sink: &mut impl FnMut(&RawEntry<'_>),
) -> std::result::Result<(), FileError> {
    let mut entries = 0;
    while lines.next()? {
        if plain_key(&lines.text).is_some_and(|key| !is_wanted(key)) {
            entries += 1;
            continue;
        }
        let line: Line<'_> =
            serde_json::from_slice(&lines.text).map_err(|e| lines.error_or_cut(&e, entries))?;
        match line.entries {
            Some(stated) if stated == entries => return Ok(()),
            Some(stated) => {
                return Err(lines.error(format!("it counts {stated} entries, but {entries} are there")));
            }
            None => {
                let entry = line.to_entry().map_err(|reason| lines.error(reason))?;
                if is_wanted(&entry.key) {
                    sink(&entry.as_entry());
                }
            }
        }
        entries += 1;
    }
    Err(FileError::ExportCut { entries })
}

/// The key of a line, where it stands at its beginning as it is: most lines are passed over by it without being decoded.
fn plain_key(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(br#"{"key":""#)?;
    let key = rest.get(..rest.iter().position(|byte| *byte == b'"')?)?;
    (!key.contains(&b'\\') && line.ends_with(b"}\n")).then_some(key)
}

/// The lines of a file, one at a time.
struct Lines {
    input: Box<dyn BufRead>,
    packed: bool,
    number: u64,
    text: Vec<u8>,
}

impl Lines {
    fn open(path: &Path) -> std::result::Result<Self, FileError> {
        let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
        let packed = file.fill_buf()?.starts_with(&ZSTD_MAGIC);
        let input: Box<dyn BufRead> = if packed {
            let unpacked = zstd::Decoder::with_buffer(file).map_err(|e| FileError::Unpack(e.to_string()))?;
            Box::new(BufReader::with_capacity(1 << 18, unpacked))
        } else {
            Box::new(file)
        };
        Ok(Self { input, packed, number: 0, text: Vec::new() })
    }

    /// Reads the next line into `text`; false at the end.
    fn next(&mut self) -> std::result::Result<bool, FileError> {
        self.text.clear();
        self.number += 1;
        let packed = self.packed;
        let read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.text);
        // What zstd cannot unpack shows as an I/O error.
        let len =
            read.map_err(|e| if packed { FileError::Unpack(e.to_string()) } else { FileError::Io(e) })?;
        Ok(len > 0)
    }

    fn error(&self, reason: impl ToString) -> FileError {
        FileError::ExportLine { line: self.number, reason: reason.to_string() }
    }

    /// A last line that breaks off within its JSON was cut; any other one is wrong.
    fn error_or_cut(&self, error: &serde_json::Error, entries: u64) -> FileError {
        if error.is_eof() && !self.text.ends_with(b"\n") {
            FileError::ExportCut { entries }
        } else {
            self.error(error)
        }
    }
}
