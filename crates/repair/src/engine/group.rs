//! Runs one group: reads, decides, records the intent, writes, and records the outcome.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use calipam_datastore::write::{Batch, Change, Precondition, Stored, Swap};
use calipam_model::edit::Unit;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;

use super::{Context, Decision, Ended, Event, Group, Objects, Omitted, RETRIES, Task, change};
use crate::error::Result;
use crate::journal::{
    ChangeRecord, GuardRecord, Intent, IntentOutcome, Outcome, Value, Version, compared_by_value,
    intent_outcome, same_value,
};

/// The number of times that a write is sent again after an error.
const RESENDS: usize = 3;

/// The pause before the first resend. Later pauses are longer.
const RESEND_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause before a retry after a conflict.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The result of a task, or of one of its writes.
enum TaskResult {
    Written(Made),
    /// Objects were marked deleted, but could not be deleted after that.
    Marked(String),
    Already,
    Conflict(String),
}

/// The changes of a write, apart from those that only gave an object another version.
type Made = Vec<MadeChange>;

struct MadeChange {
    key: Key,
    /// The value before the write; `None` if there was none.
    before: Option<Bytes>,
    /// The revision and value after the write; `None` if the object was deleted.
    left: Option<(String, Bytes)>,
}

pub(super) async fn run_group(context: &Context, group: &Group, omitted: &mut Omitted) -> Ended {
    let mut made = Made::new();
    let mut known = Objects::new();
    for (index, task) in group.tasks.iter().enumerate() {
        // An interrupt does not stop a step that has begun.
        if index == 0 && context.interrupt.is_set() {
            return Ended::Interrupted;
        }
        match run_task(context, group, task, omitted, &mut known).await {
            Ok(TaskResult::Already) => {}
            Ok(TaskResult::Written(more)) => made.extend(more),
            Ok(TaskResult::Marked(reason)) => return Ended::Partly(reason),
            Ok(TaskResult::Conflict(reason)) => {
                let is_reverted = made.is_empty() || revert(context, group, made).await;
                return if is_reverted { Ended::Conflict(reason) } else { Ended::Partly(reason) };
            }
            Err(error) => {
                let wrote = !made.is_empty() && !revert(context, group, made).await;
                return Ended::Broken(error, wrote);
            }
        }
    }

    // Without transactions, handles are written before blocks: a handle may count an address that was then omitted.
    let is_stranded = |key: &Key| match key {
        Key::Handle(id) => omitted.has(&Unit::Handle(clean_id(id).to_owned())),
        _ => false,
    };
    let stranded: Made = made.extract_if(.., |made| is_stranded(&made.key)).collect();

    if !stranded.is_empty() && !revert(context, group, stranded).await {
        return Ended::Partly(
            "a handle counts too many addresses: others changed it before the count could be taken back"
                .into(),
        );
    }
    if made.is_empty() { Ended::Already } else { Ended::Written }
}

/// Undoes the changes that are useless without the rest of the step: handle counts for a block that could not be
/// written, affinities created for that block, and pools of an unfinished split. Returns true if no write of the step
/// is left.
async fn revert(context: &Context, group: &Group, made: Made) -> bool {
    let may_go = |made: &MadeChange| match made.key {
        Key::Handle(_) | Key::Pool(_) => true,
        Key::Affinity(_) => made.before.is_none(),
        _ => false,
    };

    if !made.iter().all(may_go) {
        return false;
    }

    for MadeChange { key, before, left } in made.into_iter().rev() {
        let keys = [key.clone()];
        let Ok(objects) = read(context, &keys).await else { return false };
        let now = objects.get(&key).and_then(Option::as_ref);
        let is_left = match (now, &left) {
            (None, None) => true,
            (Some(now), Some((_, value))) if compared_by_value(key.clone()) => same_value(&now.raw, value),
            (Some(now), Some((revision, _))) => now.revision.to_string() == *revision,
            _ => false,
        };
        if !is_left {
            return false;
        }
        let Some(change) = change(key, before, now) else { continue };
        let batch = Batch { changes: vec![change], evidence: Vec::new() };
        if !matches!(write(context, group, &objects, &batch).await, Ok(Some(TaskResult::Written(_)))) {
            return false;
        }
    }

    true
}

