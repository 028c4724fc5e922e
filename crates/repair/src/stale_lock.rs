//! Locks of the datastore that killed runs have not restored.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::write::Consent;

use crate::error::RepairError;
use crate::journal::{Entry, Header, JournalError, LockMark, append, journals, open_if_over};
use crate::lock;

/// A lock of the datastore that a run took and could not restore: it was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleLock {
    /// The journal of that run.
    pub journal: PathBuf,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// What was run.
    pub command: String,
    /// What `datastoreReady` was before; `None` where it was absent.
    pub before: Option<bool>,
}

/// Looks through the journals of a folder for locks of `cluster` that killed runs have not restored. Journals
/// of runs that go on, and files that are not journals, are passed over.
///
/// # Errors
/// Where the folder cannot be read. A folder that does not exist holds no journals.
pub fn stale_locks(folder: &Path, cluster: &str) -> Result<Vec<StaleLock>, JournalError> {
    Ok(journals(folder)?.into_iter().filter_map(|path| stale_lock(&path, cluster)).collect())
}

/// The lock that the run of one journal has not restored.
pub fn stale_lock(path: &Path, cluster: &str) -> Option<StaleLock> {
    let file = open_if_over(path)?;
    let (header, mark) = marks(BufReader::new(file)).ok()?;
    let header = header.filter(|h| h.cluster == cluster)?;
    let Some(LockMark::Taking(before)) = mark else { return None };
    let Header { started_at, command, .. } = header;
    Some(StaleLock { journal: path.to_owned(), started_at, command, before })
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

impl StaleLock {
    /// Restores what `datastoreReady` was, and notes that in the journal of the run that was killed.
    /// If the datastore has been unlocked since, nothing is changed.
    ///
    /// # Errors
    /// Where the datastore or the journal cannot be written.
    pub async fn restore(&self, datastore: &Datastore, consent: Consent) -> Result<(), RepairError> {
        let writer = datastore.writer(consent)?;
        lock::put_back(&writer, self.before, None).await?;
        Ok(append(&self.journal, &[Entry::Lock(LockMark::Restored)])?)
    }
}
