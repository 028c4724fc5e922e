//! Appends to the journals of ended runs, and finds the journals of interrupted runs.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use calipam_files::frames::MAGIC;
use calipam_files::regular;

use super::disk::{is_alive, open_own};
use super::entry::{Entry, Header, LockMark};
use super::error::JournalError;
use super::frames::{FrameWriter, last_frame};
use super::line::{LENGTH as SUM, Lines};
use super::read::header;

/// The beginning of a header.
const BEGIN: &[u8] = b"{\"header\":";
/// The beginning of the last line of a run that ended normally.
const END: &[u8] = b"{\"end\":{}";

/// Appends lines. An incomplete last line of a killed run is dropped: nothing relies on it.
pub(crate) fn append(path: &Path, entries: &[Entry]) -> Result<(), JournalError> {
    append_lines(path, entries).map_err(|error| JournalError::write(path, &error))
}

/// Checks the lines of a journal, and writes further ones after them.
///
/// # Errors
/// If a line is damaged, since the checksums of later lines depend on it, or the file cannot be written.
fn append_lines(path: &Path, entries: &[Entry]) -> io::Result<()> {
    // The checksum of a line depends on all lines before it.
    let mut file = regular::open_own(path, OpenOptions::new().read(true).append(true))?;
    let mut lines = Lines::new(BufReader::new(&file));
    while let Some(line) = lines.next()? {
        if !line.is_sound {
            return Err(damaged());
        }
    }
    let mut sum = lines.sum;
    let end = lines.end.ok_or_else(damaged)?;

    let mut added: Vec<Vec<u8>> = Vec::new();
    for entry in entries {
        added.push(serde_json::to_vec(entry)?);
    }
    let mut writer = FrameWriter::new()?;
    let bytes = writer.frames(&added, |line, text| sum.seal(line, text))?;
    file.set_len(end)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn damaged() -> io::Error {
    io::Error::other("it is damaged")
}

/// Returns the journals in a folder, sorted by name. Returns no journals if the path is not a folder.
pub(crate) fn journals(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let failed = |error: io::Error| JournalError::Read {
        path: folder.to_owned(),
        reason: error.to_string(),
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_no_folder(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if is_journal(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_no_folder(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns the journals in a folder with their headers. Files without a sound header are left out.
pub fn headers(folder: &Path) -> Vec<(PathBuf, Header)> {
    let mut headers = Vec::new();
    for path in journals(folder).unwrap_or_default() {
        if let Some(header) = header_of(&path) {
            headers.push((path, header));
        }
    }
    headers
}

/// Reads the header of a journal; `None` if it is not sound.
fn header_of(path: &Path) -> Option<Header> {
    let mut lines = Lines::new(BufReader::new(open_own(path).ok()?));
    let first = lines.next().ok()??;
    header(path, first).ok()
}

/// Returns true if a file belongs to this user and begins like a journal. Its name does not matter: `--journal` accepts
/// any name, and any file can be called `*.journal`.
fn is_journal(path: &Path) -> bool {
    let Ok(file) = open_own(path) else {
        return false;
    };
    let mut beginning = Vec::new();
    let read = file.take(MAGIC.len() as u64).read_to_end(&mut beginning);
    read.is_ok() && beginning == MAGIC
}

/// Opens a journal of this user for reading; `None` if that fails or its run is still alive.
fn open_if_over(path: &Path) -> Option<File> {
    open_own(path).ok().filter(|file| !is_alive(file))
}

/// Returns true if the run of a journal is over.
pub(super) fn is_over(path: &Path) -> bool {
    open_if_over(path).is_some()
}

/// Returns the header and the lock marks of a journal whose run is over. Decodes only these lines, since journals can
/// be long. Returns `None` if the run is alive, or if the file is damaged or is not a journal.
pub(crate) fn marks_if_over(path: &Path) -> Option<(Header, Vec<LockMark>)> {
    let mut lines = Lines::new(BufReader::new(open_if_over(path)?));
    let mut header = None;
    let mut marks = Vec::new();
    while let Some(line) = lines.next().ok()? {
        if !line.is_sound {
            return None;
        }
        let line = line.text;
        if line.starts_with(b"{\"lock\":") || line.starts_with(BEGIN) {
            match serde_json::from_slice(line).ok()? {
                Entry::Header(found) => header = Some(found),
                Entry::Lock(found) => marks.push(found),
                _ => {}
            }
        }
    }

    Some((header?, marks))
}

/// Returns the journals in a folder whose runs are over, and whose last line is not the end of the run.
pub(crate) fn unfinished(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let mut paths = journals(folder)?;
    paths.retain(|path| has_broken_off(path));
    Ok(paths)
}

/// Returns true if the run of a journal is over, and the last line of the journal is not the end of the run. False if
/// the file cannot be read.
fn has_broken_off(path: &Path) -> bool {
    let Some(mut file) = open_if_over(path) else {
        return false;
    };
    let Ok(frame) = last_frame(&mut file) else {
        return false;
    };
    let text = frame.unwrap_or_default();
    let last_line = text.len().saturating_sub(END.len() + SUM);
    !text[last_line..].starts_with(END)
}
