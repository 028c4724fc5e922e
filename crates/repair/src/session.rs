//! The executor carries out steps that were planned elsewhere. It ensures that the cluster is the right one, that the
//! journal is written, and that the lock is removed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use calipam_datastore::budget::Phase;
use calipam_datastore::write::{Consent, Stored, Writer};
use calipam_datastore::{Datastore, clock};
use calipam_files::regular;
use calipam_model::config::ClusterInformation;
use calipam_model::edit::{Edit, Step};
use calipam_model::key::Key;
use tokio::sync::Semaphore;

use crate::engine::{Context, Event, EventFn, Execution, Group, REQUESTS, run};
use crate::error::{RepairError, Result};
use crate::interrupt::Interrupt;
use crate::journal::{Disk, FORMAT, Header, Journal, JournalError, LockMark, resolve_killed};
use crate::lock;
use crate::step::groups;

/// Options of a run.
#[derive(Clone)]
pub struct Options {
    /// The command to record in the journal, such as `release --leaked`.
    pub command: String,
    /// The path of the journal. Unless `journal_so_far` is set, no file may exist there.
    pub journal: PathBuf,
    /// The journal of earlier writes of the same run, which is continued instead of creating a new one.
    pub journal_so_far: Option<Arc<Journal>>,
    /// True if the run will write more after this call. The journal is then left open and returned in
    /// [`Execution::journal`], unless the run fails or is interrupted.
    pub keep_journal_open: bool,
    /// True to lock the datastore during the run.
    pub lock: bool,
    pub events: EventFn,
    pub interrupt: Interrupt,
    /// The disk on which a test writes the journal.
    pub disk: Option<Arc<dyn Disk>>,
}

