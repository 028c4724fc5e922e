//! One group: read, decide, note the intent, write, note the outcome.

use std::sync::Arc;
use std::time::Duration;

use calipam_datastore::write::{Batch, Expect, Swap};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;

use super::{Context, Decision, Ended, Event, Group, Objects, Omitted, RETRIES, Task};
use crate::error::RepairError;
use crate::journal::{ChangeRecord, Fate, GuardRecord, Intent, Outcome, Value, Version, fate};

/// How often a write is sent again whose answer was lost.
const RESENDS: usize = 3;

/// The longest pause before a swap that was lost is tried again.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What became of one write.
enum Written {
    Done,
    Lost,
    /// Others changed the objects while the answer was lost: who wrote what cannot be told.
    Unclear(Vec<String>),
}

pub(super) async fn run_group(context: &Context, group: &Group, omitted: &mut Omitted) -> Ended {
    let mut all = Ended::Already;
    for (index, task) in group.tasks.iter().enumerate() {
        // A step that was begun is finished.
        if index == 0 && context.interrupt.is_set() {
            return Ended::Interrupted;
        }
        match run_task(context, group, task, omitted).await {
            Ok(Ended::Already) => {}
            Ok(Ended::Written) => all = Ended::Written,
            Ok(other) => return other,
            Err(error) => return Ended::Broken(error),
        }
    }
    all
}

async fn run_task(
    context: &Context,
    group: &Group,
    task: &Arc<dyn Task>,
    omitted: &mut Omitted,
) -> Result<Ended, RepairError> {
    let keys = task.reads();
    for attempt in 0..RETRIES {
        let objects = read(context, &keys).await?;
        let batch = loop {
            match task.decide(&objects, omitted) {
                Decision::Write(batch) => break batch,
                Decision::Already => return Ok(Ended::Already),
                Decision::Conflict(reason) => return Ok(Ended::Conflict(reason)),
                Decision::Omit(parts) => omitted.add(parts),
            }
        };
        match write(context, group, &objects, &batch).await? {
            Written::Done => return Ok(Ended::Written),
            Written::Lost => {
                (context.events)(&Event::Lost { step: group.step });
                tokio::time::sleep(pause(attempt)).await;
            }
            Written::Unclear(keys) => {
                return Ok(Ended::Conflict(format!(
                    "the answer of the datastore was lost, and {} was changed by others since",
                    keys.join(", ")
                )));
            }
        }
    }
    Ok(Ended::Conflict(format!("others changed the objects {RETRIES} times in a row")))
}

/// Longer with every attempt, so that a busy object is left to those who work with it.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(attempt as u64 / 2).min(LONGEST_PAUSE)
}

async fn read(context: &Context, keys: &[Key]) -> Result<Objects, RepairError> {
    let _turn = context.requests.acquire().await;
    let stored = context.writer.read(keys).await?;
    Ok(keys.iter().cloned().zip(stored).collect())
}

async fn write(
    context: &Context,
    group: &Group,
    objects: &Objects,
    batch: &Batch,
) -> Result<Written, RepairError> {
    let mut intent = intent(group, objects, batch);
    context.journal.intend(&mut intent).await?;
    (context.events)(&Event::Intended { step: group.step });
    let mut resends = 0;
    let written = loop {
        let turn = context.requests.acquire().await;
        let answer = context.writer.commit(batch).await;
        drop(turn);
        match answer {
            Ok(Swap::Done(revisions)) => break Some(revisions.iter().map(text_of).collect()),
            // After a lost answer, a lost swap may be this very write.
            Ok(Swap::Lost) if resends == 0 => break None,
            Ok(Swap::Lost) => match look(context, &intent).await? {
                Fate::Written(outcome) => break outcome.written,
                Fate::NotWritten => break None,
                Fate::Changed(keys) => return Ok(Written::Unclear(keys)),
            },
            Err(error) if resends == RESENDS => return Err(error.into()),
            Err(error) => {
                resends += 1;
                match look(context, &intent).await {
                    Ok(Fate::Written(outcome)) => break outcome.written,
                    // Sending it again is safe: it still expects the same versions.
                    Ok(Fate::NotWritten) => {}
                    Ok(Fate::Changed(keys)) => return Ok(Written::Unclear(keys)),
                    Err(_) => return Err(error.into()),
                }
            }
        }
    };
    let result = if written.is_some() { Written::Done } else { Written::Lost };
    if written.is_some() {
        (context.events)(&Event::Written { step: group.step });
    }
    context.journal.conclude(Outcome { id: intent.id, written })?;
    Ok(result)
}

fn text_of(revision: &Option<Revision>) -> Option<String> {
    revision.as_ref().map(ToString::to_string)
}

/// Finds out by reading what became of a write whose answer was lost.
async fn look(context: &Context, intent: &Intent) -> Result<Fate, RepairError> {
    let keys: Vec<Key> =
        intent.changes.iter().map(|change| crate::journal::key_of(&change.key)).collect::<Result<_, _>>()?;
    Ok(fate(intent, &context.writer.read(&keys).await?))
}

/// What the journal says about a batch.
fn intent(group: &Group, objects: &Objects, batch: &Batch) -> Intent {
    let change = |change: &calipam_datastore::write::Change| {
        let stored = objects.get(change.key()).and_then(Option::as_ref);
        ChangeRecord {
            key: change.key().to_string(),
            before: stored.map(|s| Version { revision: s.revision.to_string(), value: Value::new(&s.raw) }),
            after: change.value().map(Value::new),
        }
    };
    let guard = |(key, expect): &(Key, Expect)| GuardRecord {
        key: key.to_string(),
        revision: match expect {
            Expect::Absent => None,
            Expect::At(revision) => Some(revision.to_string()),
        },
    };
    Intent {
        id: 0,
        step: group.step,
        reason: group.reason.clone(),
        changes: batch.changes.iter().map(change).collect(),
        guards: batch.evidence.iter().map(guard).collect(),
    }
}
