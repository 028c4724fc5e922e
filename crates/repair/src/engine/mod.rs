//! The engine: carries out tasks that each read objects again, decide, and write by compare-and-swap.
//!
//! It knows neither plans nor journals that are undone; those make the tasks.

mod order;
mod single;

use std::collections::HashMap;
use std::sync::Arc;

use calipam_datastore::write::{Batch, Stored, Writer};
use calipam_model::key::Key;
use tokio::task::JoinSet;

use self::order::Order;
use self::single::run_group;
use crate::error::RepairError;
use crate::interrupt::Interrupt;
use crate::journal::Journal;

/// Tasks that are under way at the same time.
const IN_FLIGHT: usize = 256;

/// How often a swap that was lost is tried again while the guards hold: as often as Calico does.
pub(crate) const RETRIES: usize = 100;

/// Objects that were just read; `None` for those that do not exist.
pub(crate) type Objects = HashMap<Key, Option<Stored>>;

/// What a task wants to do with the objects as they are.
#[derive(Debug)]
pub(crate) enum Decision {
    /// To write this.
    Write(Batch),
    /// Nothing: they are as they should be.
    Already,
    /// Nothing: a guard does not hold.
    Conflict(String),
}

/// One batch of a step.
pub(crate) trait Task: Send + Sync {
    /// Everything that it needs to see: what it changes, what guards and evidence are about.
    fn reads(&self) -> Vec<Key>;
    /// What it may change.
    fn writes(&self) -> Vec<Key>;
    /// What to do with the objects as they are.
    fn decide(&self, objects: &Objects) -> Decision;
}

/// Tasks of one step that run one after the other. Where one meets a conflict, the rest are abandoned.
pub(crate) struct Group {
    /// Which step of the plan it is.
    pub step: usize,
    /// Why it is written, for people.
    pub reason: String,
    /// The tasks.
    pub tasks: Vec<Arc<dyn Task>>,
}

/// What happens during a run, for progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An intent is on disk; its write begins now.
    Intended {
        /// The step of the plan.
        step: usize,
    },
    /// A batch was written; its outcome is not yet in the journal.
    Written {
        /// The step of the plan.
        step: usize,
    },
    /// Something had changed between reading and writing; it is tried again.
    Lost {
        /// The step of the plan.
        step: usize,
    },
    /// A step has come to its end, one way or another.
    Ended {
        /// Steps that have ended so far.
        ended: usize,
        /// Steps of the run.
        of: usize,
    },
}

/// Takes note of events.
pub type EventFn = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a run needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub writer: Writer,
    pub journal: Arc<Journal>,
    pub events: EventFn,
    pub interrupt: Interrupt,
}

/// A step that was abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The step of the plan.
    pub step: usize,
    /// What the step was to repair.
    pub what: String,
    /// What had changed.
    pub reason: String,
}

/// How a group ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Something was written.
    Written,
    /// Everything was as it should be.
    Already,
    /// A guard did not hold.
    Conflict(String),
    /// It was asked to stop before anything was written.
    Interrupted,
    /// The journal or the datastore failed.
    Broken(RepairError),
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Execution {
    /// Steps of the run.
    pub steps: usize,
    /// Steps that wrote something.
    pub written: usize,
    /// Steps that found everything as they were to leave it.
    pub already: usize,
    /// Steps that were abandoned because something had changed.
    pub conflicts: Vec<Conflict>,
    /// Steps that were not begun: the run was interrupted or broke off.
    pub not_begun: usize,
    /// Why the run broke off.
    pub broken_off: Option<RepairError>,
    /// The run was asked to stop.
    pub interrupted: bool,
}

impl Execution {
    /// True where every step is done: exit code 0.
    pub fn is_complete(&self) -> bool {
        self.written + self.already == self.steps && self.broken_off.is_none()
    }
}

/// Carries out groups, many at the same time. Groups that touch the same object keep their order.
pub(crate) async fn run(context: &Context, groups: Vec<Group>) -> Execution {
    let mut execution = Execution { steps: groups.len(), ..Execution::default() };
    let mut order = Order::new(&groups);
    let mut groups: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    let mut running = JoinSet::new();
    loop {
        let stopped = execution.broken_off.is_some() || context.interrupt.is_set();
        while !stopped && running.len() < IN_FLIGHT {
            let Some(index) = order.next() else { break };
            let Some(group) = groups[index].take() else { continue };
            let context = context.clone();
            running.spawn(async move {
                let ended = run_group(&context, &group).await;
                (index, group, ended)
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, group, ended))) => {
                order.ended(index);
                execution.note(&group, ended);
                let ended = execution.written + execution.already + execution.conflicts.len();
                (context.events)(&Event::Ended { ended, of: execution.steps });
            }
            Some(Err(lost)) => std::panic::resume_unwind(lost.into_panic()),
        }
    }
    execution.not_begun += groups.iter().flatten().count();
    execution.interrupted = context.interrupt.is_set();
    execution
}

impl Execution {
    fn note(&mut self, group: &Group, ended: Ended) {
        match ended {
            Ended::Written => self.written += 1,
            Ended::Already => self.already += 1,
            Ended::Conflict(reason) => {
                self.conflicts.push(Conflict { step: group.step, what: group.reason.clone(), reason });
            }
            Ended::Interrupted => self.not_begun += 1,
            Ended::Broken(error) => {
                self.not_begun += 1;
                self.broken_off.get_or_insert(error);
            }
        }
    }
}
