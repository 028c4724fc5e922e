//! One write of a task: records the intent, sends the batch until its outcome is known, and records the outcome.

use std::time::Duration;

use bytes::Bytes;
use calipam_datastore::write::{Batch, Change, Precondition, Stored, Swap};
use calipam_datastore::{Error, Retries};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;

use super::{Context, Event, Group, Objects};
use crate::error::{RepairError, Result};
use crate::journal::{
    ChangeRecord, GuardRecord, Intent, IntentOutcome, Outcome, Value, Version, intent_outcome,
};

/// The pauses before a write is sent again after an error.
const RESENDS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
];

/// The pauses before the second step of a deletion is tried again.
const DELETIONS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

/// The result of a task, or of one of its writes.
pub(super) enum TaskResult {
    Written(Made),
    /// Objects were marked deleted, but could not be deleted after that.
    Marked(String),
    Already,
    Conflict(String),
}

/// The changes of a write, apart from those that only gave an object another version.
pub(super) type Made = Vec<MadeChange>;

pub(super) struct MadeChange {
    pub key: Key,
    /// The value before the write; `None` if there was none.
    pub before: Option<Bytes>,
    /// The revision and value after the write; `None` if the object was deleted.
    pub left: Option<(String, Bytes)>,
}

/// Commits a batch, and sends it again after errors. `None` if nothing was written, so the task must read again.
pub(super) async fn write(
    context: &Context,
    group: &Group,
    objects: &Objects,
    batch: &Batch,
) -> Result<Option<TaskResult>> {
    let mut intent = intent(group, objects, batch);
    context.journal.intend(&mut intent).await?;
    (context.events)(&Event::Intended { step: group.step });

    let sending = Sending {
        context,
        batch,
        intent: &intent,
        resends: Retries::new(&RESENDS),
        is_certain: true,
    };
    let end = sending.run().await;
    if let End::Written { .. } = end {
        (context.events)(&Event::Written { step: group.step });
    }
    if let Some(outcome) = end.outcome(intent.id) {
        context.journal.conclude(outcome)?;
    }

    match end {
        End::Written {
            unfinished: Some(reason),
            ..
        } => Ok(Some(TaskResult::Marked(reason))),
        End::Written { revisions, .. } => Ok(Some(TaskResult::Written(changes_made(
            objects, batch, &revisions,
        )))),
        End::Lost => Ok(None),
        End::Refused(reason) => Ok(Some(TaskResult::Conflict(reason))),
        End::Unclear(keys) => Ok(Some(TaskResult::Conflict(format!(
            "the datastore's answer was lost, and others have since changed {}",
            keys.join(", ")
        )))),
        End::Failed { error, .. } => Err(error),
    }
}

/// A batch whose intent is in the journal, until the fate of the write is known.
struct Sending<'w> {
    context: &'w Context,
    batch: &'w Batch,
    intent: &'w Intent,
    resends: Retries,
    /// True while each failed request was certainly not carried out.
    is_certain: bool,
}

/// The state of a write between two requests.
enum State {
    /// No request has failed: a conflict is the work of another client.
    Unsent,
    /// An earlier request failed, and may have been carried out: a conflict may be its own work.
    SentBefore,
    /// There was a conflict after an earlier request failed.
    Denied,
    /// The last request failed.
    Unanswered(Error),
    Ended(End),
}

/// The end of a write.
enum End {
    Written {
        revisions: Vec<Option<String>>,
        /// The reason why objects that are marked deleted could not be deleted.
        unfinished: Option<String>,
    },
    /// Nothing was written, because another client changed the objects first.
    Lost,
    /// Nothing was written, because the server refuses these objects. It may accept those of other steps.
    Refused(String),
    /// Others have changed the objects since a request failed, so nothing shows whether that request was carried out.
    Unclear(Vec<String>),
    Failed {
        error: RepairError,
        /// True if certainly nothing was written.
        is_unwritten: bool,
    },
}

impl End {
    /// Returns the outcome of the intent with this number. `None` if it is unknown, so that the intent stays open.
    fn outcome(&self, id: u64) -> Option<Outcome> {
        let written = match self {
            Self::Written { revisions, .. } => Some(revisions.clone()),
            Self::Lost
            | Self::Refused(_)
            | Self::Failed {
                is_unwritten: true, ..
            } => None,
            Self::Unclear(_)
            | Self::Failed {
                is_unwritten: false, ..
            } => return None,
        };
        Some(Outcome { id, written })
    }
}

