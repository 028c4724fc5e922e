//! What a snapshot becomes when a plan is carried out.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use calipam_model::affinity::Affinity;
use calipam_model::edit::{Current, Edit, apply};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use jiff::Timestamp;

use crate::plan::Plan;

/// A step that cannot be made on the very data that it was planned on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationError {
    /// The reason that the step states.
    pub step: String,
    /// The guard that does not hold.
    pub reason: String,
}

impl fmt::Display for SimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the step for {} cannot be made: {}", self.step, self.reason)
    }
}

impl std::error::Error for SimulationError {}

/// Makes all steps of a plan on the snapshot that it was planned on.
///
/// # Errors
/// Where a step cannot be made: the plan contradicts the data or itself.
pub fn simulate(snapshot: Snapshot, plan: &Plan, now: Timestamp) -> Result<Snapshot, SimulationError> {
    let (snapshot, result) = carry_out(snapshot, plan, now);
    result.map(|()| snapshot)
}

/// The same, where the snapshot is needed again: as far as the steps could be made.
pub(crate) fn carry_out(
    snapshot: Snapshot,
    plan: &Plan,
    now: Timestamp,
) -> (Snapshot, Result<(), SimulationError>) {
    let mut world = World::new(snapshot, plan);
    let result = plan.actions.iter().try_for_each(|action| {
        let changes = apply(action.step.edits(), now, |key| world.current(key));
        let changes =
            changes.map_err(|reason| SimulationError { step: action.step.reason.clone(), reason })?;
        changes.into_iter().for_each(|(key, object)| world.put(key, object));
        Ok(())
    });
    (world.into_snapshot(), result)
}

/// The objects that a plan touches, as they were before it.
pub(crate) struct Originals {
    touched: HashSet<Key>,
    blocks: Vec<Versioned<StoredBlock>>,
    handles: Vec<Versioned<Handle>>,
    affinities: Vec<Versioned<Affinity>>,
}

impl Originals {
    pub fn new(snapshot: &Snapshot, plan: &Plan) -> Self {
        let touched: HashSet<Key> =
            plan.actions.iter().flat_map(|action| action.step.edits()).map(Edit::key).collect();
        let blocks = snapshot.blocks.iter().filter(|b| touched.contains(&of_block(b))).cloned().collect();
        let handles = if touched.iter().any(|key| matches!(key, Key::Handle(_))) {
            snapshot.handles.iter().filter(|h| touched.contains(&of_handle(h))).cloned().collect()
        } else {
            Vec::new()
        };
        let affinities = snapshot.affinities.iter().filter(|a| touched.contains(&of_affinity(a)));
        let affinities = affinities.cloned().collect();
        Self { touched, blocks, handles, affinities }
    }

    /// Takes back what a simulation has done to the snapshot. The order of the objects may be another.
    pub fn put_back(self, snapshot: &mut Snapshot) {
        let Self { touched, blocks, handles, affinities } = self;
        snapshot.blocks.retain(|block| !touched.contains(&of_block(block)));
        snapshot.blocks.extend(blocks);
        snapshot.handles.retain(|handle| !touched.contains(&of_handle(handle)));
        snapshot.handles.extend(handles);
        snapshot.affinities.retain(|affinity| !touched.contains(&of_affinity(affinity)));
        snapshot.affinities.extend(affinities);
    }
}

fn of_block(block: &Versioned<StoredBlock>) -> Key {
    Key::Block(block.value.key)
}

fn of_handle(handle: &Versioned<Handle>) -> Key {
    Key::Handle(handle.value.id().to_string())
}

fn of_affinity(affinity: &Versioned<Affinity>) -> Key {
    Key::Affinity(affinity.value.key.clone())
}

/// A snapshot whose objects can be found and changed by key.
struct World {
    snapshot: Snapshot,
    /// The indices of the objects that the plan touches.
    indices: HashMap<Key, usize>,
    /// Objects that are gone; they are removed at the end, so that indices stay as they are.
    gone: HashSet<Key>,
    /// What is written to affinities carries labels.
    labels: bool,
}

