//! The interface to the operator of a command.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question};
use calipam_model::hint::Hint;
use calipam_plan::{PlanKind, PlanSummary};
use calipam_repair::journal::Header;
use calipam_repair::{StaleLock, UndoPlan};
use jiff::SignedDuration;

use crate::failure::Result;
use crate::migrate::Surveyed;

/// A command's future. It is boxed so that its code is compiled in this crate, and not again in the crate that awaits
/// it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Receives events, shows progress and plans, and answers questions.
pub trait Operator {
    fn tell(&self, event: Event<'_>);

    fn info(&self, text: String) {
        self.tell(Event::Info(text));
    }

    fn warn(&self, text: String) {
        self.tell(Event::Warning(text));
    }

    /// Starts a progress meter.
    fn start(&self, activity: Activity) -> Arc<dyn Meter>;

    /// Shows the subject of the next question.
    fn show(&self, proposal: Proposal<'_>) -> Result<()>;

    /// Fails unless the operator has agreed in advance or can be asked.
    fn can_agree(&self) -> Result<()>;

    /// Asks the operator; `None` if the answer is not yes.
    fn ask(&self, question: Question) -> Pending<'_, Result<Option<Consent>>>;
}

/// A datastore, and the operator of the command that works on it.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    pub datastore: &'a Datastore,
    pub operator: &'a dyn Operator,
}

impl<'a> Access<'a> {
    pub fn new(datastore: &'a Datastore, operator: &'a dyn Operator) -> Self {
        Self { datastore, operator }
    }
}

/// Progress of an activity; called from several threads.
pub trait Meter: Send + Sync {
    /// Sets the progress; `expected` is 0 while it is unknown.
    fn set(&self, done: u64, expected: u64);

    fn end(&self);
}

/// An activity with a progress meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Counted in objects.
    Reading,
    /// Reading everything after a part of it was shown. Counted in objects.
    CheckingCluster,
    /// Counted in objects.
    Exporting,
    /// Waiting before suspicious objects are read again. Counted in milliseconds, like the next two.
    Rechecking,
    /// Waiting before everything is read again.
    Confirming,
    /// Waiting before leaked addresses are read a second time.
    WaitingForSecondRead,
    /// Counted in steps.
    Writing,
    /// Counted in pods.
    Evicting,
}

/// A message to the operator while work continues.
#[derive(Debug)]
pub enum Event<'a> {
    /// A detail for verbose output.
    Detail(String),
    Info(String),
    /// A result that is printed even in quiet mode.
    Said(&'static str),
    /// The journal of the run is on disk. The writes begin now.
    Journal(&'a Path),
    /// A signal has arrived while the run writes. The steps that have begun are finished, and no others begin.
    Stopping,
    /// The write that removes the lock of a killed run begins now.
    Unlocking,
    /// The lock was removed.
    Unlocked,
    Warning(String),
    /// The next step for the operator.
    Hint(Hint),
    /// Addresses were found unused once. They are read again after this time, before the plan is made.
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
    /// A killed run left the datastore locked; the operator is asked whether to remove the lock.
    StaleLock(&'a StaleLock),
    /// The datastore stays locked, because the consent that the operator gave in advance does not cover removing the
    /// lock.
    LockStays,
}

/// The subject of a question.
#[derive(Clone, Copy, Debug)]
pub enum Proposal<'a> {
    Plan(&'a PlanSummary),
    /// The state of a migration; the plan of its next phase follows.
    Migration(&'a Surveyed),
    /// The run to undo, and the plan for it.
    Undo(&'a Header, &'a UndoPlan),
}
