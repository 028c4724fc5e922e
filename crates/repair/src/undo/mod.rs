//! Undoing a run: the inverse of what its journal says was written.

mod later;
mod refusal;
mod restored;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question, Writer};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use jiff::Timestamp;

use self::refusal::in_the_way;
use self::task::UndoTask;
use crate::engine::{Execution, Group, Task};
use crate::error::RepairError;
use crate::journal::{ChangeRecord, Intent, Recorded, Value, goes_by_value, key_of, same_value};
use crate::session::{Options, Purpose, carry_out, writer};

/// What undoing a run would do. Nothing is written by making it.
#[derive(Clone, Debug)]
pub struct UndoPlan {
    cluster: String,
    /// When the run began, by the clock of its machine.
    began: Option<Timestamp>,
    steps: Vec<UndoStep>,
    skipped: Vec<NotUndone>,
    already: usize,
}

/// Objects that were written together and are brought back together.
#[derive(Clone, Debug)]
pub struct UndoStep {
    /// What had been repaired, for people.
    pub reason: String,
    pub objects: Vec<UndoObject>,
    /// Objects that have to be as they were. The run was killed before it had written them, or so it seems, one of each write: what
    /// it has sent may still arrive, and one half of a step is undone with the other. Or the undo relies on them.
    pub awaited: Vec<UndoObject>,
    /// Blocks that had to be absent for it.
    pub absent: BTreeSet<Key>,
}

/// One object to bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoObject {
    /// The object.
    pub key: Key,
    /// What the run left; `None` if the run deleted it.
    pub left: Option<LeftVersion>,
    /// What it was before the run; `None` if it did not exist.
    pub before: Option<Bytes>,
}

/// The version that a run left of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftVersion {
    /// Its revision. It may come a second time, where etcd was restored from a backup.
    pub revision: String,
    /// Its value; `None` if the run was to delete it and got as far as the mark.
    pub value: Option<Bytes>,
}

