//! The engine carries out tasks, which read objects again, decide, and write by compare-and-swap. It does not know
//! whether the tasks come from a plan or an undo.

mod group;
mod omitted;
mod order;
mod write;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use calipam_datastore::clock;
use calipam_datastore::write::{Batch, Change, Stored, Swap, Writer};
use calipam_model::block::Cooling;
use calipam_model::display::text_or_null;
use calipam_model::edit::Unit;
use calipam_model::key::Key;
use calipam_model::words::joined;
use jiff::SignedDuration;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::group::run_group;
use self::omitted::KeptHandles;
pub(crate) use self::omitted::{Omission, Omitted};
use self::order::Order;
use crate::error::{RepairError, Result};
use crate::interrupt::Interrupt;
use crate::journal::Journal;

/// The maximum number of concurrent groups, enough for many to share an `fsync` of the journal. With four times as many
/// groups, the blocks no longer fit into the processor's caches, and each write takes a fifth longer.
const IN_FLIGHT: usize = 256;

/// The maximum number of concurrent requests to the datastore.
pub(crate) const REQUESTS: usize = 256;

/// The number of attempts at a swap while the guards hold, as many as Calico makes.
pub(crate) const RETRIES: usize = 100;

/// Objects that were just read; `None` for objects that do not exist. Objects that were not read are missing here: the
/// write itself compares them.
pub(crate) type Objects = HashMap<Key, Option<Stored>>;

/// The decision of a task, based on the objects that were read.
#[derive(Debug)]
pub(crate) enum Decision {
    Write(Batch),
    /// Writes nothing, because the objects already have the wanted values.
    Already,
    /// Writes nothing. The step is abandoned for this reason.
    Conflict(String),
    /// Omits these parts, none of which is omitted yet. [`Task::decide`] is then called again.
    Omit(Vec<Omission>),
}

/// Returns the change that sets an object to this value, or deletes the object if the value is `None`. Returns `None`
/// if there is nothing to delete.
pub(crate) fn change(key: Key, value: Option<Bytes>, now: Option<&Stored>) -> Option<Change> {
    match (value, now) {
        (Some(value), Some(now)) => Some(Change::update(key, now.revision.clone(), value).of(now)),
        (Some(value), None) => Some(Change::create(key, value)),
        (None, Some(now)) => Some(Change::delete(key, now.revision.clone()).of(now)),
        (None, None) => None,
    }
}

/// One write of a step.
pub(crate) trait Task: Send + Sync {
    /// Returns all objects that the task needs: those of its changes, guards and evidence.
    fn reads(&self) -> Vec<Key>;
    /// Returns the objects to read before the first attempt. The write itself compares the other objects, which are
    /// read only after a conflict, to find out what has changed.
    fn reads_first(&self) -> Vec<Key> {
        self.reads()
    }
    /// Returns objects that were read for the plan, and that the first attempt does not read: its write compares each
    /// of them with the version that was read.
    fn known(&self) -> Objects {
        Objects::new()
    }
    /// Returns objects of later tasks of the group that must be read before this task writes.
    fn reads_along(&self) -> Vec<Key> {
        Vec::new()
    }
    /// Returns the objects that the task may change.
    fn writes(&self) -> Vec<Key>;
    /// Decides what to write, without the omitted parts.
    fn decide(&self, objects: &Objects, omitted: &Omitted) -> Decision;
}

/// Tasks of one step that run one after the other. After a conflict, the remaining tasks are abandoned.
pub(crate) struct Group {
    /// The index of the group's step in the plan.
    pub step: usize,
    /// The reason for the step, for human readers.
    pub reason: String,
    /// The number of addresses that cool down after the step, and the length of the cooldown in seconds.
    pub cooling: Option<(usize, i64)>,
    pub tasks: Vec<Arc<dyn Task>>,
}

/// An event of a run, for progress messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The journal is on disk; nothing has been written yet.
    Opened,
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
    /// An object has changed between reading and writing; the write is tried again.
    Lost {
        /// The step of the plan.
        step: usize,
    },
    /// A step has ended, whatever its result.
    Ended {
        /// The number of steps that have ended.
        ended: usize,
        /// The number of steps in the run.
        of: usize,
    },
}

/// A callback for events.
pub type EventFn = Arc<dyn Fn(&Event) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Context {
    pub writer: Writer,
    pub journal: Arc<Journal>,
    pub events: EventFn,
    pub interrupt: Interrupt,
    /// Limits the requests to the datastore.
    pub requests: Arc<Semaphore>,
}

impl Context {
    async fn read(&self, keys: &[Key]) -> Result<Objects> {
        if keys.is_empty() {
            return Ok(Objects::new());
        }
        let stored = self.stored(keys).await?;
        Ok(keys.iter().cloned().zip(stored).collect())
    }

    /// Reads the objects under these keys, in their order.
    async fn stored(&self, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
        let _turn = self.requests.acquire().await;
        Ok(self.writer.read(keys).await?)
    }

    /// Sends a batch once.
    async fn commit(&self, batch: &Batch) -> calipam_datastore::Result<Swap> {
        let _turn = self.requests.acquire().await;
        self.writer.commit(batch).await
    }
}

