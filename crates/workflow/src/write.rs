//! Writing a plan: preflight, consent, journal, and execution.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_datastore::RECORDS;
use calipam_datastore::budget::Phase;
use calipam_datastore::write::{Consent, ObjectCounts, ProposedChange};
use calipam_model::edit::Precondition;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;
use calipam_plan::{Plan, PlanKind, PlanSummary, Refused};
use calipam_repair::{Event, EventFn, Execution, Interrupt, Options, RepairError, execute};
use serde::{Serialize, Serializer};
use tokio::sync::Notify;

use crate::failure::{Failure, Result};
use crate::operator::{self, Activity, Proposal};
use crate::preflight::Passed;
use crate::run::{Run, Writing};

/// The result of writing a plan.
pub struct Repaired {
    pub plan: PlanSummary,
    /// The maximum number of changes, if a plan that was only printed exceeds it.
    pub exceeds: Option<usize>,
    /// The reason why a plan that was only printed would not be carried out.
    pub refusal: Option<Refused>,
    /// `None` if the plan was only shown, or has no steps.
    pub run: Option<Executed>,
    /// True if a lock that a killed run left behind is still in place.
    pub stays_locked: bool,
}

impl Repaired {
    /// Combines the results of the two parts of a run; `self` is the second.
    pub(crate) fn after(self, first: Self) -> Self {
        let run = match (first.run, self.run) {
            (Some(first), Some(second)) => {
                let execution = second.execution.after(first.execution);
                Some(Executed { execution, ..second })
            }
            (first, second) => second.or(first),
        };
        Self {
            plan: self.plan.after(first.plan),
            run,
            ..self
        }
    }
}

/// An execution and its journal.
#[derive(Debug, Serialize)]
pub struct Executed {
    #[serde(flatten)]
    pub execution: Execution,
    #[serde(serialize_with = "shown")]
    pub journal: PathBuf,
}

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The kinds of objects that a plan writes.
pub(crate) fn sources(kind: PlanKind) -> &'static [Source] {
    match kind {
        PlanKind::Release | PlanKind::Rebuild | PlanKind::Assign => &RECORDS,
        PlanKind::Split => &[Source::Pools],
        PlanKind::Migrate => &[Source::Blocks, Source::Handles, Source::Affinities, Source::Pools],
        PlanKind::Configure => &[Source::IpamConfig],
    }
}

