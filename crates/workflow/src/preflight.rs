//! Checks before a plan is written: its size, permissions, the journal folder, locks that killed runs left, and whether
//! the operator can agree.

use calipam_datastore::write::{Consent, ProposedChange};
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Source;
use calipam_model::words::quoted;
use calipam_plan::PlanSummary;
use calipam_repair::journal::check_place;
use calipam_repair::{LockState, StaleLock, stale_locks};

use crate::failure::Result;
use crate::operator::Event;
use crate::run::{Run, Writing};
use crate::unfinished::Unfinished;

/// The result of a preflight, for this run's plan or for the plan that is expected after a wait.
pub(crate) struct Passed {
    /// True if a lock that a killed run left behind is still in place.
    pub stays_locked: bool,
    /// The summary of the expected plan, if it was shown.
    pub shown: Option<PlanSummary>,
}

impl Run<'_> {
    /// Checks whether a plan with this number of changes to objects of these kinds can be written.
    pub(crate) async fn preflight(
        &self,
        writing: &Writing,
        cluster: &str,
        sources: &[Source],
        changes: usize,
    ) -> Result<Passed> {
        self.check(writing, cluster, sources, changes).await?;

        // A lock is reported even if the operator cannot agree, because no pod starts while the datastore is locked.
        let stays_locked = self.restore_stale_locks(cluster).await?;
        self.access.operator.can_agree()?;
        Ok(Passed {
            stays_locked,
            shown: None,
        })
    }

    /// Checks the plan's size, the permissions and the journal folder, but no locks.
    pub(crate) async fn check(
        &self,
        writing: &Writing,
        cluster: &str,
        sources: &[Source],
        changes: usize,
    ) -> Result<()> {
        self.check_limit(changes)?;
        self.access.datastore.may_write(sources, writing.lock).await?;
        if self.journal_so_far.is_none() {
            check_place(&self.intent.journal_of(writing, cluster)?)?;
        }
        Ok(())
    }

    /// Reports locks that killed runs left behind, and removes each lock if the operator agrees to it when asked.
    /// Returns true if such a lock is certain to remain.
    pub(crate) async fn restore_stale_locks(&self, cluster: &str) -> Result<bool> {
        let mut locks = Vec::new();
        for folder in self.intent.folders() {
            locks.extend(stale_locks(&folder, cluster, self.without_lock.as_deref())?);
        }

        let mut stays_locked = false;
        for lock in locks {
            match lock.recheck(self.access.datastore).await? {
                LockState::AsItWas => {}
                LockState::Unlocked => continue,
                LockState::Unclear => {
                    self.warn_of_unclear(&lock);
                    continue;
                }
            }

            self.access.operator.tell(Event::StaleLock(&lock));
            let consent = self.ask(cluster, ProposedChange::Unlock).await?;
            // Consent that was given in advance covers the command, but not removing a lock.
            if consent.was_typed() {
                let is_unlocked = self.remove_lock(&lock, consent).await?;
                stays_locked |= !is_unlocked;
            } else {
                self.access.operator.tell(Event::LockStays);
                stays_locked = true;
            }
        }
        Ok(stays_locked)
    }

    /// Names a run that did not finish, and what to do about it: the plan does not contain what that run has left,
    /// unless it was asked for. The second part of a run says nothing again.
    pub(crate) fn tell_of_unfinished(&self, cluster: &str) {
        if self.journal_so_far.is_some() || !self.access.datastore.is_live() {
            return;
        }
        let Some(unfinished) = Unfinished::find(&self.intent.folders(), cluster) else {
            return;
        };
        let operator = self.access.operator;
        operator.warn(unfinished.to_string());
        operator.tell(Event::Hint(unfinished.hint()));
        operator.tell(Event::Hint(Hint::new(
            "{} shows what is left of that run, and what repairs it",
            [Call::to(["check"])],
        )));
    }

    /// Warns of a lock that another program may hold by now.
    pub(crate) fn warn_of_unclear(&self, lock: &StaleLock) {
        let StaleLock {
            command,
            started_at,
            journal,
            ..
        } = lock;
        self.access.operator.warn(format!(
            "the datastore is locked: no pod starts or stops. The run `{command}` of {started_at} locked it and did not \
             finish; ClusterInformation has changed since, so another program might hold the lock now (journal {})",
            quoted(journal)
        ));
        let unlock = Call::calicoctl(["datastore", "migrate", "unlock"]);
        self.access.operator.tell(Event::Hint(Hint::new(
            "once you know whose lock it is: {}",
            [unlock],
        )));
    }

    /// Removes a lock that a killed run left behind. Returns false if the datastore stays locked.
    pub(crate) async fn remove_lock(&self, lock: &StaleLock, consent: Consent) -> Result<bool> {
        self.access.operator.tell(Event::Unlocking);
        let is_unlocked = lock.restore(self.access.datastore, consent).await?;
        if is_unlocked {
            self.has_unlocked.set(true);
            self.access.operator.tell(Event::Unlocked);
        } else {
            self.access.operator.warn(
                "the datastore stays locked: ClusterInformation has changed since, so another program might hold the \
                 lock"
                    .into(),
            );
        }
        Ok(is_unlocked)
    }
}