impl Sending<'_> {
    /// Sends the write, and goes on by its answers until it is known whether it was made.
    async fn run(mut self) -> End {
        let mut state = State::Unsent;
        loop {
            state = match state {
                State::Unsent => self.send(State::Ended(End::Lost)).await,
                State::SentBefore => self.send(State::Denied).await,
                State::Denied => State::Ended(self.end_of_denied().await),
                State::Unanswered(error) => self.after_failure(error).await,
                State::Ended(end) => return end,
            };
        }
    }

    /// Sends the batch. `denied` is the state after a conflict.
    async fn send(&self, denied: State) -> State {
        match self.context.commit(self.batch).await {
            Ok(Swap::Done(revisions)) => {
                let revisions = revisions.iter().map(text_of).collect();
                State::Ended(End::Written {
                    revisions,
                    unfinished: None,
                })
            }
            Ok(Swap::Conflict) => denied,
            Err(error) => State::Unanswered(error),
        }
    }

    /// Finds out whether the conflict is the work of an earlier request.
    async fn end_of_denied(&self) -> End {
        match self.outcome().await {
            Ok(IntentOutcome::Written(outcome)) => written(outcome, None),
            Ok(IntentOutcome::NotWritten) => End::Lost,
            Ok(IntentOutcome::Changed(keys)) => End::Unclear(keys),
            Err(error) => End::Failed {
                error,
                is_unwritten: false,
            },
        }
    }

    /// Finds out whether the request that failed was carried out. If not, the batch may be sent again: it still expects
    /// the same versions.
    async fn after_failure(&mut self, error: Error) -> State {
        self.is_certain &= error.is_certainly_unwritten();
        let is_last = !self.resends.is_left();
        if is_last && !error.is_refusal() {
            let is_unwritten =
                self.is_certain && matches!(self.outcome().await, Ok(IntentOutcome::NotWritten));
            return State::Ended(End::Failed {
                error: error.into(),
                is_unwritten,
            });
        }

        match self.outcome().await {
            Ok(IntentOutcome::Written(outcome)) => {
                let unfinished = finish_deletions(self.context, self.batch).await;
                State::Ended(written(outcome, unfinished))
            }
            Ok(IntentOutcome::NotWritten) if error.is_refusal() && (is_last || !error.may_pass()) => {
                State::Ended(End::Refused(error.to_string()))
            }
            Ok(IntentOutcome::NotWritten) => {
                self.resends.pause().await;
                State::SentBefore
            }
            Ok(IntentOutcome::Changed(keys)) => State::Ended(End::Unclear(keys)),
            Err(_) => State::Ended(End::Failed {
                error: error.into(),
                is_unwritten: false,
            }),
        }
    }

    /// Reads the objects to find the outcome of a write whose answer was lost.
    async fn outcome(&self) -> Result<IntentOutcome> {
        let stored = self.context.stored(&self.intent.keys()?).await?;
        Ok(intent_outcome(self.intent, &stored))
    }
}

fn written(outcome: Outcome, unfinished: Option<String>) -> End {
    End::Written {
        revisions: outcome.written.unwrap_or_default(),
        unfinished,
    }
}

/// Finishes deletions that were interrupted: on Kubernetes, an object is first marked deleted, and then deleted.
/// Returns the reason if a deletion fails again.
async fn finish_deletions(context: &Context, batch: &Batch) -> Option<String> {
    for change in batch.changes.iter().filter(|change| change.value().is_none()) {
        let key = change.key();
        let mut retries = Retries::new(&DELETIONS);
        while let Err(reason) = finish_deletion(context, key).await {
            if !retries.pause().await {
                return Some(format!(
                    "{} is marked deleted, but could not be deleted: {reason}",
                    key.named()
                ));
            }
        }
    }
    None
}

/// Deletes an object that is marked as deleted, so that it can be created again.
async fn finish_deletion(context: &Context, key: &Key) -> Result<(), String> {
    let objects = context
        .read(std::slice::from_ref(key))
        .await
        .map_err(|error| error.to_string())?;
    let marked = objects.into_values().flatten().find(Stored::is_deleted);
    let Some(marked) = marked else { return Ok(()) };
    let delete = Change::delete(key.clone(), marked.revision);
    let batch = Batch {
        changes: vec![delete],
        evidence: Vec::new(),
    };
    match context.commit(&batch).await {
        Ok(Swap::Done(_)) => Ok(()),
        Ok(Swap::Conflict) => Err("others keep writing to it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The changes that a batch has made, except for objects that it only wrote again as they were.
fn changes_made(objects: &Objects, batch: &Batch, revisions: &[Option<String>]) -> Made {
    let mut made = Made::new();
    for (change, revision) in batch.changes.iter().zip(revisions) {
        if change.is_again() {
            continue;
        }
        let before = objects.get(change.key()).and_then(Option::as_ref);
        made.push(MadeChange {
            key: change.key().clone(),
            before: before.map(|stored| stored.raw.clone()),
            left: revision.clone().zip(change.value().cloned()),
        });
    }
    made
}

fn text_of(revision: &Option<Revision>) -> Option<String> {
    revision.as_ref().map(ToString::to_string)
}

/// Creates the journal's intent for a batch.
fn intent(group: &Group, objects: &Objects, batch: &Batch) -> Intent {
    let mut changes = Vec::with_capacity(batch.changes.len());
    for change in &batch.changes {
        let stored = objects.get(change.key()).and_then(Option::as_ref);
        changes.push(ChangeRecord {
            key: change.key().to_string(),
            before: stored.map(|stored| Version {
                revision: stored.revision.to_string(),
                value: Value::new(&stored.raw),
            }),
            after: change.value().map(Value::new),
        });
    }

    let mut guards = Vec::with_capacity(batch.evidence.len());
    for (key, precondition) in &batch.evidence {
        let revision = match precondition {
            Precondition::Absent | Precondition::Records(..) | Precondition::Matches(_) => None,
            Precondition::At(revision) => Some(revision.to_string()),
            Precondition::NoBlockSince(revision) => Some(revision.to_string()),
        };
        guards.push(GuardRecord {
            key: key.to_string(),
            revision,
        });
    }

    Intent {
        // The journal numbers it.
        id: 0,
        step: group.step,
        reason: group.reason.clone(),
        changes,
        guards,
    }
}
