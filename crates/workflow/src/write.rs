//! Writing a plan: preflight, consent, journal, and execution.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_datastore::RECORDS;
use calipam_datastore::budget::Phase;
use calipam_datastore::write::Question;
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
        self.write_if(plan, passed, async |_: bool| Ok(Vec::new())).await
    }

    /// Writes the first part of a run. On success, also returns the run that writes the second part.
    pub(crate) async fn write_first(&self, plan: Plan) -> Result<(Repaired, Option<Self>)> {
        let first = Self {
            keep_journal_open: true,
            ..Run::new(self.access, self.intent)
        };
        let mut repaired = first.write(plan, None).await?;
        let begun = repaired
            .run
            .as_mut()
            .and_then(|executed| executed.execution.journal.take());
        Ok((
            repaired,
            begun.map(|begun| Self {
                begun: Some(begun),
                keep_journal_open: false,
                ..first
            }),
        ))
    }

    /// Writes a plan if `holds` succeeds just before the write, and the preconditions that `holds` returns are met. The
    /// argument of `holds` is true if the operator had to answer first.
    pub(crate) async fn write_if(
        &self,
        plan: Plan,
        passed: Option<Passed>,
        holds: impl AsyncFnOnce(bool) -> Result<Vec<(Key, Precondition)>>,
    ) -> Result<Repaired> {
        let (summary, mut steps) = plan.divide();
        let changes = summary.changes.len();
        let cluster = summary.cluster.guid.clone();
        let Some(writing) = self.writing().filter(|_| !steps.is_empty()) else {
            let stays_locked = match (passed, self.writing()) {
                (Some(passed), _) => passed.stays_locked,
                (None, writing) => {
                    let stays_locked = writing.is_some() && self.restore_stale_locks(&cluster).await?;
                    self.tell_of_unfinished(&cluster);
                    stays_locked
                }
            };
            let asks_for_something = changes > 0 || !summary.skipped.is_empty();
            let refusal = self.refusal.clone().filter(|_| asks_for_something);
            return Ok(Repaired {
                plan: summary,
                exceeds: self.exceeds(changes),
                refusal,
                run: None,
                stays_locked,
            });
        };

        let shown = passed.as_ref().and_then(|passed| passed.shown.as_ref());
        if shown.is_none_or(|shown| !shown.has_same_content_as(&summary)) {
            if shown.is_some() {
                self.access
                    .operator
                    .info("the plan has changed since the first check".into());
            }
            self.access.operator.show(Proposal::Plan(&summary))?;
        }
        let Passed { stays_locked, .. } = match passed {
            // The preflight checked the expected plan, which can have fewer changes.
            Some(passed) => {
                self.check_limit(changes)?;
                passed
            }
            None => {
                let sources = sources(summary.kind);
                let passed = self.preflight(writing, &cluster, sources, changes).await?;
                self.tell_of_unfinished(&cluster);
                passed
            }
        };
        let consent = self.ask(self.question(&summary)).await?;
        let preconditions = holds(consent.was_typed()).await?;
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

    /// The question whether to carry out the plan.
    fn question(&self, plan: &PlanSummary) -> Question {
        Question {
            cluster: plan.cluster.guid.clone(),
            location: self.access.datastore.location(),
            addresses: plan.totals.addresses,
            blocks: plan.totals.blocks,
            handles: plan.totals.handles,
            others: plan.totals.others(),
            ..Question::default()
        }
    }

    /// Executes writes, with a journal, progress and signal handling.
    pub(crate) async fn execute(
        &self,
        writing: &Writing,
        cluster: &str,
        work: impl AsyncFnOnce(Options) -> Result<Execution, RepairError>,
    ) -> Result<Executed> {
        let journal = match &self.begun {
            Some(begun) => begun.path().to_owned(),
            None => self.intent.journal_of(writing, cluster)?,
        };
        let now = WritingNow::begin();
        let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
        let stop = interrupt.clone();
        let meter = self.access.operator.start(Activity::Writing);
        let steps = Arc::clone(&meter);
        let opened = Arc::new(Notify::new());
        let open = Arc::clone(&opened);
        let events: EventFn = Arc::new(move |event| match event {
            Event::Opened => open.notify_one(),
            Event::Ended { ended, of } => steps.set(*ended as u64, *of as u64),
            _ => {}
        });

        let command = writing.command.clone();
        let lock = writing.lock;
        let disk = writing.disk.clone();
        let begun = self.begun.clone();
        let keep_journal_open = self.keep_journal_open;
        let mut is_announced = begun.is_some();
        let mut is_stopping = false;
        let options = Options {
            begun,
            keep_journal_open,
            lock,
            events,
            interrupt,
            disk,
            ..Options::new(&command, journal.clone())
        };
        let mut work = pin!(work(options));
        let operator = self.access.operator;
        let execution = loop {
            tokio::select! {
                biased;
                () = opened.notified(), if !is_announced => {
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
        drop(now);
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
