//! Writes an export.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Header;
use super::line::Line;
use crate::error::{Error, FileError, Result};
use crate::raw::RawEntry;
use crate::regular;

/// zstd's default level, which compresses exports to about a tenth of their size.
const LEVEL: i32 = 3;

/// A writer of an export. The file gets its final name when it is complete. Dropping the writer earlier removes the
/// file.
pub struct Writer {
    path: PathBuf,
    output: Output,
    entries: u64,
}

enum Output {
    Plain(BufWriter<NamedTempFile>),
    Packed(zstd::Encoder<'static, BufWriter<NamedTempFile>>),
}

impl Output {
    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(output) => output,
            Self::Packed(output) => output,
        }
    }
}

impl Writer {
    /// Creates an export at `path`, compressed if `path` ends with `.zst`. No other user may read the file.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let begin = || -> std::io::Result<Self> {
            let folder = regular::folder_of(path);
            let file = BufWriter::with_capacity(1 << 18, NamedTempFile::new_in(folder)?);
            let output = if path.extension().is_some_and(|e| e == "zst") {
                let mut packed = zstd::Encoder::new(file, LEVEL)?;
                // An archive is kept for years. Data that the disk has corrupted must not pass as correct.
                packed.include_checksum(true)?;
                Output::Packed(packed)
            } else {
                Output::Plain(file)
            };
            let mut writer = Self {
                path: path.to_owned(),
                output,
                entries: 0,
            };
            writer.line(header)?;
            Ok(writer)
        };
        begin().map_err(|e| Error::new(path, e))
    }

    pub fn entry(&mut self, entry: &RawEntry<'_>) -> Result<()> {
        self.entries += 1;
        self.line(&Line::new(entry))
            .map_err(|e| Error::new(&self.path, e))
    }

    pub fn lines(&mut self, lines: &Lines) -> Result<()> {
        self.entries += lines.entries;
        self.output
            .as_write()
            .write_all(&lines.text)
            .map_err(|e| Error::new(&self.path, e))
    }

    /// Writes the footer and gives the file its final name. Returns the number of entries.
    pub fn finish(mut self) -> Result<u64> {
        let path = self.path.clone();
        let entries = self.entries;
        let end = move || -> std::io::Result<()> {
            self.line(&Line::footer(entries))?;
            let buffer = match self.output {
                Output::Plain(output) => output,
                Output::Packed(output) => output.finish()?,
            };
            let file = buffer.into_inner().map_err(|e| e.into_error())?;
            let as_file: &File = file.as_file();
            as_file.sync_all()?;
            file.persist(&self.path).map_err(|e| e.error)?;
            Ok(())
        };
        end().map_err(|e| Error::new(path, FileError::Io(e)))?;
        Ok(entries)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> std::io::Result<()> {
        let output = self.output.as_write();
        serde_json::to_writer(&mut *output, value)?;
        output.write_all(b"\n")
    }
}

/// Complete lines to write, and their number.
#[derive(Default)]
pub struct Lines {
    text: Vec<u8>,
    entries: u64,
}

impl Lines {
    /// Adds the line of an entry.
    pub fn push(&mut self, entry: &RawEntry<'_>) {
        let start = self.text.len();
        // Strings and base64 always serialize. If a line were missing, the footer's number would not match.
        match serde_json::to_writer(&mut self.text, &Line::new(entry)) {
            Ok(()) => self.text.push(b'\n'),
            Err(_) => self.text.truncate(start),
        }
        self.entries += 1;
    }
}
