//! Runs one group: reads, decides, and writes, task by task. Takes writes back that are useless without the rest.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use calipam_datastore::write::{Batch, Stored};
use calipam_model::edit::Unit;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;

use super::write::{Made, MadeChange, TaskResult, write};
use super::{Context, Decision, Ended, Event, Group, Objects, Omitted, RETRIES, Task, change};
use crate::error::Result;
use crate::journal::{compared_by_value, same_value};

/// The longest pause before a retry after a conflict.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Carries out the tasks of a group in order. If one of them meets a conflict, takes the others back.
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
            Ok(TaskResult::Written(changes)) => made.extend(changes),
            Ok(TaskResult::Marked(reason)) => return Ended::Partly(reason),
            Ok(TaskResult::Conflict(reason)) => {
                let is_reverted = made.is_empty() || revert(context, group, made).await;
                return if is_reverted {
                    Ended::Conflict(reason)
                } else {
                    Ended::Partly(reason)
                };
            }
            Err(error) => {
                let is_partly_written = !made.is_empty() && !revert(context, group, made).await;
                return Ended::Broken {
                    error,
                    is_partly_written,
                };
            }
        }
    }

    // Without transactions, handles are written before blocks: a handle may count an address that was then omitted.
    let is_stranded = |key: &Key| match key {
        Key::Handle(id) => omitted.has(&Unit::Handle(clean_id(id).to_owned())),
        _ => false,
    };
    let stranded: Made = made.extract_if(.., |change| is_stranded(&change.key)).collect();
    if !stranded.is_empty() && !revert(context, group, stranded).await {
        return Ended::Partly(
            "a handle counts too many addresses: others changed it before the count could be taken back"
                .into(),
        );
    }
    if made.is_empty() {
        Ended::Already
    } else {
        Ended::Written
    }
}

/// Undoes the changes that are useless without the rest of the step: handle counts for a block that could not be
/// written, affinities created for that block, and pools of an unfinished split. Returns true if no write of the step
/// is left.
async fn revert(context: &Context, group: &Group, changes: Made) -> bool {
    for made in &changes {
        let is_useless_alone = match made.key {
            Key::Handle(_) | Key::Pool(_) => true,
            Key::Affinity(_) => made.before.is_none(),
            _ => false,
        };
        if !is_useless_alone {
            return false;
        }
    }

    for made in changes.into_iter().rev() {
        let keys = [made.key.clone()];
        let Ok(objects) = context.read(&keys).await else {
            return false;
        };
        let now = objects.get(&made.key).and_then(Option::as_ref);
        if !is_as_made(&made, now) {
            return false;
        }

        let Some(change) = change(made.key, made.before, now) else {
            continue;
        };
        let batch = Batch {
            changes: vec![change],
            evidence: Vec::new(),
        };
        let result = write(context, group, &objects, &batch).await;
        if !matches!(result, Ok(Some(TaskResult::Written(_)))) {
            return false;
        }
    }

    true
}

/// Returns true if nobody has written to an object since it was changed.
fn is_as_made(made: &MadeChange, now: Option<&Stored>) -> bool {
    let (Some(now), Some((revision, value))) = (now, &made.left) else {
        return now.is_none() && made.left.is_none();
    };
    if compared_by_value(made.key.clone()) {
        same_value(&now.raw, value)
    } else {
        now.revision.to_string() == *revision
    }
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
        let needed = if attempt == 0 {
            task.reads_first()
        } else {
            task.reads()
        };
        let mut unread: BTreeSet<Key> = needed.into_iter().chain(along.iter().cloned()).collect();
        let mut objects = Objects::new();
        if attempt == 0 {
            objects.extend(known.extract_if(|key, _| unread.remove(key)));
            objects.extend(task.known().into_iter().filter(|(key, _)| unread.remove(key)));
        }
        objects.extend(context.read(&Vec::from_iter(unread)).await?);

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

    Ok(TaskResult::Conflict(format!(
        "others changed the objects {RETRIES} times in a row"
    )))
}

/// Returns a pause that grows with the number of attempts, so that other clients get to write to a contended object.
fn pause(attempt: usize) -> Duration {
    Duration::from_millis(attempt as u64 / 2).min(LONGEST_PAUSE)
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
