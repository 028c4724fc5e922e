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
    let write = || -> io::Result<()> {
        let mut file = regular::open_own(path, OpenOptions::new().read(true).append(true))?;
        let mut lines = Lines::new(BufReader::new(&file));
        while let Some((_, is_sound)) = lines.next()? {
            if !is_sound {
                return Err(damaged());
            }
        }
        let mut sum = lines.sum;
        let end = lines.end.ok_or_else(damaged)?;
        let added: Vec<Vec<u8>> = entries.iter().map(serde_json::to_vec).collect::<Result<_, _>>()?;

        let mut writer = FrameWriter::new()?;
        let bytes = writer.frames(&added, |line, text| sum.seal(line, text))?;
        file.set_len(end)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| JournalError::write(path, &error))
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
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(Vec::new()),
                _ => Err(failed(error)),
            };
        }
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

/// Returns the journals in a folder with their headers. Files without a sound header are left out.
pub fn headers(folder: &Path) -> Vec<(PathBuf, Header)> {
    let with_header = |path: PathBuf| {
        let mut lines = Lines::new(BufReader::new(open_own(&path).ok()?));
        let (line, is_sound) = lines.next().ok()??;
        let header = header(&path, line, is_sound).ok()?;
        Some((path, header))
    };
    journals(folder)
        .unwrap_or_default()
        .into_iter()
        .filter_map(with_header)
        .collect()
}

/// Returns true if a file belongs to this user and begins like a journal. Its name does not matter: `--journal` accepts
/// any name, and any file can be called `*.journal`.
fn is_journal(path: &Path) -> bool {
    let begins = || -> io::Result<bool> {
        let mut first = Vec::new();
        open_own(path)?.take(MAGIC.len() as u64).read_to_end(&mut first)?;
        Ok(first == MAGIC)
    };
    begins().unwrap_or(false)
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
    while let Some((line, is_sound)) = lines.next().ok()? {
        if !is_sound {
            return None;
        }
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
    let broke_off = |path: &PathBuf| {
        let ends = open_if_over(path).map(|mut file| -> io::Result<bool> {
            let text = last_frame(&mut file)?.unwrap_or_default();
            let last = text.len().saturating_sub(END.len() + SUM);
            Ok(text[last..].starts_with(END))
        });
        matches!(ends, Some(Ok(false)))
    };

    Ok(journals(folder)?.into_iter().filter(broke_off).collect())
}
