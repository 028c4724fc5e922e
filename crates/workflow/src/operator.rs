//! The person for whom a command runs, as the workflow sees them.

use std::pin::Pin;
use std::sync::Arc;

use calipam_datastore::write::{Consent, Question};
use calipam_model::hint::Hint;
use calipam_plan::{PlanKind, PlanSummary};
use calipam_repair::journal::Header;
use calipam_repair::{StaleLock, UndoPlan};
use jiff::SignedDuration;

use crate::failure::Failure;
use crate::migrate::Surveyed;

/// The future of a command, boxed, so that its code is compiled here and not once more in the crate that waits for it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Is told what happens, shows progress and plans, and answers questions.
pub trait Operator {
    fn tell(&self, event: Event<'_>);

    fn info(&self, text: String) {
        self.tell(Event::Info(text));
    }

    fn warn(&self, text: String) {
        self.tell(Event::Warning(text));
    }

    /// Shows from now on how far `activity` has come.
    fn start(&self, activity: Activity) -> Arc<dyn Meter>;

    /// Shows what the next question is about.
    fn show(&self, proposal: Proposal<'_>) -> Result<(), Failure>;

    /// Whether the operator has agreed in advance or can be asked.
    fn can_agree(&self) -> Result<(), Failure>;

    fn ask(&self, question: Question) -> Pending<'_, Result<Consent, Failure>>;
}

/// How far an activity has come; called from several threads.
pub trait Meter: Send + Sync {
    /// `expected` is 0 while it is not known.
    fn set(&self, done: u64, expected: u64);

    fn end(&self);
}

/// What takes long enough to be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Counted in objects.
    Reading,
    /// Counted in objects.
    Exporting,
    /// Waiting before suspects are read again; counted in milliseconds, as are the next two.
    Rechecking,
    /// Waiting before the whole read is repeated.
    Confirming,
    /// Waiting before leaked addresses are read a second time.
    WaitingForSecondRead,
    /// Counted in steps.
    Writing,
    /// Counted in pods.
    Evicting,
}

/// What the operator should know although the work goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// What is done, for who wants to know more.
    Detail(String),
    Info(String),
    /// What was done, also for who wants to know little.
    Said(&'static str),
    Warning(String),
    /// What to do next.
    Hint(Hint),
    /// So many addresses were seen unused once, and are read again after this time, before such a plan is made.
    SecondRead {
        addresses: usize,
        after: SignedDuration,
        kind: PlanKind,
    },
    /// The run waits longer than a minute.
    LongWait {
        activity: Activity,
        time: SignedDuration,
    },
    /// A killed run has left the datastore locked, and it is asked whether the lock is restored.
    StaleLock(&'a StaleLock),
    /// Such a lock stays: the operator has agreed in advance to something else.
    LockStays,
}

/// What the operator is about to be asked to agree to.
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    Plan(&'a PlanSummary),
    /// Where a migration stands; the plan of its next phase follows.
    Migration(&'a Surveyed),
    /// The run that is to be undone, and how.
    Undo(&'a Header, &'a UndoPlan),
}