/// A step that was abandoned or written only in part, or addresses of a step that stay as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The step of the plan.
    #[serde(skip)]
    pub step: usize,
    /// The change that was planned.
    pub what: String,
    /// The reason why the step or addresses were abandoned.
    pub reason: String,
    /// The addresses of omitted parts, which stay as they were. Empty if the conflict is about the entire step.
    #[serde(skip)]
    pub addresses: Vec<IpAddr>,
}

/// The result of a group.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Something was written.
    Written,
    /// Only a part was written.
    Partly(String),
    /// Every object already had the wanted value.
    Already,
    /// The step was abandoned for this reason, and none of its writes is left.
    Conflict(String),
    /// A stop was requested before anything was written.
    Interrupted,
    /// The journal or the datastore failed.
    Broken {
        error: RepairError,
        /// True if a write of the step is left.
        is_partly_written: bool,
    },
}

/// The result of a run.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// The number of steps in the run.
    pub steps: usize,
    /// The number of steps that wrote something, possibly without some of their addresses.
    pub written: usize,
    /// The number of steps that had nothing to change.
    #[serde(rename = "alreadyDone")]
    pub already: usize,
    /// The number of steps that were abandoned without a write.
    pub aborted: usize,
    /// The number of addresses that were left out of their steps because something had changed. They stay as they were.
    pub kept_addresses: usize,
    /// The number of steps that wrote nothing, because the run was interrupted or a failure ended it.
    pub not_started: usize,
    /// The number of steps of which only a part was written, because of a conflict or a failure.
    pub partly: usize,
    /// Steps that a conflict stopped before or during their writes, and addresses that were left out of steps.
    pub conflicts: Vec<Conflict>,
    /// True if a stop was requested.
    pub interrupted: bool,
    /// The released addresses that are cooling down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooling: Option<Cooling>,
    /// The failure that ended the run.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    pub failure: Option<RepairError>,
    /// The reason why the lock could not be restored. If set, the datastore is still locked.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    pub lock_left: Option<RepairError>,
    /// The number of intents in the journal without an outcome. They may have been written.
    #[serde(skip)]
    pub open_intents: u64,
    /// The journal, if the run will write more to it.
    #[serde(skip)]
    pub journal: Option<Arc<Journal>>,
    /// Journals of killed runs whose open intents could not be resolved, with the reasons.
    #[serde(skip)]
    pub passed_over: Vec<(PathBuf, String)>,
}

impl Execution {
    /// Combines the results of a run that wrote in two parts, of which `self` is the second.
    #[must_use]
    pub fn after(self, first: Self) -> Self {
        Self {
            steps: first.steps + self.steps,
            written: first.written + self.written,
            already: first.already + self.already,
            partly: first.partly + self.partly,
            aborted: first.aborted + self.aborted,
            kept_addresses: first.kept_addresses + self.kept_addresses,
            cooling: first.cooling.into_iter().chain(self.cooling).reduce(Cooling::and),
            conflicts: first.conflicts.into_iter().chain(self.conflicts).collect(),
            not_started: first.not_started + self.not_started,
            passed_over: first.passed_over.into_iter().chain(self.passed_over).collect(),
            ..self
        }
    }

    pub fn may_have_written(&self) -> bool {
        self.written + self.partly > 0 || self.open_intents > 0
    }

    /// Returns true if a signal stopped the run before its last step.
    pub fn was_stopped(&self) -> bool {
        self.interrupted && self.not_started > 0
    }

    /// Returns true if every step is done, which gives exit code 0.
    pub fn is_complete(&self) -> bool {
        self.written + self.already == self.steps
            && self.conflicts.is_empty()
            && self.failure.is_none()
            && self.lock_left.is_none()
    }
}

/// Carries out groups, many at the same time. Two groups keep their order if one writes an object that the other uses.
pub(crate) async fn run(context: Context, groups: Vec<Group>) -> Execution {
    let mut execution = Execution {
        steps: groups.len(),
        ..Execution::default()
    };
    let mut order = Order::new(&groups);
    let mut waiting: Vec<Option<Group>> = groups.into_iter().map(Some).collect();
    let mut running = JoinSet::new();
    let kept = KeptHandles::default();
    let mut number_of_ended = 0;

    loop {
        let stopped = execution.failure.is_some() || context.interrupt.is_set();
        while !stopped && running.len() < IN_FLIGHT {
            let Some(index) = order.next() else { break };
            let Some(group) = waiting[index].take() else {
                continue;
            };
            let context = context.clone();
            let mut omitted = Omitted {
                parts: Vec::new(),
                kept: Arc::clone(&kept),
            };
            running.spawn(async move {
                let ended = run_group(&context, &group, &mut omitted).await;
                (index, group, ended, omitted.parts)
            });
        }

        match running.join_next().await {
            None => break,
            Some(Ok((index, group, ended, omissions))) => {
                order.end(index);
                let not_started_before = execution.not_started;
                execution.note(&group, ended, omissions);
                // A step that a stop or a failure kept from writing does not count as progress.
                if execution.not_started == not_started_before {
                    number_of_ended += 1;
                }
                (context.events)(&Event::Ended {
                    ended: number_of_ended,
                    of: execution.steps,
                });
            }
            Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
        }
    }

    execution.not_started += waiting.iter().flatten().count();
    execution.interrupted = context.interrupt.is_set();
    execution
}