impl UndoObject {
    /// When it is written, if one write cannot hold a whole step. As with Calico, what claims an address comes before
    /// the block that records it, and what gives it up after that block (facts 3.14).
    fn phase(&self) -> u8 {
        let left = self.left.as_ref().and_then(|left| left.value.as_ref());
        match &self.key {
            Key::Block(_) => 1,
            Key::Handle(id) => {
                let count = |value: Option<&Bytes>| {
                    let handle =
                        value.and_then(|raw| Handle::parse(id, raw).ok()).filter(|h| !h.is_deleted());
                    handle.map_or(0, |handle| {
                        handle.blocks().map(|(_, count)| count).fold(0, i64::saturating_add)
                    })
                };
                if count(self.before.as_ref()) > count(left) { 0 } else { 2 }
            }
            _ => {
                if self.before.is_some() && left.is_none() {
                    0
                } else {
                    2
                }
            }
        }
    }
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
    pub fn new(recorded: &Recorded) -> Result<Self, RepairError> {
        let mut plan = Self {
            cluster: recorded.header.cluster.clone(),
            began: recorded.header.started_at.parse().ok(),
            steps: Vec::new(),
            skipped: Vec::new(),
            already: 0,
        };
        let mut nets: BTreeMap<Key, Net> = BTreeMap::new();

        let mut together: Vec<Together> = Vec::new();
        let is_marked = is_marked(recorded);

        for intent in &recorded.intents {
            let outcome = recorded.outcomes.get(&intent.id);
            let mut awaited = Vec::new();
            match outcome.map(|outcome| &outcome.written) {
                Some(Some(revisions)) => {
                    wrote(intent, revisions, is_marked)?.into_iter().for_each(|wrote| note(&mut nets, wrote));
                }
                Some(None) if recorded.awaited.contains(&intent.id) => awaited.push(as_before(intent)?),
                Some(None) => continue,
                None => {}
            }
            together.push(Together {
                awaited,
                steps: BTreeSet::from([intent.step]),
                keys: keys(intent)?.into_iter().collect(),
                absent: absent(intent),
                is_known: outcome.is_some(),
                reason: intent.reason.clone(),
            });
        }

        for Together { keys, awaited, absent, is_known, reason, .. } in join(together) {
            // What is written at once arrives at once: one of its objects tells.
            let one =
                |intent: Vec<UndoObject>| intent.into_iter().find(|object| !nets.contains_key(&object.key));
            let awaited = awaited.into_iter().filter_map(one).collect();
            let nets: Vec<&Net> = keys.iter().filter_map(|key| nets.get(key)).collect();
            if nets.is_empty() && is_known {
                continue;
            }
            let why_not = match nets.iter().any(|net| net.broken) {
                _ if !is_known => Some(UNRESOLVED),
                true => Some("others changed it between two writes of the run"),
                false => None,
            };
            if let Some(reason) = why_not {
                plan.skipped.push(NotUndone { keys: keys.into_iter().collect(), reason: reason.into() });
                continue;
            }
            let objects = nets.into_iter().map(|net| net.object.clone()).collect();
            plan.steps.push(UndoStep { reason, objects, awaited, absent });
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

    /// Objects that are as they were before the run, and are left out for that.
    pub fn already(&self) -> usize {
        self.already
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
            blocks: count(|key| matches!(key, Key::Block(_))),
            handles: count(|key| matches!(key, Key::Handle(_))),
            others: count(|key| !matches!(key, Key::Block(_) | Key::Handle(_))),
            ..Question::default()
        }
    }
}

const UNRESOLVED: &str = "the run ended while it was written, and others have changed it since";

/// True if a deletion has two steps, of which the first is a mark.
fn is_marked(recorded: &Recorded) -> bool {
    recorded.header.datastore == DatastoreKind::Kubernetes.to_string()
}

fn keys(intent: &Intent) -> Result<Vec<Key>, RepairError> {
    intent.changes.iter().map(|change| key_of(&change.key)).collect()
}

/// The objects of an intent as they were before it.
fn as_before(intent: &Intent) -> Result<Vec<UndoObject>, RepairError> {
    let object = |change: &ChangeRecord| {
        let before = change.before.as_ref();
        let value = before.and_then(|version| version.value.bytes());
        let left =
            before.map(|version| LeftVersion { revision: version.revision.clone(), value: value.clone() });
        Ok(UndoObject { key: key_of(&change.key)?, left, before: value })
    };
    intent.changes.iter().map(object).collect()
}

/// The blocks that had to be absent for it.
fn absent(intent: &Intent) -> BTreeSet<Key> {
    let guards = intent.guards.iter().filter(|guard| guard.revision.is_none());
    let keys = guards.filter_map(|guard| key_of(&guard.key).ok());
    keys.filter(|key| matches!(key, Key::Block(_))).collect()
}

/// What one write did to one object.
struct Wrote {
    key: Key,
    /// The version that it found; `None` if there was none.
    found: Option<LeftVersion>,
    /// What it left; `None` if it deleted it.
    left: Option<LeftVersion>,
}

/// What an intent did that was written. A deletion on Kubernetes has a revision only if it got as far as the mark
/// (`is_marked`); in etcd it has one, too, but leaves nothing.
fn wrote(intent: &Intent, revisions: &[Option<String>], is_marked: bool) -> Result<Vec<Wrote>, RepairError> {
    let one = |(change, revision): (&ChangeRecord, &Option<String>)| {
        let found = change.before.as_ref().and_then(|version| {
            Some(LeftVersion { revision: version.revision.clone(), value: Some(version.value.bytes()?) })
        });
        let stays = change.after.is_some() || is_marked;
        let left = revision
            .clone()
            .filter(|_| stays)
            .map(|revision| LeftVersion { revision, value: change.after.as_ref().and_then(Value::bytes) });
        Ok(Wrote { key: key_of(&change.key)?, found, left })
    };
    intent.changes.iter().zip(revisions).map(one).collect()
}

/// Adds one write to what the run did to each object.
fn note(nets: &mut BTreeMap<Key, Net>, wrote: Wrote) {
    let Wrote { key, found, left } = wrote;
    match nets.get_mut(&key) {
        Some(net) => {
            net.broken |= !is_same_version(&key, net.object.left.as_ref(), found.as_ref());
            net.object.left = left;
        }
        None => {
            let before = found.and_then(|version| version.value);
            let object = UndoObject { key: key.clone(), left, before };
            nets.insert(key, Net { object, broken: false });
        }
    }
}

fn is_same_version(key: &Key, left: Option<&LeftVersion>, found: Option<&LeftVersion>) -> bool {
    let (left, found) = match (left, found) {
        (None, None) => return true,
        (Some(left), Some(found)) => (left, found),
        _ => return false,
    };
    let is_value = left.value.as_ref().zip(found.value.as_ref()).is_none_or(|(a, b)| same_value(a, b));
    (left.revision == found.revision || goes_by_value(key.clone())) && is_value
}

/// What is undone as a whole or not at all.
struct Together {
    /// Steps of the run that is undone.
    steps: BTreeSet<usize>,
    keys: BTreeSet<Key>,
    /// By intent.
    awaited: Vec<Vec<UndoObject>>,
    absent: BTreeSet<Key>,
    /// It is known what became of all that was to be written.
    is_known: bool,
    reason: String,
}

/// Joins what belongs to one step of the run, and steps that have an object in common.
fn join(together: Vec<Together>) -> Vec<Together> {
    let mut sets: Vec<Option<Together>> = Vec::new();
    let (mut set_of, mut set_of_step) = (BTreeMap::<Key, usize>::new(), BTreeMap::<usize, usize>::new());
    for mut all in together {
        let of_keys = all.keys.iter().filter_map(|key| set_of.get(key));
        let of_steps = all.steps.iter().filter_map(|step| set_of_step.get(step));
        let joined: BTreeSet<usize> = of_keys.chain(of_steps).copied().collect();
        // The larger one takes the smaller ones in, so that many intents of one step do not take forever.
        let largest =
            joined.iter().copied().max_by_key(|index| sets[*index].as_ref().map(|set| set.keys.len()));
        let index = largest.unwrap_or(sets.len());
        for other in joined.into_iter().filter(|other| *other != index) {
            if let Some(mut other) = sets[other].take() {
                all.take_in(&mut other);
            }
        }
        set_of.extend(all.keys.iter().map(|key| (key.clone(), index)));
        set_of_step.extend(all.steps.iter().map(|step| (*step, index)));
        match sets.get_mut(index) {
            Some(Some(set)) => set.take_in(&mut all),
            _ => sets.push(Some(all)),
        }
    }

    sets.into_iter().flatten().collect()
}

impl Together {
    fn take_in(&mut self, other: &mut Self) {
        self.steps.append(&mut other.steps);
        self.keys.append(&mut other.keys);
        self.awaited.append(&mut other.awaited);
        self.absent.append(&mut other.absent);
        self.is_known &= other.is_known;
        if !self.reason.contains(&other.reason) {
            self.reason = format!("{}; {}", self.reason, other.reason);
        }
    }
}

/// Undoes a run as planned. Objects that have changed since are refused, with everything that was written
/// together with them, and reported as conflicts.
///
/// # Errors
/// If the cluster is another one, consent does not cover the plan, or the journal of the undoing
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

