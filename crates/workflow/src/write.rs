//! From a plan to a run: limit, left locks, consent, journal, and the run itself.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question, RECORDS};
use calipam_model::snapshot::Source;
use calipam_plan::{Plan, PlanKind};
use calipam_repair::journal::{check_place, default_path};
use calipam_repair::{
    Event, EventFn, Execution, Interrupt, LockState, Options, RepairError, execute, stale_locks,
};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::error::Error;
use crate::operator::{Activity, Note, Operator, Proposal};
use crate::planning::PlanSummary;

/// How to write.
#[derive(Clone, Debug)]
pub struct Writing {
    /// What is run, for the journal, such as `release --leaked`.
    pub command: String,
    /// Lock the datastore for the duration.
    pub lock: bool,
    /// The journal; otherwise a new file in `journals`.
    pub journal: Option<PathBuf>,
    /// The folder of all journals, where the environment names one.
    pub journals: Option<PathBuf>,
}

/// Whether and how much to write.
#[derive(Clone, Copy, Debug)]
pub struct Intent<'a> {
    /// `None` to plan only.
    pub writing: Option<&'a Writing>,
    /// Write nothing where the plan makes more changes.
    pub max_changes: Option<usize>,
}

/// What a release or rebuild came to.
pub struct Repaired {
    pub plan: PlanSummary,
    /// The limit, where a plan that was only printed makes more changes.
    pub exceeds: Option<usize>,
    /// `None` where nothing was to be written.
    pub run: Option<Run>,
}

/// A run that came to its end.
pub struct Run {
    pub execution: Execution,
    pub journal: PathBuf,
}

/// Shows a plan, asks, and carries it out; gives only what the plan says where there is nothing to write to. `looked`:
/// what can refuse it was looked at already.
pub(crate) async fn write(
    datastore: &Datastore,
    plan: Plan,
    intent: Intent<'_>,
    looked: bool,
    operator: &impl Operator,
) -> Result<Repaired, Error> {
    let (summary, steps) = PlanSummary::divide(plan);
    let changes = summary.changes.len();
    let Some(writing) = intent.writing.filter(|_| !steps.is_empty() && datastore.is_live()) else {
        let exceeds = intent.max_changes.filter(|limit| changes > *limit);
        return Ok(Repaired { plan: summary, exceeds, run: None });
    };

    operator.show(Proposal::Plan(&summary)).map_err(Error::showing)?;
    let cluster = summary.cluster.guid.clone();
    match looked {
        true => check_limit(changes, intent)?,
        false => {
            may_begin(datastore, &cluster, sources(summary.kind), changes, writing, intent, operator).await?;
        }
    }
    let consent = ask(question(datastore, &summary), operator).await?;

    let run = run(&cluster, writing, operator, async |options| {
        execute(datastore, &cluster, steps, consent, &options).await
    })
    .await?;
    Ok(Repaired { plan: summary, exceeds: None, run: Some(run) })
}

fn question(datastore: &Datastore, plan: &PlanSummary) -> Question {
    Question {
        cluster: plan.cluster.guid.clone(),
        location: datastore.location(),
        addresses: plan.totals.addresses,
        blocks: plan.totals.blocks,
        handles: plan.totals.handles,
        others: plan.totals.others(),
    }
}

/// The kinds of objects that a plan writes.
pub(crate) fn sources(kind: PlanKind) -> &'static [Source] {
    match kind {
        PlanKind::Release | PlanKind::Rebuild | PlanKind::Assign => &RECORDS,
        PlanKind::Split => &[Source::Pools],
        PlanKind::Configure => &[Source::IpamConfig],
    }
}

pub(crate) async fn ask(question: Question, operator: &impl Operator) -> Result<Consent, Error> {
    operator.ask(question).await.map_err(Error::NoConsent)
}