impl World {
    fn new(snapshot: Snapshot, plan: &Plan) -> Self {
        let edits = plan.actions.iter().flat_map(|action| action.step.edits());
        let wanted: HashSet<Key> = edits.map(Edit::key).collect();
        let mut indices = HashMap::new();
        let mut add = |key: Key, index: usize| {
            if wanted.contains(&key) {
                indices.insert(key, index);
            }
        };
        let blocks = snapshot.blocks.iter().enumerate();
        blocks.for_each(|(index, block)| add(Key::Block(block.value.key), index));
        let affinities = snapshot.affinities.iter().enumerate();
        affinities.for_each(|(index, affinity)| add(Key::Affinity(affinity.value.key.clone()), index));
        if wanted.iter().any(|key| matches!(key, Key::Handle(_))) {
            let handles = snapshot.handles.iter().enumerate();
            handles.for_each(|(index, handle)| add(Key::Handle(handle.value.id().to_string()), index));
        }
        let labels = snapshot.labels_affinities();
        Self { snapshot, indices, gone: HashSet::new(), labels }
    }

    fn current(&self, key: &Key) -> Option<Current<'_>> {
        let index = *self.indices.get(key).filter(|_| !self.gone.contains(key))?;
        let (revision, object) = match key {
            Key::Block(_) => {
                let block = &self.snapshot.blocks[index];
                (&block.revision, Object::Block(block.value.content.clone()))
            }
            Key::Handle(_) => {
                let handle = &self.snapshot.handles[index];
                (&handle.revision, Object::Handle(handle.value.clone()))
            }
            Key::Affinity(_) => {
                let affinity = &self.snapshot.affinities[index];
                (&affinity.revision, Object::Affinity(affinity.value.clone()))
            }
            _ => return None,
        };
        Some(Current { revision, object: Some(Cow::Owned(object)) })
    }

    fn put(&mut self, key: Key, object: Option<Object>) {
        let labels = match &key {
            Key::Affinity(key) if self.labels => {
                key.labels().map(|(name, value)| (name.to_owned(), value)).into()
            }
            _ => BTreeMap::new(),
        };
        let revision = written(self.snapshot.datastore, labels);
        let index = self.indices.get(&key).copied();
        self.gone.remove(&key);
        match (object, &key) {
            (None, _) => drop(self.gone.insert(key)),
            (Some(Object::Block(content)), Key::Block(cidr)) => {
                let value = StoredBlock { key: *cidr, content };
                self.store(key, index, |s| &mut s.blocks, Versioned { value, revision });
            }
            (Some(Object::Handle(value)), _) => {
                self.store(key, index, |s| &mut s.handles, Versioned { value, revision });
            }
            (Some(Object::Affinity(value)), _) => {
                self.store(key, index, |s| &mut s.affinities, Versioned { value, revision });
            }
            // Plans that change pools or the configuration are judged by what they are, not by findings.
            (Some(Object::Block(_) | Object::Pool(_) | Object::IpamConfig(_)), _) => {}
        }
    }

    fn store<T>(
        &mut self,
        key: Key,
        index: Option<usize>,
        list: fn(&mut Snapshot) -> &mut Vec<Versioned<T>>,
        object: Versioned<T>,
    ) {
        let list = list(&mut self.snapshot);
        match index {
            Some(index) => list[index] = object,
            None => {
                self.indices.insert(key, list.len());
                list.push(object);
            }
        }
    }

    fn into_snapshot(self) -> Snapshot {
        let Self { mut snapshot, gone, .. } = self;
        if gone.is_empty() {
            return snapshot;
        }
        snapshot.blocks.retain(|block| !gone.contains(&of_block(block)));
        snapshot.affinities.retain(|affinity| !gone.contains(&of_affinity(affinity)));
        if gone.iter().any(|key| matches!(key, Key::Handle(_))) {
            snapshot.handles.retain(|handle| !gone.contains(&of_handle(handle)));
        }
        snapshot
    }
}

/// The revision of what a plan writes: none that was read is equal to it.
fn written(datastore: DatastoreKind, labels: BTreeMap<String, String>) -> Revision {
    match datastore {
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Revision::Etcd(i64::MAX),
        DatastoreKind::Kubernetes => {
            let resource_version = "planned".to_owned();
            Revision::Kubernetes(Box::new(ObjectVersion { resource_version, labels, ..Default::default() }))
        }
    }
}
