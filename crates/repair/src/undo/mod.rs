//! Undoes a run by inverting the writes in its journal.

mod conflicts;
mod later;
mod refusal;
mod restored;
mod task;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Limits, ObjectCounts};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use jiff::Timestamp;

use self::conflicts::refusals;
use self::task::{Part, UndoTask};
use crate::engine::{Execution, Group, Objects, Task};
use crate::error::Result;
use crate::journal::{Intent, Recorded, Value, Version, compared_by_value, key_of, same_value};
use crate::session::{Options, Purpose, carry_out, writer};

/// The plan to undo a run.
#[derive(Clone, Debug)]
pub struct UndoPlan {
    cluster: String,
    /// The start of the run, by the clock of the machine on which it ran.
    began: Option<Timestamp>,
    steps: Vec<UndoStep>,
    skipped: Vec<NotUndone>,
    already: usize,
    late: Vec<Key>,
}

/// Objects that the run wrote together and the undo restores together.
#[derive(Clone, Debug)]
pub struct UndoStep {
    /// The reason for the step that is undone, for human readers.
    pub reason: String,
    pub objects: Vec<UndoObject>,
    /// One object of each write that a killed run sent and that may still arrive. The undo first writes the object
    /// again as it is: the late write then finds another version, and fails.
    pub fences: Vec<UndoObject>,
    /// Objects that must not have changed: those on which the step depends, and those that a late write of a killed run
    /// would create. A step is undone completely or not at all.
    pub awaited: Vec<UndoObject>,
    /// Objects whose last write by the run perhaps arrived after an earlier undo.
    pub arrived: BTreeSet<Key>,
    /// Blocks that had to be absent for the repair.
    pub absent: BTreeSet<Key>,
    /// The objects as the plan found them, if each of them is as the run left it. A write that compares all of them with
    /// these versions need not read them again.
    pub(crate) found: Arc<Objects>,
}

/// One object to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoObject {
    pub key: Key,
    /// The version after the run; `None` if the run deleted the object.
    pub left: Option<LeftVersion>,
    /// The value before the run; `None` if the object did not exist.
    pub before: Option<Bytes>,
}

/// The version of an object that a run left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftVersion {
    /// The revision, which may be reused if etcd is restored from a backup.
    pub revision: String,
    /// The value; `None` if the run only marked the object deleted.
    pub value: Option<Bytes>,
}

impl LeftVersion {
    fn of(version: &Version) -> Self {
        Self {
            revision: version.revision.clone(),
            value: version.value.bytes(),
        }
    }
}

impl UndoStep {
    /// Returns true if one transaction changes every object that the step checks, and so compares all of them.
    fn is_compared_by_one_write(&self, limits: Limits) -> bool {
        // Without transactions, nearly every step has several writes, the first of which checks all objects.
        limits.changes > 1
            && self.objects.len() <= limits.changes.min(limits.conditions)
            && self.fences.is_empty()
            && self.awaited.is_empty()
    }
}

impl UndoObject {
    /// Creates an object that must stay at a version.
    fn unchanged(key: Key, version: Option<LeftVersion>) -> Self {
        Self {
            key,
            before: version.as_ref().and_then(|version| version.value.clone()),
            left: version,
        }
    }

    /// Returns the phase in which the object is written if the step does not fit into one write.
    fn phase(&self) -> Phase {
        let before = self.before.as_ref();
        let left = self.left.as_ref().and_then(|left| left.value.as_ref());
        let is_claim = match &self.key {
            Key::Block(_) => return Phase::Blocks,
            Key::Handle(id) => addresses_of_handle(id, before) > addresses_of_handle(id, left),
            _ => before.is_some() && left.is_none(),
        };
        if is_claim { Phase::Claims } else { Phase::Releases }
    }
}

/// The order of the writes of a step. As in Calico, claims come before the block, and releases after it, so that a block
/// never has an address without its handle or affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Claims,
    Blocks,
    Releases,
}

/// Returns the number of addresses that a handle's value counts; 0 if the handle does not exist or is marked deleted.
fn addresses_of_handle(id: &str, value: Option<&Bytes>) -> i64 {
    let Some(Ok(handle)) = value.map(|raw| Handle::parse(id, raw)) else {
        return 0;
    };
    if handle.is_deleted() { 0 } else { handle.total() }
}

/// Objects that are not undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUndone {
    pub keys: Vec<Key>,
    pub reason: String,
}

/// The sum of all changes that a run made to one object.
struct NetChange {
    object: UndoObject,
    /// True if another client changed the object between two writes of the run.
    is_broken: bool,
}

