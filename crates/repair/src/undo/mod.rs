//! Undoing a run: the inverse of what its journal says was written.

mod restored;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question, Writer};
use calipam_model::key::Key;

use self::task::UndoTask;
use crate::engine::{Execution, Group, Task};
use crate::error::RepairError;
use crate::journal::{Intent, Recorded, Value, key_of};
use crate::session::{Options, Purpose, carry_out, writer};

/// What undoing a run would do. Nothing is written by making it.
#[derive(Clone, Debug)]
pub struct UndoPlan {
    cluster: String,
    steps: Vec<UndoStep>,
    skipped: Vec<NotUndone>,
}

/// Objects that were written together and are brought back together.
#[derive(Clone, Debug)]
pub struct UndoStep {
    /// What had been repaired, for people.
    pub reason: String,
    /// The objects.
    pub objects: Vec<UndoObject>,
}

/// One object to bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoObject {
    /// The object.
    pub key: Key,
    /// What the run left; `None` where the run deleted it.
    pub left: Option<LeftVersion>,
    /// What it was before the run; `None` where it did not exist.
    pub before: Option<Bytes>,
}

/// The version that a run left of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftVersion {
    /// Its revision. It may come a second time, where etcd was restored from a backup.
    pub revision: String,
    /// Its value.
    pub value: Bytes,
}

/// Objects that are not undone, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUndone {
    /// The objects.
    pub keys: Vec<Key>,
    /// Why.
    pub reason: String,
}

/// What a run did to one object in all.
struct Net {
    object: UndoObject,
    /// Others changed it between two writes of the run.
    broken: bool,
}

impl UndoPlan {
    /// Plans the inverse of a run. Its open intents have to be resolved before, by
    /// [`resolve`](crate::journal::resolve()); those that cannot be are skipped.
    ///
    /// # Errors
    /// Where the journal names what calipam never writes.
    pub fn new(recorded: &Recorded) -> Result<Self, RepairError> {
        let mut plan =
            Self { cluster: recorded.header.cluster.clone(), steps: Vec::new(), skipped: Vec::new() };
        let mut nets: BTreeMap<Key, Net> = BTreeMap::new();
        let mut together: Vec<(BTreeSet<Key>, &Intent)> = Vec::new();
        for intent in &recorded.intents {
            let Some(outcome) = recorded.outcomes.get(&intent.id) else {
                plan.skipped.push(NotUndone { keys: keys(intent)?, reason: UNRESOLVED.into() });
                continue;
            };
            let Some(revisions) = &outcome.written else { continue };
            note(&mut nets, intent, revisions)?;
            together.push((keys(intent)?.into_iter().collect(), intent));
        }
        for (keys, reason) in join(together) {
            let nets: Vec<&Net> = keys.iter().filter_map(|key| nets.get(key)).collect();
            if nets.iter().any(|net| net.broken) {
                let reason = "others changed it between two writes of the run".into();
                plan.skipped.push(NotUndone { keys: keys.into_iter().collect(), reason });
                continue;
            }
            let objects = nets.into_iter().map(|net| net.object.clone()).collect();
            plan.steps.push(UndoStep { reason, objects });
        }
        Ok(plan)
    }

    /// The cluster of the run.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What is to be brought back.
    pub fn steps(&self) -> &[UndoStep] {
        &self.steps
    }

    /// What is not undone, and why.
    pub fn skipped(&self) -> &[NotUndone] {
        &self.skipped
    }

    /// What the operator has to agree to. Addresses are not counted: undo restores whole objects.
    pub fn question(&self, location: &str) -> Question {
        let count = |wanted: fn(&Key) -> bool| {
            self.steps.iter().flat_map(|s| &s.objects).filter(|o| wanted(&o.key)).count()
        };
        Question {
            cluster: self.cluster.clone(),
            location: location.to_owned(),
            addresses: 0,
            blocks: count(|key| matches!(key, Key::Block(_))),
            handles: count(|key| matches!(key, Key::Handle(_))),
            others: count(|key| !matches!(key, Key::Block(_) | Key::Handle(_))),
        }
    }
}