impl Execution {
    /// Counts a step that has ended by how it ended, and adds its conflicts and omissions. Of several failures, the
    /// first one stays.
    fn note(&mut self, group: &Group, ended: Ended, omissions: Vec<Omission>) {
        match ended {
            Ended::Written => {
                self.written += 1;
                // Adds the released addresses of this step to those of earlier steps.
                let cooling_of_step = cooling_of(group, &omissions);
                self.cooling = self
                    .cooling
                    .into_iter()
                    .chain(cooling_of_step)
                    .reduce(Cooling::and);
            }
            Ended::Partly(reason) => {
                self.partly += 1;
                let reason = format!("only part of it was written: {reason}");
                self.conflicts.push(conflict_of_step(group, reason));
            }
            Ended::Already if omissions.is_empty() => self.already += 1,
            // Everything that needed a write was omitted.
            Ended::Already => self.aborted += 1,
            Ended::Conflict(reason) => {
                self.aborted += 1;
                self.conflicts.push(conflict_of_step(group, reason));
            }
            Ended::Interrupted => self.not_started += 1,
            Ended::Broken {
                error,
                is_partly_written,
            } => {
                if is_partly_written {
                    self.partly += 1;
                } else {
                    self.not_started += 1;
                }
                self.failure.get_or_insert(error);
            }
        }
        self.note_omissions(group, omissions);
    }

    /// Adds the conflicts that made a step omit some of its parts. Parts that fail for the same reason are reported
    /// once.
    fn note_omissions(&mut self, group: &Group, omissions: Vec<Omission>) {
        let mut conflicts: Vec<Conflict> = Vec::new();
        for omission in omissions {
            let has_reason = |conflict: &Conflict| conflict.reason == omission.reason;
            let index = conflicts.iter().position(has_reason).unwrap_or(conflicts.len());
            if index == conflicts.len() {
                conflicts.push(Conflict {
                    what: String::new(),
                    ..conflict_of_step(group, omission.reason)
                });
            }

            let conflict = &mut conflicts[index];
            conflict.addresses.extend(omission.addresses);
            if omission.unit == Unit::WholeStep {
                conflict.what = group.reason.clone();
            } else if conflict.what != group.reason {
                let verb = if omission.releases {
                    "releasing"
                } else {
                    "recording"
                };
                conflict.what = format!("{verb} {}", joined(&conflict.addresses, ", "));
            }
        }

        for conflict in conflicts {
            self.kept_addresses += conflict.addresses.len();
            self.conflicts.push(conflict);
        }
    }
}

/// Returns a conflict about an entire step.
fn conflict_of_step(group: &Group, reason: String) -> Conflict {
    Conflict {
        step: group.step,
        what: group.reason.clone(),
        reason,
        addresses: Vec::new(),
    }
}

/// Returns the addresses that a step has released and that cool down from now on; `None` if there are none.
fn cooling_of(group: &Group, omissions: &[Omission]) -> Option<Cooling> {
    let (planned, seconds) = group.cooling?;
    let mut kept = 0;
    for omission in omissions {
        if omission.releases {
            kept += omission.addresses.len();
        }
    }

    let cooldown = SignedDuration::from_secs(seconds);
    let until = clock::now().checked_add(cooldown).ok()?;
    let addresses = planned.checked_sub(kept)?;
    if addresses == 0 {
        return None;
    }
    Some(Cooling {
        addresses,
        first: until,
        last: until,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_how_they_ended() {
        let cooling = Some((3, 60));
        let group = Group {
            step: 0,
            reason: "of a test".into(),
            cooling,
            tasks: Vec::new(),
        };
        let broken = || RepairError::UnexpectedKey { path: "x".into() };
        let mut execution = Execution::default();
        for is_partly_written in [true, false, false] {
            let ended = Ended::Broken {
                error: broken(),
                is_partly_written,
            };
            execution.note(&group, ended, Vec::new());
        }
        execution.note(&group, Ended::Partly("others changed it".into()), Vec::new());
        execution.note(&group, Ended::Conflict("others changed it".into()), Vec::new());
        assert_eq!(
            (execution.partly, execution.not_started, execution.aborted),
            (2, 2, 1)
        );
        assert!(execution.failure.is_some() && execution.conflicts.len() == 2 && execution.cooling.is_none());

        let address = || vec!["10.0.0.1".parse().unwrap()];
        let kept = || Omission {
            unit: Unit::Block,
            addresses: address(),
            releases: true,
            reason: "in use".into(),
        };
        execution.note(&group, Ended::Written, vec![kept()]);
        execution.note(&group, Ended::Written, Vec::new());
        assert_eq!(execution.cooling.map(|cooling| cooling.addresses), Some(5));
    }
}