/// The objects of the writes that a killed run sent and that may still arrive.
#[derive(Default)]
struct LateWrites {
    /// One object of each write that changes or deletes an object.
    fences: Vec<UndoObject>,
    /// The objects of the writes that only create objects.
    created: Vec<UndoObject>,
}

impl LateWrites {
    /// Picks the objects from those of each write that is awaited. `nets` are the objects that the run has changed.
    fn of(awaited: Vec<Vec<UndoObject>>, nets: &BTreeMap<Key, NetChange>) -> Self {
        let mut late = Self::default();
        for objects in awaited {
            // A late write fails if one of its objects has another version, also one that the undo restores.
            if objects.iter().any(|object| nets.contains_key(&object.key)) {
                continue;
            }
            match objects.iter().find(|object| object.left.is_some()) {
                Some(fence) => late.fences.push(fence.clone()),
                None => late.created.extend(objects),
            }
        }
        late
    }
}

impl UndoPlan {
    /// Plans the inverse of a run. [`resolve`](crate::journal::resolve()) has to resolve its open intents first;
    /// unresolved intents are skipped.
    ///
    /// # Errors
    /// If the journal names an object that calipam never writes.
    pub fn new(recorded: &Recorded) -> Result<Self> {
        let mut plan = Self {
            cluster: recorded.header.cluster.clone(),
            began: recorded.header.started_at.parse().ok(),
            steps: Vec::new(),
            skipped: Vec::new(),
            already: 0,
            late: Vec::new(),
        };
        let mut nets: BTreeMap<Key, NetChange> = BTreeMap::new();
        let mut units: Vec<UndoUnit> = Vec::new();
        let is_marked = is_marked(recorded);

        for intent in &recorded.intents {
            let outcome = recorded.outcomes.get(&intent.id);
            let keys: BTreeSet<Key> = intent.keys()?.into_iter().collect();
            let mut awaited = Vec::new();
            match outcome.map(|outcome| &outcome.written) {
                Some(Some(revisions)) => {
                    for write in object_writes(intent, revisions, is_marked)? {
                        add_write(&mut nets, write);
                    }
                }
                Some(None) if recorded.awaited.contains(&intent.id) => awaited.push(as_before(intent)?),
                Some(None) => continue,
                None => {}
            }

            let arrived = if recorded.arrived.contains(&intent.id) {
                keys.clone()
            } else {
                BTreeSet::new()
            };
            units.push(UndoUnit {
                awaited,
                steps: BTreeSet::from([intent.step]),
                arrived,
                keys,
                absent: absent(intent),
                is_known: outcome.is_some(),
                reason: intent.reason.clone(),
            });
        }

        for unit in join(units) {
            plan.add(unit, &nets);
        }
        Ok(plan)
    }

    /// Adds the step that undoes a unit, or the reason why it is not undone.
    fn add(&mut self, unit: UndoUnit, nets: &BTreeMap<Key, NetChange>) {
        let late = LateWrites::of(unit.awaited, nets);
        self.late
            .extend(late.created.iter().map(|object| object.key.clone()));

        let changes: Vec<&NetChange> = unit.keys.iter().filter_map(|key| nets.get(key)).collect();
        let refusal = if !unit.is_known {
            Some(UNRESOLVED)
        } else if changes.iter().any(|change| change.is_broken) {
            Some(BROKEN)
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.skipped.push(NotUndone {
                keys: unit.keys.into_iter().collect(),
                reason: reason.into(),
            });
            return;
        }

        if changes.is_empty() && late.fences.is_empty() {
            return;
        }
        self.steps.push(UndoStep {
            reason: unit.reason,
            objects: changes.into_iter().map(|change| change.object.clone()).collect(),
            fences: late.fences,
            awaited: late.created,
            arrived: unit.arrived,
            absent: unit.absent,
            found: Arc::default(),
        });
    }

    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn steps(&self) -> &[UndoStep] {
        &self.steps
    }

    /// Returns the number of objects that need no undo because they are as they were before the run.
    pub fn already(&self) -> usize {
        self.already
    }

    pub fn skipped(&self) -> &[NotUndone] {
        &self.skipped
    }

    /// Returns the objects that a late write of a killed run may still create. No version of an object that does not
    /// exist can be changed, so nothing prevents such a write.
    pub fn late(&self) -> &[Key] {
        &self.late
    }

    /// Returns the objects that the undo writes.
    pub fn written(&self) -> impl Iterator<Item = &UndoObject> {
        self.steps
            .iter()
            .flat_map(|step| step.fences.iter().chain(&step.objects))
    }

