//! Writes an export.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::Header;
use super::line::Line;
use crate::error::{Error, Result};
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
        let failed = |error: io::Error| Error::new(path, error);
        let temporary = NamedTempFile::new_in(regular::folder_of(path)).map_err(failed)?;
        let file = BufWriter::with_capacity(1 << 18, temporary);
        let output = if path.extension().is_some_and(|extension| extension == "zst") {
            let mut encoder = zstd::Encoder::new(file, LEVEL).map_err(failed)?;
            // An archive is kept for years. Data that the disk has corrupted must not pass as correct.
            encoder.include_checksum(true).map_err(failed)?;
            Output::Packed(encoder)
        } else {
            Output::Plain(file)
        };
        let mut writer = Self {
            path: path.to_owned(),
            output,
            entries: 0,
        };
        writer.line(header).map_err(failed)?;
        Ok(writer)
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
    pub fn finish(self) -> Result<u64> {
        let path = self.path;
        let entries = self.entries;
        let failed = |error: io::Error| Error::new(&path, error);
        let mut output = self.output;
        write_line(output.as_write(), &Line::footer(entries)).map_err(failed)?;
        let buffer = match output {
            Output::Plain(output) => output,
            Output::Packed(output) => output.finish().map_err(failed)?,
        };
        let file = buffer.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(entries)
    }

    fn line(&mut self, value: &impl serde::Serialize) -> io::Result<()> {
        write_line(self.output.as_write(), value)
    }
}

/// Writes a value as JSON, and a line break.
fn write_line(output: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *output, value)?;
    output.write_all(b"\n")
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
