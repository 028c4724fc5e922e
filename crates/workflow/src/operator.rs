//! The person for whom a command runs, as the workflow sees them.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use calipam_check::ClusterIdentity;
use calipam_datastore::changes::WhyWhole;
use calipam_datastore::write::{Consent, Question};
use calipam_plan::release::ReportError;
use calipam_plan::{PlanKind, PlanSummary};
use calipam_repair::journal::Header;
use calipam_repair::{LockState, StaleLock, UndoPlan};
use jiff::{SignedDuration, Timestamp};

use crate::migrate::Surveyed;

/// The future of a command, boxed, so that its code is compiled here and not once more in the crate that waits for it.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Takes notes, shows progress and plans, and answers questions. The implementation makes the words.
pub trait Operator {
    fn note(&self, note: Note<'_>);

    /// Shows from now on how far `activity` has come.
    fn start(&self, activity: Activity) -> Arc<dyn Meter>;

    /// Shows what the next question is about.
    fn show(&self, proposal: Proposal<'_>) -> io::Result<()>;

    /// Whether the operator has agreed in advance or can be asked.
    fn can_agree(&self) -> Result<(), NoConsent>;

    fn ask(&self, question: Question) -> Pending<'_, Result<Consent, NoConsent>>;
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
pub enum Note<'a> {
    Read(&'a ClusterIdentity),
    /// The journal of the run that begins is on disk.
    Journal(&'a Path),
    /// The grace period is shorter than an operation of a CNI plugin may take.
    ShortGrace(SignedDuration),
    /// A few keys were read, in so many requests.
    ReadAround {
        revision: String,
        requests: u64,
    },
    /// So many objects could be half-changed and are read again after this time.
    Rereading {
        objects: usize,
        after: SignedDuration,
    },
    /// A second read was asked for, but what is read cannot change.
    CannotConfirm,
    /// So many addresses were seen unused once, and are read again after this time, before such a plan is made.
    SecondRead {
        addresses: usize,
        after: SignedDuration,
        kind: PlanKind,
    },
    /// The number of addresses that are read again after this time. What does not have to wait is written first.
    WrittenFirst {
        waiting: usize,
        after: SignedDuration,
    },
    /// The run waits longer than a minute.
    LongWait {
        activity: Activity,
        time: SignedDuration,
    },
    /// The plan is not the one that was shown before the wait.
    PlanHasChanged,
    /// The old pool of a migration is read again after this time, before it is deleted.
    SecondLook {
        after: SignedDuration,
    },
    /// Nothing will be written: the plan is made as if a second read found the same.
    SecondReadAssumed {
        addresses: usize,
        after: SignedDuration,
    },
    /// A report is used despite this.
    ReportForced {
        report: &'a str,
        objection: &'a ReportError,
    },
    /// So many files with blocks before and after were written.
    BlockFiles {
        files: usize,
        directory: &'a Path,
    },
    /// A killed run has left the datastore locked, and what has become of that lock.
    StaleLock(&'a StaleLock, LockState),
    /// Such a lock is restored.
    LockRestored,
    /// Such a lock stays: the operator has agreed in advance to something else.
    LockStays,
    /// The killed run that is undone has left the datastore locked, and the lock is restored with it.
    LockOfRun(&'a StaleLock),
    /// The lock that stays: pools of that run are not undone.
    LockStaysForPools(&'a StaleLock),
    /// A lock that was to be restored stays: ClusterInformation has changed since.
    LockChanged,
    /// Two datastores are compared although their GUIDs differ.
    TwoClustersForced {
        guids: [&'a str; 2],
    },
    /// A journal, or the folder of journals, cannot be read: what runs of calipam wrote may be missing.
    JournalPassedOver {
        reason: String,
    },
    /// What was added to an archive has no GUID: the next export may be of another cluster.
    ArchiveOfUnknown,
    /// An export of an archive cannot be read. It is left where it is.
    ExportDamaged {
        reason: String,
    },
    /// Of two exports of an archive the later one has the older data.
    ArchiveSetBack {
        times: [Timestamp; 2],
    },
    /// A recording begins with this full state: because nothing is there to go on from, since changes were lost, or, where no
    /// reason is given with an earlier recording, since that is old.
    RecordingBegun {
        path: &'a Path,
        why: Option<&'a WhyWhole>,
    },
    /// A recording goes on after a pause.
    RecordingResumed {
        path: &'a Path,
        /// The last time of which everything is known.
        last: Timestamp,
    },
    /// The clock was set back while it was recorded.
    RecordingClock {
        now: Timestamp,
        last: Timestamp,
    },
    /// The clock of the recorder was set back by so much at most.
    RecordedSetBack {
        path: &'a Path,
        by: SignedDuration,
    },
    /// Changes are not what was recorded: they are known until then.
    RecordingDamaged {
        reason: String,
        until: Timestamp,
    },
    /// At a time that was asked for nothing was recorded: from `last` until `next`, or the end.
    NotRecorded {
        time: Timestamp,
        last: Timestamp,
        next: Option<Timestamp>,
    },
    /// One of two datastores that are compared has no GUID: they may be of two clusters.
    ClusterNotKnown {
        location: &'a str,
    },
    /// The run whose journal is undone did not finish by itself.
    JournalWithoutEnd,
    /// So many pods were evicted, and are back; so many stay, since they would come back to the old pool; and these virtual machines
    /// stay, each with its reason.
    Evicted {
        pods: usize,
        tied: usize,
        refused: Vec<String>,
    },
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

/// Why the operator did not agree.
#[derive(Debug)]
pub enum NoConsent {
    Declined,
    /// Stdin is not a terminal.
    NoTerminal,
    Failed(io::Error),
}