impl Options {
    /// Creates options without a lock, progress or interrupt.
    pub fn new(command: &str, journal: impl Into<PathBuf>) -> Self {
        Self {
            command: command.to_owned(),
            journal: journal.into(),
            journal_so_far: None,
            keep_journal_open: false,
            lock: false,
            events: Arc::new(|_| {}),
            interrupt: Interrupt::default(),
            disk: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Options");
        out.field("command", &self.command)
            .field("journal", &self.journal)
            .field("lock", &self.lock);
        out.finish_non_exhaustive()
    }
}

/// A description of the plan or journal behind a run, for the checks before the run.
pub(crate) struct Purpose {
    /// `plan` or `journal`.
    pub what: &'static str,
    /// The cluster that the plan or journal was made for.
    pub cluster: String,
    /// The number of objects that the run changes.
    pub objects: usize,
}

/// Carries out steps that were planned for `cluster`, many at the same time. Each step reads its objects again, checks
/// its guards, and is written by compare-and-swap. A step whose guards fail is abandoned and reported, without
/// affecting the other steps. Steps that change the same object keep their order.
///
/// # Errors
/// If the cluster is another one, consent does not cover the steps, the journal cannot be created, or the lock cannot
/// be taken. In these cases, no step is carried out. Later errors are in the [`Execution`].
pub async fn execute(
    datastore: &Datastore,
    cluster: &str,
    steps: Vec<Step>,
    consent: Consent,
    options: &Options,
) -> Result<Execution> {
    let keys: BTreeSet<Key> = steps.iter().flat_map(Step::edits).map(Edit::key).collect();
    let purpose = Purpose {
        what: "plan",
        cluster: cluster.to_owned(),
        objects: keys.len(),
    };
    let writer = writer(datastore, consent, &purpose).await?;
    let groups = groups(steps, writer.limits());
    carry_out(datastore, writer, cluster, options, groups).await
}

/// Checks the consent and the cluster, and returns a writer.
pub(crate) async fn writer(datastore: &Datastore, consent: Consent, purpose: &Purpose) -> Result<Writer> {
    check_consent(&consent, purpose)?;
    let writer = datastore.writer(consent)?;
    let stored = writer.read(&[lock::key()]).await?.pop().flatten();
    check_guid(stored.as_ref(), purpose.what, &purpose.cluster)?;
    Ok(writer)
}

/// Carries out groups. Nothing is written before the journal is on disk.
pub(crate) async fn carry_out(
    datastore: &Datastore,
    writer: Writer,
    cluster: &str,
    options: &Options,
    groups: Vec<Group>,
) -> Result<Execution> {
    // The outcomes of a killed run can be determined only until this run writes to the same objects.
    let passed_over = resolve_killed(datastore, regular::folder_of(&options.journal), cluster)
        .await?
        .passed_over;
    let header = Header {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").into(),
        started_at: clock::now().to_string(),
        command: options.command.clone(),
        cluster: cluster.to_owned(),
        datastore: writer.kind(),
        location: datastore.location(),
    };
    let journal = match (&options.journal_so_far, &options.disk) {
        (Some(journal), _) => Arc::clone(journal),
        (None, Some(disk)) => Arc::new(Journal::create_on(disk, &options.journal, &header)?),
        (None, None) => Arc::new(Journal::create(&options.journal, &header)?),
    };
    // The number of references to the journal, apart from those that writing tasks will hold.
    let holders = Arc::strong_count(&journal);
    datastore.enter(Phase::Writing);
    (options.events)(&Event::Opened);
    let context = Context {
        writer: writer.clone(),
        journal: Arc::clone(&journal),
        events: Arc::clone(&options.events),
        interrupt: options.interrupt.clone(),
        requests: Arc::new(Semaphore::new(REQUESTS)),
    };

    let mut execution = if options.lock {
        run_locked(&writer, &journal, &lock::name_of(&header), context, groups).await?
    } else {
        run(context, groups).await
    };
    execution.passed_over = passed_over;
    execution.open_intents = journal.open_intents();
    if options.keep_journal_open && execution.failure.is_none() && !execution.interrupted {
        execution.journal = Some(journal);
        return Ok(execution);
    }
    // A run that failed while it wrote, or whose tasks are still writing, did not end normally.
    if Arc::strong_count(&journal) == holders
        && (execution.failure.is_none() || !execution.may_have_written())
        && let Err(error) = end(&journal, execution.was_stopped()).await
    {
        execution.failure.get_or_insert(error.into());
    }
    Ok(execution)
}

/// Writes the end of a run, and before it that a signal stopped the run.
async fn end(journal: &Journal, was_stopped: bool) -> Result<(), JournalError> {
    if was_stopped {
        journal.mark_interrupted()?;
    }
    journal.end().await
}

/// Carries out groups under the lock. Once the lock is taken, always tries to restore it before returning.
async fn run_locked(
    writer: &Writer,
    journal: &Arc<Journal>,
    name: &str,
    context: Context,
    groups: Vec<Group>,
) -> Result<Execution> {
    let held_lock = lock::take(writer, journal, name).await?;
    let taken = LockMark::Taken(held_lock.revision.to_string());
    let interrupt = context.interrupt.clone();
    let result = match journal.mark_lock(taken).await {
        // Runs in a task, so that the lock is restored even after a panic.
        Ok(()) => tokio::spawn(run(context, groups)).await,
        Err(error) => Ok(Execution {
            steps: groups.len(),
            not_started: groups.len(),
            failure: Some(error.into()),
            ..Execution::default()
        }),
    };

    let restored = lock::restore(writer, &held_lock, &interrupt).await;
    let mut execution = match result {
        Ok(execution) => execution,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    if let Err(error) = restored {
        execution.lock_left = Some(error);
    } else if let Err(error) = journal.mark_lock(LockMark::Restored).await {
        execution.failure.get_or_insert(error.into());
    }
    Ok(execution)
}

/// Refuses consent for another cluster, or for fewer objects than the run changes.
fn check_consent(consent: &Consent, purpose: &Purpose) -> Result<()> {
    let question = consent.question();
    if question.cluster != purpose.cluster {
        return Err(RepairError::OtherCluster {
            what: purpose.what,
            planned: purpose.cluster.clone(),
            found: question.cluster.clone(),
        });
    }

    let agreed = question.objects();
    if purpose.objects > agreed {
        return Err(RepairError::NotAgreed {
            agreed,
            planned: purpose.objects,
        });
    }
    Ok(())
}

/// Refuses the ClusterInformation of a cluster other than the one with the GUID `planned`, for which the `plan` or
/// `journal` was made. Without a ClusterInformation that can be decoded, a cluster has an empty GUID.
pub(crate) fn check_guid(
    stored: Option<&Stored>,
    plan_or_journal: &'static str,
    planned: &str,
) -> Result<()> {
    let mut found = String::new();
    if let Some(stored) = stored
        && let Ok(information) = ClusterInformation::parse(&stored.raw)
    {
        found = information.guid;
    }
    if found == planned {
        return Ok(());
    }
    Err(RepairError::OtherCluster {
        what: plan_or_journal,
        planned: planned.to_owned(),
        found,
    })
}
