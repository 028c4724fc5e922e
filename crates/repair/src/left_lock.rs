//! Locks that runs left behind which were killed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::write::Consent;

use crate::error::RepairError;
use crate::journal::{Entry, Header, JournalError, LockMark};
use crate::lock;

/// A lock of the datastore that a run took and could not restore: it was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftLock {
    /// The journal of that run.
    pub journal: PathBuf,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// What was run.
    pub command: String,
    /// What `datastoreReady` was before; `None` where it was absent.
    pub before: Option<bool>,
}

/// Looks through the journals of a folder for locks of `cluster` that were left behind. Journals of runs
/// that still live are passed over, and so is what is no journal.
///
/// # Errors
/// Where the folder cannot be read. A folder that does not exist holds no journals.
pub fn left_locks(folder: &Path, cluster: &str) -> Result<Vec<LeftLock>, JournalError> {
    let failed = |e: io::Error| JournalError::Read { path: folder.to_owned(), reason: e.to_string() };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "journal"));
    paths.sort();
    Ok(paths.into_iter().filter_map(|path| left_lock(&path, cluster)).collect())
}

/// The lock that the run of one journal left behind.
pub fn left_lock(path: &Path, cluster: &str) -> Option<LeftLock> {
    let file = File::open(path).ok()?;
    if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
        return None;
    }
    let (header, mark) = marks(BufReader::new(file)).ok()?;
    let header = header.filter(|h| h.cluster == cluster)?;
    let Some(LockMark::Taking(before)) = mark else { return None };
    let Header { started_at, command, .. } = header;
    Some(LeftLock { journal: path.to_owned(), started_at, command, before })
}

/// The header and the last mark about the lock. Journals can be long: only these lines are understood.
fn marks(mut reader: impl BufRead) -> io::Result<(Option<Header>, Option<LockMark>)> {
    let (mut header, mut mark) = (None, None);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.starts_with(br#"{"lock":"#) || line.starts_with(br#"{"header":"#) {
            match serde_json::from_slice(&line) {
                Ok(Entry::Header(found)) => header = Some(found),
                Ok(Entry::Lock(found)) => mark = Some(found),
                _ => {}
            }
        }
        line.clear();
    }
    Ok((header, mark))
}

impl LeftLock {
    /// Restores what `datastoreReady` was, and notes that in the journal of the run that was killed.
    /// Where somebody has unlocked the datastore since, nothing is changed.
    ///
    /// # Errors
    /// Where the datastore or the journal cannot be written.
    pub async fn restore(&self, datastore: &Datastore, consent: Consent) -> Result<(), RepairError> {
        let writer = datastore.writer(consent)?;
        lock::put_back(&writer, self.before, None).await?;
        let note = || -> io::Result<()> {
            let mut line = serde_json::to_vec(&Entry::Lock(LockMark::Restored))?;
            line.push(b'\n');
            let whole = whole_lines(&self.journal)?;
            let mut file = OpenOptions::new().append(true).open(&self.journal)?;
            // The last line may have broken off when the run was killed; nothing rests on it.
            file.set_len(whole)?;
            file.write_all(&line)?;
            file.sync_all()
        };
        note().map_err(|error| JournalError::write(&self.journal, &error).into())
    }
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