/// Carries out a task. `known` contains objects that earlier tasks of the group have read along, which the first attempt
/// does not read again.
async fn run_task(
    context: &Context,
    group: &Group,
    task: &Arc<dyn Task>,
    omitted: &mut Omitted,
    known: &mut Objects,
) -> Result<TaskResult> {
    let along: BTreeSet<Key> = task.reads_along().into_iter().collect();
    for attempt in 0..RETRIES {
        let keys = if attempt == 0 { task.reads_first() } else { task.reads() };
        let mut keys: BTreeSet<Key> = keys.into_iter().chain(along.iter().cloned()).collect();
        let mut objects = Objects::new();
        if attempt == 0 {
            objects.extend(known.extract_if(|key, _| keys.remove(key)));
        }
        objects.extend(read(context, &Vec::from_iter(keys)).await?);
        let batch = loop {
            match task.decide(&objects, omitted) {
                Decision::Write(batch) => break context.writer.converted(batch),
                Decision::Already => return Ok(TaskResult::Already),
                Decision::Conflict(reason) => return Ok(TaskResult::Conflict(reason)),
                Decision::Omit(parts) => omitted.add(parts),
            }
        };
        if let Some(result) = write(context, group, &objects, &batch).await? {
            known.extend(objects.into_iter().filter(|(key, _)| along.contains(key)));
            return Ok(result);
        }
        (context.events)(&Event::Lost { step: group.step });
        tokio::time::sleep(pause(attempt)).await;
    }

    Ok(TaskResult::Conflict(format!("others changed the objects {RETRIES} times in a row")))
}

/// Returns a pause that grows with the number of attempts, so that other clients get to write to a contended object.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(attempt as u64 / 2).min(LONGEST_PAUSE)
}

async fn read(context: &Context, keys: &[Key]) -> Result<Objects> {
    if keys.is_empty() {
        return Ok(Objects::new());
    }
    let _turn = context.requests.acquire().await;
    let stored = context.writer.read(keys).await?;
    Ok(keys.iter().cloned().zip(stored).collect())
}

/// Commits a batch, and sends it again after errors. `None` if nothing was written, so the task must read again.
async fn write(
    context: &Context,
    group: &Group,
    objects: &Objects,
    batch: &Batch,
) -> Result<Option<TaskResult>> {
    // The answer was lost, so the outcome of the write is unknown.
    let unclear = |keys: Vec<String>| {
        let keys = keys.join(", ");
        format!("the datastore's answer was lost, and others have since changed {keys}")
    };
    let mut intent = intent(group, objects, batch);
    context.journal.intend(&mut intent).await?;
    (context.events)(&Event::Intended { step: group.step });
    let mut resends = 0;
    let mut is_certain = true;
    let mut failure = None;
    let written = loop {
        let turn = context.requests.acquire().await;
        let answer = context.writer.commit(batch).await;
        drop(turn);
        match answer {
            Ok(Swap::Done(revisions)) => break Some(revisions.iter().map(text_of).collect()),
            // After a lost answer, the write itself may have caused the conflict.
            Ok(Swap::Conflict) if resends == 0 => break None,
            Ok(Swap::Conflict) => match outcome_of(context, &intent).await? {
                IntentOutcome::Written(outcome) => break outcome.written,
                IntentOutcome::NotWritten => break None,
                IntentOutcome::Changed(keys) => return Ok(Some(TaskResult::Conflict(unclear(keys)))),
            },
            Err(error) if resends == RESENDS && !error.is_refusal() => {
                is_certain &= error.is_certainly_unwritten();
                if is_certain && matches!(outcome_of(context, &intent).await, Ok(IntentOutcome::NotWritten)) {
                    context.journal.conclude(Outcome { id: intent.id, written: None })?;
                }
                return Err(error.into());
            }
            Err(error) => {
                is_certain &= error.is_certainly_unwritten();
                resends += 1;
                match outcome_of(context, &intent).await {
                    Ok(IntentOutcome::Written(outcome)) => {
                        failure = finish_deletions(context, batch).await;
                        break outcome.written;
                    }
                    // The server refuses these objects, but may accept the objects of other steps.
                    Ok(IntentOutcome::NotWritten)
                        if error.is_refusal() && (resends > RESENDS || !error.may_pass()) =>
                    {
                        context.journal.conclude(Outcome { id: intent.id, written: None })?;
                        return Ok(Some(TaskResult::Conflict(error.to_string())));
                    }
                    // Sending the write again is safe: it still expects the same versions.
                    Ok(IntentOutcome::NotWritten) => tokio::time::sleep(RESEND_PAUSE * resends as u32).await,
                    Ok(IntentOutcome::Changed(keys)) => return Ok(Some(TaskResult::Conflict(unclear(keys)))),
                    Err(_) => return Err(error.into()),
                }
            }
        }
    };

    let result = written.as_ref().map(|revisions| match failure {
        None => TaskResult::Written(made(objects, batch, revisions)),
        Some(failure) => TaskResult::Marked(failure),
    });
    if result.is_some() {
        (context.events)(&Event::Written { step: group.step });
    }
    context.journal.conclude(Outcome { id: intent.id, written })?;
    Ok(result)
}