    /// Counts the objects that the undo writes. Addresses are not counted: undo restores whole objects.
    pub fn counts(&self) -> ObjectCounts {
        let mut counts = ObjectCounts::default();
        for object in self.written() {
            match object.key {
                Key::Block(_) => counts.blocks += 1,
                Key::Handle(_) => counts.handles += 1,
                _ => counts.others += 1,
            }
        }
        counts
    }
}

const UNRESOLVED: &str = "the run ended while it was being written, and others have since changed it";
const BROKEN: &str = "others changed it between two writes of the run";

/// Returns true if a deletion takes two steps: first the object is marked deleted, then it is deleted.
fn is_marked(recorded: &Recorded) -> bool {
    recorded.header.datastore == DatastoreKind::Kubernetes
}

/// Returns the objects of an intent as they were before it.
fn as_before(intent: &Intent) -> Result<Vec<UndoObject>> {
    let mut objects = Vec::with_capacity(intent.changes.len());
    for change in &intent.changes {
        let key = key_of(&change.key)?;
        let version = change.before.as_ref().map(LeftVersion::of);
        objects.push(UndoObject::unchanged(key, version));
    }
    Ok(objects)
}

/// Returns the blocks whose absence an intent required.
fn absent(intent: &Intent) -> BTreeSet<Key> {
    let mut blocks = BTreeSet::new();
    for guard in &intent.guards {
        if guard.revision.is_none()
            && let Ok(key @ Key::Block(_)) = key_of(&guard.key)
        {
            blocks.insert(key);
        }
    }
    blocks
}

/// One write of one object.
struct ObjectWrite {
    key: Key,
    /// The version before the write; `None` if there was none.
    found: Option<LeftVersion>,
    /// The version after the write; `None` if the object was deleted.
    left: Option<LeftVersion>,
}

/// Returns the writes that an intent made to each of its objects. On Kubernetes (`is_marked`), a deletion has a
/// revision only if it stopped at the mark. In etcd, a deletion also has a revision, but leaves no object.
fn object_writes(intent: &Intent, revisions: &[Option<String>], is_marked: bool) -> Result<Vec<ObjectWrite>> {
    let mut writes = Vec::new();
    for (change, revision) in intent.changes.iter().zip(revisions) {
        let before = change.before.as_ref().map(LeftVersion::of);
        let leaves_object = change.after.is_some() || is_marked;
        let left = match revision {
            Some(revision) if leaves_object => Some(LeftVersion {
                revision: revision.clone(),
                value: change.after.as_ref().and_then(Value::bytes),
            }),
            Some(_) | None => None,
        };
        writes.push(ObjectWrite {
            key: key_of(&change.key)?,
            found: before.filter(|version| version.value.is_some()),
            left,
        });
    }
    Ok(writes)
}

/// Adds one write to the changes of its object.
fn add_write(nets: &mut BTreeMap<Key, NetChange>, write: ObjectWrite) {
    let ObjectWrite { key, found, left } = write;
    match nets.get_mut(&key) {
        Some(net) => {
            net.is_broken |= !is_same_version(&key, net.object.left.as_ref(), found.as_ref());
            net.object.left = left;
        }
        None => {
            let before = found.and_then(|version| version.value);
            let object = UndoObject {
                key: key.clone(),
                left,
                before,
            };
            let net = NetChange {
                object,
                is_broken: false,
            };
            nets.insert(key, net);
        }
    }
}

/// True if a write found an object as the run's write before it had left it.
fn is_same_version(key: &Key, left: Option<&LeftVersion>, found: Option<&LeftVersion>) -> bool {
    let (Some(left), Some(found)) = (left, found) else {
        return left.is_none() && found.is_none();
    };
    let has_same_value = match (&left.value, &found.value) {
        (Some(left), Some(found)) => same_value(left, found),
        _ => true,
    };
    has_same_value && (left.revision == found.revision || compared_by_value(key.clone()))
}

/// Objects that are undone together or not at all.
struct UndoUnit {
    /// The steps of the undone run that these objects belong to.
    steps: BTreeSet<usize>,
    keys: BTreeSet<Key>,
    /// The awaited objects of each intent.
    awaited: Vec<Vec<UndoObject>>,
    arrived: BTreeSet<Key>,
    absent: BTreeSet<Key>,
    /// True if all outcomes are known.
    is_known: bool,
    reason: String,
}

/// Merges units that come from the same step of the run or have an object in common.
fn join(units: Vec<UndoUnit>) -> Vec<UndoUnit> {
    let mut joined = JoinedUnits::default();
    for unit in units {
        joined.add(unit);
    }
    joined.units.into_iter().flatten().collect()
}