const UNRESOLVED: &str = "the run ended while it was written, and others have changed it since";

fn keys(intent: &Intent) -> Result<Vec<Key>, RepairError> {
    intent.changes.iter().map(|change| key_of(&change.key)).collect()
}

/// Adds one written intent to what the run did to each object.
fn note(
    nets: &mut BTreeMap<Key, Net>,
    intent: &Intent,
    revisions: &[Option<String>],
) -> Result<(), RepairError> {
    for (change, revision) in intent.changes.iter().zip(revisions) {
        let key = key_of(&change.key)?;
        let before = change.before.as_ref();
        let left = change.after.as_ref().and_then(Value::bytes).zip(revision.clone());
        let left = left.map(|(value, revision)| LeftVersion { revision, value });
        match nets.get_mut(&key) {
            Some(net) => {
                let found = before.and_then(|version| {
                    Some(LeftVersion { revision: version.revision.clone(), value: version.value.bytes()? })
                });
                net.broken |= net.object.left != found;
                net.object.left = left;
            }
            None => {
                let before = before.and_then(|version| Value::bytes(&version.value));
                let object = UndoObject { key: key.clone(), left, before };
                nets.insert(key, Net { object, broken: false });
            }
        }
    }
    Ok(())
}

/// Joins what was written together, directly or through objects in common.
fn join(together: Vec<(BTreeSet<Key>, &Intent)>) -> Vec<(BTreeSet<Key>, String)> {
    let mut sets: Vec<Option<(BTreeSet<Key>, String)>> = Vec::new();
    let mut set_of: BTreeMap<Key, usize> = BTreeMap::new();
    for (keys, intent) in together {
        let joined: BTreeSet<usize> = keys.iter().filter_map(|key| set_of.get(key).copied()).collect();
        let (mut all, mut reason) = (keys, intent.reason.clone());
        for index in joined {
            if let Some((others, other)) = sets[index].take() {
                all.extend(others);
                if other != reason {
                    reason = format!("{other}; {reason}");
                }
            }
        }
        set_of.extend(all.iter().map(|key| (key.clone(), sets.len())));
        sets.push(Some((all, reason)));
    }
    sets.into_iter().flatten().collect()
}

/// Undoes a run as planned. Objects that have changed since are refused, with everything that was written
/// together with them, and reported as conflicts.
///
/// # Errors
/// Where the cluster is another one, consent does not cover the plan, or the journal of the undoing
/// cannot be created. What happens later is in the [`Execution`].
pub async fn undo(
    datastore: &Datastore,
    plan: &UndoPlan,
    consent: Consent,
    options: &Options,
) -> Result<Execution, RepairError> {
    let purpose = Purpose {
        what: "journal",
        cluster: plan.cluster.clone(),
        objects: plan.steps.iter().map(|step| step.objects.len()).sum(),
    };
    let writer = writer(datastore, consent, &purpose).await?;
    let groups = groups(plan.steps.clone(), &writer);
    carry_out(datastore, writer, &purpose.cluster, options, groups).await
}

fn groups(steps: Vec<UndoStep>, writer: &Writer) -> Vec<Group> {
    let most = writer.limits().changes;
    let group = |(index, step): (usize, UndoStep)| {
        let mut objects = step.objects;
        // Where one batch cannot hold them all: what claims addresses before the blocks that record them.
        objects.sort_by_key(|object| matches!(object.key, Key::Block(_)));
        let objects: Arc<[UndoObject]> = objects.into();
        let tasks = (0..objects.len())
            .step_by(most.max(1))
            .map(|from| -> Arc<dyn Task> { Arc::new(UndoTask::new(&objects, from, most)) })
            .collect();
        Group { step: index, reason: format!("undo: {}", step.reason), tasks }
    };
    steps.into_iter().enumerate().map(group).collect()
}
