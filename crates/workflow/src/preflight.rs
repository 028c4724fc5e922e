//! What can refuse a plan before anything is written: its size, permissions, the place of the journal, locks that killed
//! runs have left, and an operator who cannot agree.

use calipam_datastore::write::{Consent, Question};
use calipam_model::snapshot::Source;
use calipam_plan::PlanSummary;
use calipam_repair::journal::check_place;
use calipam_repair::{LockState, StaleLock, stale_locks};

use crate::error::Error;
use crate::operator::Note;
use crate::run::{Run, Writing};

/// The plan of this run, or one that was expected to be the same, passed the preflight.
pub(crate) struct Passed {
    pub locks: LeftLocks,
    /// What the operator was shown of the plan that was expected.
    pub shown: Option<PlanSummary>,
}

/// What became of locks that killed runs have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftLocks {
    /// There are none any more, as far as that is known.
    #[default]
    Gone,
    /// The datastore stays locked.
    Stay,
}

impl Run<'_> {
    /// Checks what can refuse a plan with so many changes that writes objects of these kinds.
    pub(crate) async fn preflight(
        &self,
        writing: &Writing,
        cluster: &str,
        sources: &[Source],
        changes: usize,
    ) -> Result<Passed, Error> {
        self.check(writing, cluster, sources, changes).await?;

        // While a lock is left no pod starts: it is named even if the operator cannot agree.
        let locks = self.restore_stale_locks(writing, cluster).await?;
        self.operator.can_agree().map_err(Error::NoConsent)?;
        Ok(Passed { locks, shown: None })
    }

    /// The same but for locks that killed runs have left.
    pub(crate) async fn check(
        &self,
        writing: &Writing,
        cluster: &str,
        sources: &[Source],
        changes: usize,
    ) -> Result<(), Error> {
        self.check_limit(changes)?;
        self.datastore.may_write(sources, writing.lock).await?;
        match &self.begun {
            Some(_) => Ok(()),
            None => Ok(check_place(&writing.journal_of(cluster)?)?),
        }
    }

    /// Names locks of the datastore that killed runs have left, and restores them if the operator agrees, now and to this.
    pub(crate) async fn restore_stale_locks(
        &self,
        writing: &Writing,
        cluster: &str,
    ) -> Result<LeftLocks, Error> {
        let (mut left, mut stay) = (Vec::new(), LeftLocks::Gone);
        for folder in writing.folders() {
            left.extend(stale_locks(&folder, cluster)?);
        }

        for lock in left {
            let now = lock.recheck(self.datastore).await?;
            if now == LockState::Unlocked {
                continue;
            }
            self.operator.note(Note::StaleLock(&lock, now));
            if now == LockState::Unclear {
                continue;
            }

            let consent = self.ask(self.question_of_lock(cluster)).await?;
            // Agreed in advance was the command, not this.
            if consent.was_typed() {
                stay = self.restore(&lock, consent).await?;
            } else {
                self.operator.note(Note::LockStays);
                stay = LeftLocks::Stay;
            }
        }
        Ok(stay)
    }

    pub(crate) fn question_of_lock(&self, cluster: &str) -> Question {
        let location = self.datastore.location();
        Question { cluster: cluster.to_owned(), location, others: 1, ..Question::default() }
    }

    pub(crate) async fn restore(&self, lock: &StaleLock, consent: Consent) -> Result<LeftLocks, Error> {
        let restored = lock.restore(self.datastore, consent).await?;
        self.operator.note(if restored { Note::LockRestored } else { Note::LockChanged });
        Ok(if restored { LeftLocks::Gone } else { LeftLocks::Stay })
    }
}