    // Again: between plan and consent others may have created something.
    let refusals = in_the_way(datastore, &plan.steps, plan.began).await?;
    let groups = groups(plan.steps.clone(), refusals, &writer);
    carry_out(datastore, writer, &purpose.cluster, options, groups).await
}

fn groups(steps: Vec<UndoStep>, refusals: Vec<Option<String>>, writer: &Writer) -> Vec<Group> {
    let limits = writer.limits();
    let group = |(index, (step, refusal)): (usize, (UndoStep, Option<String>))| {
        let mut objects = step.objects.clone();
        objects.sort_by_key(UndoObject::phase);
        let whole: Arc<UndoStep> = Arc::new(UndoStep { objects, ..step });
        let most = limits.changes.min(limits.conditions.saturating_sub(whole.awaited.len())).max(1);
        let evidence = limits.conditions.saturating_sub(most);
        let task = |from: usize| -> Arc<dyn Task> {
            let to = (from + most).min(whole.objects.len());
            Arc::new(UndoTask { step: Arc::clone(&whole), from, to, evidence, refusal: refusal.clone() })
        };
        let tasks = (0..whole.objects.len()).step_by(most).map(task).collect();
        Group { step: index, reason: format!("undo: {}", whole.reason), cooling: None, tasks }
    };
    steps.into_iter().zip(refusals).enumerate().map(group).collect()
}
