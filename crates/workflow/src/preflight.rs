//! What can refuse a plan before anything is written: its size, permissions, the place of the journal, locks that killed
//! runs have left, and an operator who cannot agree.

use std::path::Path;

use calipam_datastore::write::Question;
use calipam_model::snapshot::Source;
use calipam_repair::journal::check_place;
use calipam_repair::{LockState, stale_locks};

use crate::error::Error;
use crate::operator::Note;
use crate::run::{Run, Writing};

/// The plan of this run, or one that was expected to be the same, passed the preflight.
pub(crate) struct Passed;

impl Run<'_> {
    /// Looks at what can refuse a plan with so many changes that writes objects of these kinds.
    pub(crate) async fn preflight(
        &self,
        writing: &Writing,
        cluster: &str,
        sources: &[Source],
        changes: usize,
    ) -> Result<Passed, Error> {
        self.check_limit(changes)?;
        self.datastore.may_write(sources, writing.lock).await?;
        check_place(&writing.journal_of(cluster)?)?;

        // While a lock is left no pod starts: it is named even where the operator cannot agree.
        self.restore_stale_locks(writing, cluster).await?;
        self.operator.can_agree().map_err(Error::NoConsent)?;
        Ok(Passed)
    }

    /// Names a lock of the datastore that a killed run has left, and restores it if the operator agrees, now and to this.
    pub(crate) async fn restore_stale_locks(&self, writing: &Writing, cluster: &str) -> Result<(), Error> {
        let mut left = Vec::new();
        let named = writing.journal.as_deref().and_then(Path::parent).map(|folder| {
            // `--journal run.journal` lies in the working directory.
            if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
        });
        for folder in writing.journals.as_deref().into_iter().chain(named) {
            left.extend(stale_locks(folder, cluster)?);
        }

        for lock in left {
            let now = lock.look(self.datastore).await?;
            if now == LockState::Unlocked {
                continue;
            }
            self.operator.note(Note::StaleLock(&lock, now));
            if now == LockState::Unclear {
                continue;
            }

            let question = Question {
                cluster: cluster.to_owned(),
                location: self.datastore.location(),
                addresses: 0,
                blocks: 0,
                handles: 0,
                others: 1,
            };
            let consent = self.ask(question).await?;
            // Agreed in advance was the command, not this.
            let restored = consent.was_typed() && lock.restore(self.datastore, consent).await?;
            self.operator.note(if restored { Note::LockRestored } else { Note::LockStays });
        }
        Ok(())
    }
}