/// Finishes deletions that were interrupted: on Kubernetes, an object is first marked deleted, and then deleted.
/// Returns the reason if a deletion fails again.
async fn finish_deletions(context: &Context, batch: &Batch) -> Option<String> {
    for change in batch.changes.iter().filter(|change| change.value().is_none()) {
        let mut failure = None;
        for resend in 1..=RESENDS {
            failure = finish_deletion(context, change.key()).await.err();
            if failure.is_none() {
                break;
            }
            tokio::time::sleep(RESEND_PAUSE * resend as u32).await;
        }
        if let Some(reason) = failure {
            return Some(format!(
                "{} is marked deleted, but could not be deleted: {reason}",
                change.key().named()
            ));
        }
    }
    None
}

async fn finish_deletion(context: &Context, key: &Key) -> Result<(), String> {
    let objects = read(context, std::slice::from_ref(key)).await.map_err(|error| error.to_string())?;
    let marked = objects.into_values().flatten().find(Stored::is_deleted);
    let Some(marked) = marked else { return Ok(()) };
    let delete = Change::delete(key.clone(), marked.revision);
    match context.writer.commit(&Batch { changes: vec![delete], evidence: Vec::new() }).await {
        Ok(Swap::Done(_)) => Ok(()),
        Ok(Swap::Conflict) => Err("others keep writing to it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn made(objects: &Objects, batch: &Batch, revisions: &[Option<String>]) -> Made {
    let object = |(change, revision): (&Change, &Option<String>)| MadeChange {
        key: change.key().clone(),
        before: objects.get(change.key()).and_then(Option::as_ref).map(|stored| stored.raw.clone()),
        left: revision.clone().zip(change.value().cloned()),
    };
    batch.changes.iter().zip(revisions).filter(|(change, _)| !change.is_again()).map(object).collect()
}

fn text_of(revision: &Option<Revision>) -> Option<String> {
    revision.as_ref().map(ToString::to_string)
}

/// Reads the objects to find the outcome of a write whose answer was lost.
async fn outcome_of(context: &Context, intent: &Intent) -> Result<IntentOutcome> {
    Ok(intent_outcome(intent, &context.writer.read(&intent.keys()?).await?))
}

/// Creates the journal's intent for a batch.
fn intent(group: &Group, objects: &Objects, batch: &Batch) -> Intent {
    let change = |change: &Change| {
        let stored = objects.get(change.key()).and_then(Option::as_ref);
        ChangeRecord {
            key: change.key().to_string(),
            before: stored.map(|s| Version { revision: s.revision.to_string(), value: Value::new(&s.raw) }),
            after: change.value().map(Value::new),
        }
    };

    let guard = |(key, expect): &(Key, Precondition)| GuardRecord {
        key: key.to_string(),
        revision: match expect {
            Precondition::Absent | Precondition::Records(..) | Precondition::Matches(_) => None,
            Precondition::At(revision) => Some(revision.to_string()),
            Precondition::NoBlockSince(revision) => Some(revision.to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        assert_eq!([0, 2, 7].map(pause), [0, 1, 3].map(Duration::from_millis));
        assert_eq!(pause(usize::MAX), LONGEST_PAUSE);
    }
}