/// Units without a step or an object in common.
#[derive(Default)]
struct JoinedUnits {
    /// A unit that was merged into another one leaves `None` in its place, so that the others keep theirs.
    units: Vec<Option<UndoUnit>>,
    place_of_key: BTreeMap<Key, usize>,
    place_of_step: BTreeMap<usize, usize>,
}

impl JoinedUnits {
    /// Adds a unit, merged with all units that have a step or an object in common with it.
    fn add(&mut self, mut unit: UndoUnit) {
        // The smaller units are merged into the largest, so that joining many intents of one step stays fast.
        let number_of_keys = |place: &usize| self.units[*place].as_ref().map(|unit| unit.keys.len());
        let related_places = self.related_places(&unit);
        let largest = related_places.iter().copied().max_by_key(number_of_keys);
        let place = largest.unwrap_or(self.units.len());
        for related in related_places {
            if related != place
                && let Some(mut smaller) = self.units[related].take()
            {
                unit.merge(&mut smaller);
            }
        }

        for key in &unit.keys {
            self.place_of_key.insert(key.clone(), place);
        }
        for step in &unit.steps {
            self.place_of_step.insert(*step, place);
        }
        match self.units.get_mut(place) {
            Some(Some(existing)) => existing.merge(&mut unit),
            _ => self.units.push(Some(unit)),
        }
    }

    /// Returns the places of the units that have a step or an object in common with a new unit.
    fn related_places(&self, unit: &UndoUnit) -> BTreeSet<usize> {
        let by_key = unit.keys.iter().filter_map(|key| self.place_of_key.get(key));
        let by_step = unit.steps.iter().filter_map(|step| self.place_of_step.get(step));
        by_key.chain(by_step).copied().collect()
    }
}

impl UndoUnit {
    /// Moves the parts of another unit into this one, and appends its reason.
    fn merge(&mut self, other: &mut Self) {
        self.steps.append(&mut other.steps);
        self.keys.append(&mut other.keys);
        self.awaited.append(&mut other.awaited);
        self.arrived.append(&mut other.arrived);
        self.absent.append(&mut other.absent);
        self.is_known &= other.is_known;
        if !self.reason.contains(&other.reason) {
            self.reason = format!("{}; {}", self.reason, other.reason);
        }
    }
}

/// Undoes a run as planned. Objects that have changed since the run are refused and reported as conflicts, together
/// with all objects that were written with them.
///
/// # Errors
/// If the cluster is another one, consent does not cover the plan, the journal of the undo cannot be created, or the
/// lock cannot be taken. Later errors are in the [`Execution`].
pub async fn undo(
    datastore: &Datastore,
    plan: &UndoPlan,
    consent: Consent,
    options: &Options,
) -> Result<Execution> {
    let purpose = Purpose {
        what: "journal",
        cluster: plan.cluster.clone(),
        objects: plan.written().count(),
    };
    let writer = writer(datastore, consent, &purpose).await?;

    let limits = writer.limits();
    let mut steps = plan.steps.clone();
    for step in &mut steps {
        if !step.is_compared_by_one_write(limits) {
            step.found = Arc::default();
        }
    }

    // Checked again, because other clients may have created objects between the plan and the consent.
    let refusals = refusals(datastore, &steps, plan.began).await?;
    let groups = groups(steps, refusals, limits);
    carry_out(datastore, writer, &purpose.cluster, options, groups).await
}

/// Makes a group of tasks for each step, with as many objects in a task as one write takes.
fn groups(steps: Vec<UndoStep>, refusals: Vec<Option<String>>, limits: Limits) -> Vec<Group> {
    let mut groups = Vec::with_capacity(steps.len());
    for (index, (mut step, refusal)) in steps.into_iter().zip(refusals).enumerate() {
        step.objects.sort_by_key(UndoObject::phase);
        let step = Arc::new(step);
        // The write of a task also has a condition for each awaited object.
        let room = limits.conditions.saturating_sub(step.awaited.len());
        let most = limits.changes.min(room).max(1);

        let mut tasks: Vec<Arc<dyn Task>> = Vec::new();
        for (part, number) in [
            (Part::Fences, step.fences.len()),
            (Part::Objects, step.objects.len()),
        ] {
            for start in (0..number).step_by(most) {
                tasks.push(Arc::new(UndoTask {
                    step: Arc::clone(&step),
                    part,
                    range: start..(start + most).min(number),
                    evidence: limits.conditions.saturating_sub(most),
                    refusal: refusal.clone(),
                }));
            }
        }
        groups.push(Group {
            step: index,
            reason: format!("undo: {}", step.reason),
            cooling: None,
            tasks,
        });
    }
    groups
}
