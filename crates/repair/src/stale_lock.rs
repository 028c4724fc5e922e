//! Locks that killed runs left behind.

use std::path::{Path, PathBuf};

use calipam_datastore::write::{Consent, Stored};
use calipam_datastore::{Datastore, clock};
use calipam_model::hint::{Call, Hint};
use jiff::{SignedDuration, Timestamp};

use crate::error::Result;
use crate::journal::{Entry, JournalError, LockMark, append, journals, marks_if_over};
use crate::lock;

/// The time during which a write of a killed run may still arrive.
const LATE: SignedDuration = SignedDuration::from_mins(10);

/// A datastore lock that a killed run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleLock {
    /// The journal of the killed run.
    pub journal: PathBuf,
    /// The start of the run, in RFC 3339 format.
    pub started_at: String,
    pub command: String,
    /// The value of `datastoreReady` before locking; `None` if it was absent.
    pub before: Option<bool>,
    /// The revision of ClusterInformation after locking; `None` if the run was killed before it recorded the revision.
    revision: Option<String>,
    /// The name that the run wrote into its lock.
    name: String,
}

impl StaleLock {
    pub fn hint(&self) -> Hint {
        Hint::new(
            "{} undoes that run and unlocks the datastore; {} only unlocks it",
            [
                Call::to(["undo", &self.journal.to_string_lossy()]),
                Call::calicoctl(["datastore", "migrate", "unlock"]),
            ],
        )
    }
}

/// The present state of a stale lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// The datastore is locked, and ClusterInformation has not changed since the killed run.
    AsItWas,
    /// The datastore is locked, but ClusterInformation has changed: the lock may belong to another run or a person.
    Unclear,
    /// The datastore is not locked.
    Unlocked,
}

/// Finds the locks that killed runs left on `cluster`, by the journals in a folder. Ignores the journals of live runs,
/// and files that are not this user's journals. The journal `except` is not read.
pub fn stale_locks(
    folder: &Path,
    cluster: &str,
    except: Option<&Path>,
) -> Result<Vec<StaleLock>, JournalError> {
    let mut locks = Vec::new();
    for path in journals(folder)? {
        if except == Some(path.as_path()) {
            continue;
        }
        locks.extend(stale_lock(&path, cluster));
    }
    Ok(locks)
}

/// Returns the lock that the run of one journal left behind.
pub fn stale_lock(path: &Path, cluster: &str) -> Option<StaleLock> {
    let (header, marks) = marks_if_over(path)?;
    if header.cluster != cluster {
        return None;
    }

    // The run writes `Taking` before it takes the lock, and `Taken` after that. If another mark is the last one, the
    // run has restored `datastoreReady`.
    let (before, revision) = match marks.as_slice() {
        [.., LockMark::Taking(before)] => (*before, None),
        [.., LockMark::Taking(before), LockMark::Taken(revision)] => (*before, Some(revision.clone())),
        _ => return None,
    };
    let name = lock::name_of(&header);
    Some(StaleLock {
        journal: path.to_owned(),
        started_at: header.started_at,
        command: header.command,
        before,
        revision,
        name,
    })
}

impl StaleLock {
    /// Reads the present state of the lock. If the datastore is no longer locked, records this in the journal, unless
    /// the write that takes the lock may still arrive.
    pub async fn recheck(&self, datastore: &Datastore) -> Result<LockState> {
        let stored = datastore.stored_object(lock::key()).await?;
        let Some(stored) = stored.filter(|stored| matches!(lock::ready(stored), Ok(Some(false)))) else {
            if !self.may_arrive() {
                // If this fails, the next run reads the state again.
                self.forget().ok();
            }
            return Ok(LockState::Unlocked);
        };
        if self.is_unchanged(&stored) {
            Ok(LockState::AsItWas)
        } else {
            Ok(LockState::Unclear)
        }
    }

    /// Returns true if ClusterInformation has not changed since the killed run.
    fn is_unchanged(&self, stored: &Stored) -> bool {
        match &self.revision {
            Some(revision) => *revision == stored.revision.to_string(),
            None => lock::has_name(stored, &self.name),
        }
    }

    /// Restores `datastoreReady`, and records this in the killed run's journal. Changes nothing and returns false if
    /// ClusterInformation has changed since the killed run.
    pub async fn restore(&self, datastore: &Datastore, consent: Consent) -> Result<bool> {
        let writer = datastore.writer(consent)?;
        let restored = lock::put_back_if(&writer, self.before, |stored| self.is_unchanged(stored)).await?;
        if restored {
            self.forget()?;
        }
        Ok(restored)
    }

    /// Returns true if the run began so recently that its write of the lock may still arrive.
    fn may_arrive(&self) -> bool {
        let began = self.started_at.parse::<Timestamp>();
        self.revision.is_none() && began.is_ok_and(|began| clock::now().duration_since(began) < LATE)
    }

    fn forget(&self) -> Result<(), JournalError> {
        append(&self.journal, &[Entry::Lock(LockMark::Restored)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{FORMAT, Header, Journal, JournalState, list};

    /// Returns the stale lock and the journal state that a run leaves if it is killed after writing `marks`.
    async fn left(marks: &[LockMark], asked: &str) -> (Option<(Option<bool>, Option<String>)>, JournalState) {
        let folder = tempfile::tempdir().unwrap();
        let started_at = "2026-05-01T10:00:00Z".into();
        let cluster = "0f0e1d2c".into();
        let header = Header {
            format: FORMAT,
            started_at,
            cluster,
            ..Header::default()
        };
        let journal = Journal::create(&folder.path().join("a"), &header).unwrap();
        for mark in marks {
            journal.mark_lock(mark.clone()).await.unwrap();
        }
        drop(journal);
        let found = stale_locks(folder.path(), asked, None).unwrap();
        let found = found.into_iter().next().map(|lock| (lock.before, lock.revision));
        (found, list(folder.path()).unwrap()[0].state)
    }

    #[tokio::test]
    async fn the_last_mark_in_the_journal_decides_if_a_lock_is_left() {
        let own = "0f0e1d2c";
        let taking = LockMark::Taking(Some(true));
        let taken = LockMark::Taken("7".into());
        let (found, state) = left(std::slice::from_ref(&taking), own).await;
        assert_eq!((found, state), (Some((Some(true), None)), JournalState::LockLeft));
        let both = [taking.clone(), taken.clone()];
        let (found, state) = left(&both, own).await;
        assert_eq!(
            (found, state),
            (Some((Some(true), Some("7".into()))), JournalState::LockLeft)
        );
        assert_eq!(left(&both, "another").await.0, None, "of another cluster");
        let (found, state) = left(&[taking, taken, LockMark::Restored], own).await;
        assert_eq!((found, state), (None, JournalState::Interrupted));
        assert_eq!(left(&[], own).await.0, None);
    }
}