impl Run<'_> {
    /// Shows a plan, asks the operator, and executes the plan. If the plan is empty or the run does not write, only
    /// returns the plan.
    pub(crate) async fn write(&self, plan: Plan, passed: Option<Passed>) -> Result<Repaired> {
        let check_nothing = async |_: &Consent| Ok(Vec::new());
        self.write_if(plan, passed, check_nothing).await
    }

    /// Writes the first part of a run. On success, also returns the run that writes the second part.
    pub(crate) async fn write_first(&self, plan: Plan) -> Result<(Repaired, Option<Self>)> {
        let first = Self {
            keep_journal_open: true,
            ..Run::new(self.access, self.intent)
        };
        let passed = None;
        let mut repaired = first.write(plan, passed).await?;

        let Some(executed) = &mut repaired.run else {
            return Ok((repaired, None));
        };
        let Some(journal) = executed.execution.journal.take() else {
            return Ok((repaired, None));
        };
        let rest = Self {
            journal_so_far: Some(journal),
            keep_journal_open: false,
            ..first
        };
        Ok((repaired, Some(rest)))
    }

    /// Writes a plan if `check_again` succeeds just before the write, and the preconditions that it returns are met.
    pub(crate) async fn write_if(
        &self,
        plan: Plan,
        passed: Option<Passed>,
        check_again: impl AsyncFnOnce(&Consent) -> Result<Vec<(Key, Precondition)>>,
    ) -> Result<Repaired> {
        let (summary, mut steps) = plan.divide();
        let changes = summary.changes.len();
        let cluster = summary.cluster.guid.clone();
        let writing = match self.writing() {
            Some(writing) if !steps.is_empty() => writing,
            _ => return self.return_unwritten(summary, passed).await,
        };

        let shown = passed.as_ref().and_then(|passed| passed.shown.as_ref());
        match shown {
            Some(shown) if shown.has_same_content_as(&summary) => {}
            Some(_) => {
                self.access
                    .operator
                    .info("the plan has changed since the first check".into());
                self.access.operator.show(Proposal::Plan(&summary))?;
            }
            None => self.access.operator.show(Proposal::Plan(&summary))?,
        }
        let stays_locked = match passed {
            // The preflight checked the expected plan, which can have fewer changes.
            Some(passed) => {
                self.check_limit(changes)?;
                passed.stays_locked
            }
            None => {
                let sources = sources(summary.kind);
                let passed = self.preflight(writing, &cluster, sources, changes).await?;
                self.tell_of_unfinished(&cluster);
                passed.stays_locked
            }
        };

        let counts = ObjectCounts {
            addresses: summary.totals.addresses,
            blocks: summary.totals.blocks,
            handles: summary.totals.handles,
            others: summary.totals.others(),
        };
        let consent = self.ask(&cluster, ProposedChange::Objects(counts)).await?;
        let preconditions = check_again(&consent).await?;
        if !preconditions.is_empty() {
            for step in steps.iter_mut() {
                step.whole().evidence.extend(preconditions.iter().cloned());
            }
        }

        let work = async |options| execute(self.access.datastore, &cluster, steps, consent, &options).await;
        let executed = self.execute(writing, &cluster, work).await?;
        Ok(Repaired {
            plan: summary,
            exceeds: None,
            refusal: None,
            run: Some(executed),
            stays_locked,
        })
    }

    /// Returns a plan that has no steps, or that the run only prints. A run that could write still names locks and
    /// unfinished runs, unless its preflight has done so.
    async fn return_unwritten(&self, summary: PlanSummary, passed: Option<Passed>) -> Result<Repaired> {
        let cluster = &summary.cluster.guid;
        let stays_locked = match passed {
            Some(passed) => passed.stays_locked,
            None => {
                let stays_locked = self.writing().is_some() && self.restore_stale_locks(cluster).await?;
                self.tell_of_unfinished(cluster);
                stays_locked
            }
        };

        let changes = summary.changes.len();
        let refusal = if changes > 0 || !summary.skipped.is_empty() {
            self.refusal.clone()
        } else {
            None
        };
        Ok(Repaired {
            plan: summary,
            exceeds: self.exceeds(changes),
            refusal,
            run: None,
            stays_locked,
        })
    }

    /// Executes writes, with a journal, progress and signal handling.
    pub(crate) async fn execute(
        &self,
        writing: &Writing,
        cluster: &str,
        work: impl AsyncFnOnce(Options) -> Result<Execution, RepairError>,
    ) -> Result<Executed> {
        let journal = match &self.journal_so_far {
            Some(journal) => journal.path().to_owned(),
            None => self.intent.journal_of(writing, cluster)?,
        };
        let guard = WritingNow::begin();
        let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
        let stop = interrupt.clone();
        let meter = self.access.operator.start(Activity::Writing);
        let meter_of_steps = Arc::clone(&meter);
        let journal_is_open = Arc::new(Notify::new());
        let notify_open = Arc::clone(&journal_is_open);
        let events: EventFn = Arc::new(move |event| match event {
            Event::Opened => notify_open.notify_one(),
            Event::Ended { ended, of } => meter_of_steps.set(*ended as u64, *of as u64),
            _ => {}
        });

        let options = Options {
            journal_so_far: self.journal_so_far.clone(),
            keep_journal_open: self.keep_journal_open,
            lock: writing.lock,
            events,
            interrupt,
            disk: writing.disk.clone(),
            ..Options::new(&writing.command, journal.clone())
        };
        let mut work = pin!(work(options));
        let operator = self.access.operator;
        let mut is_announced = self.journal_so_far.is_some();
        let mut is_stopping = false;
        let execution = loop {
            tokio::select! {
                biased;
                () = journal_is_open.notified(), if !is_announced => {
                    is_announced = true;
                    operator.tell(operator::Event::Journal(&journal));
                }
                () = stop.wait(), if !is_stopping => {
                    is_stopping = true;
                    // The run no longer waits for a server that does not answer.
                    self.access.datastore.enter(Phase::Interrupted);
                    operator.tell(operator::Event::Stopping);
                }
                execution = &mut work => break execution,
            }
        };
        meter.end();
        drop(guard);
        Ok(Executed {
            execution: execution?,
            journal,
        })
    }
}

static WRITING: AtomicBool = AtomicBool::new(false);

/// True while a run writes. A signal must not end the process during that time: the run handles the signal, finishes
/// the writes that it has begun, and removes its lock.
pub fn is_writing() -> bool {
    WRITING.load(Ordering::SeqCst)
}

pub(crate) struct WritingNow;

impl WritingNow {
    pub(crate) fn begin() -> Self {
        WRITING.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for WritingNow {
    fn drop(&mut self) {
        WRITING.store(false, Ordering::SeqCst);
    }
}