/// Looks at what can refuse a plan with so many changes before it begins: its size, whether the operator can agree, the
/// permissions, the place of the journal, and locks that were left.
pub(crate) async fn may_begin(
    datastore: &Datastore,
    cluster: &str,
    sources: &[Source],
    changes: usize,
    writing: &Writing,
    intent: Intent<'_>,
    operator: &impl Operator,
) -> Result<(), Error> {
    check_limit(changes, intent)?;
    datastore.may_write(sources, writing.lock).await?;
    check_place(&journal(writing, cluster)?)?;
    // While a lock is left no pod starts: it is named even where the operator cannot agree.
    restore_stale_locks(datastore, cluster, writing, operator).await?;
    operator.can_agree().map_err(Error::NoConsent)
}

fn check_limit(changes: usize, intent: Intent<'_>) -> Result<(), Error> {
    match intent.max_changes {
        Some(limit) if changes > limit => Err(Error::TooManyChanges { changes, limit }),
        _ => Ok(()),
    }
}

/// Names a lock of the datastore that a killed run has left, and restores it if the operator agrees, now and to this.
pub(crate) async fn restore_stale_locks(
    datastore: &Datastore,
    cluster: &str,
    writing: &Writing,
    operator: &impl Operator,
) -> Result<(), Error> {
    let mut left = Vec::new();
    let named = writing.journal.as_deref().and_then(Path::parent).map(|folder| {
        // `--journal run.journal` lies in the working directory.
        if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
    });
    for folder in writing.journals.as_deref().into_iter().chain(named) {
        left.extend(stale_locks(folder, cluster)?);
    }

    for lock in left {
        let now = lock.look(datastore).await?;
        if now == LockState::Unlocked {
            continue;
        }
        operator.note(Note::StaleLock(&lock, now));
        if now == LockState::Unclear {
            continue;
        }

        let question = Question {
            cluster: cluster.to_owned(),
            location: datastore.location(),
            addresses: 0,
            blocks: 0,
            handles: 0,
            others: 1,
        };
        let consent = ask(question, operator).await?;
        // Agreed in advance was the command, not this.
        let restored = consent.was_typed() && lock.restore(datastore, consent).await?;
        operator.note(if restored { Note::LockRestored } else { Note::LockStays });
    }
    Ok(())
}

/// True while a run writes.
static WRITING: AtomicBool = AtomicBool::new(false);

/// True while a run writes: then a signal must not end the process. The run sees the signal by itself, brings to
/// an end what it has begun, and restores the lock.
pub fn is_writing() -> bool {
    WRITING.load(Ordering::SeqCst)
}

struct WritingNow;

impl WritingNow {
    fn begin() -> Self {
        WRITING.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for WritingNow {
    fn drop(&mut self) {
        WRITING.store(false, Ordering::SeqCst);
    }
}

/// Runs what writes, with its journal, its progress and its way to be interrupted.
pub(crate) async fn run(
    cluster: &str,
    writing: &Writing,
    operator: &impl Operator,
    work: impl AsyncFnOnce(Options) -> Result<Execution, RepairError>,
) -> Result<Run, Error> {
    let journal = journal(writing, cluster)?;
    let now = WritingNow::begin();
    let interrupt =
        Interrupt::on_signals().map_err(|error| Error::Io { doing: "wait for signals".into(), error })?;

    let meter = operator.start(Activity::Writing);
    let steps = Arc::clone(&meter);
    let opened = Arc::new(Notify::new());
    let open = Arc::clone(&opened);
    let events: EventFn = Arc::new(move |event| match event {
        Event::Opened => open.notify_one(),
        Event::Ended { ended, of } => steps.set(*ended as u64, *of as u64),
        _ => {}
    });
    let (command, lock) = (writing.command.clone(), writing.lock);
    let mut work = pin!(work(Options { command, journal: journal.clone(), lock, events, interrupt }));
    let execution = tokio::select! {
        biased;
        () = opened.notified() => {
            operator.note(Note::Journal(&journal));
            work.await
        }
        execution = &mut work => execution,
    };
    meter.end();
    drop(now);
    Ok(Run { execution: execution?, journal })
}

fn journal(writing: &Writing, cluster: &str) -> Result<PathBuf, Error> {
    match (&writing.journal, &writing.journals) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(folder)) => Ok(default_path(folder, cluster, Timestamp::now())),
        (None, None) => Err(Error::NoJournalDirectory),
    }
}
