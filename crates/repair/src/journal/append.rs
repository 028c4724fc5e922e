//! Adding to the journal of a run that is over, and finding those that did not end by themselves.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::read::JournalError;

/// What journals are called.
const EXTENSION: &str = "journal";
/// What every journal begins with.
const BEGIN: &[u8; 10] = b"{\"header\":";
/// The last line of a run that came to its end.
const END: &[u8] = b"\"end\"\n";

/// Appends lines. A last line that broke off when the run was killed is dropped: nothing rests on it.
pub(crate) fn append(path: &Path, entries: &[Entry]) -> Result<(), JournalError> {
    let write = || -> io::Result<()> {
        let mut lines = Vec::new();
        for entry in entries {
            lines.extend(serde_json::to_vec(entry)?);
            lines.push(b'\n');
        }
        let whole = whole_lines(path)?;
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.set_len(whole)?;
        file.write_all(&lines)?;
        file.sync_all()
    };
    write().map_err(|error| JournalError::write(path, &error))
}

/// Length of all lines of a file that are whole.
fn whole_lines(path: &Path) -> io::Result<u64> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut whole, mut line) = (0, Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.ends_with(b"\n") {
            whole += line.len() as u64;
        }
        line.clear();
    }
    Ok(whole)
}

/// The journals of a folder, by name. A folder that does not exist, or is none, holds none.
pub(crate) fn journals(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let failed = |e: io::Error| JournalError::Read { path: folder.to_owned(), reason: e.to_string() };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.map_err(failed)?,
    };
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.retain(|path| is_journal(path));
    paths.sort();
    Ok(paths)
}

/// True for what is called as journals are, and for what begins as they do: `--journal` takes any name.
fn is_journal(path: &Path) -> bool {
    let begins = || -> io::Result<bool> {
        // A pipe that nobody writes to would never open.
        if !path.metadata()?.is_file() {
            return Ok(false);
        }
        let mut first = [0; BEGIN.len()];
        File::open(path)?.read_exact(&mut first)?;
        Ok(first == *BEGIN)
    };
    path.extension().is_some_and(|extension| extension == EXTENSION) || begins().unwrap_or(false)
}

/// Opens a journal to read it; `None` where that cannot be or its run still lives.
pub(crate) fn open_if_over(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => None,
        _ => Some(file),
    }
}

/// The journals of a folder whose runs are over and did not end by themselves.
pub(crate) fn unfinished(folder: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let broke_off = |path: &PathBuf| {
        let ends = open_if_over(path).map(|mut file| -> io::Result<bool> {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(END.len() as u64)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok(tail == END)
        });
        matches!(ends, Some(Ok(false)))
    };
    Ok(journals(folder)?.into_iter().filter(broke_off).collect())
}
