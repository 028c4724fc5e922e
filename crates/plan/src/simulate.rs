//! What a snapshot becomes when a plan is carried out.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use calipam_model::edit::{Current, Edit, apply};
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use jiff::Timestamp;

use crate::plan::Plan;
use crate::take_back::{Replaced, TakeBack, indices};

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
pub fn simulate(snapshot: Snapshot, plan: &Plan, now: Timestamp) -> Result<Snapshot, SimulationError> {
    let (snapshot, _, result) = carry_out(snapshot, plan, now);
    result.map(|()| snapshot)
}

/// The same, where the snapshot is needed again: as far as the steps could be made, and how to take them back.
pub(crate) fn carry_out(
    snapshot: Snapshot,
    plan: &Plan,
    now: Timestamp,
) -> (Snapshot, TakeBack, Result<(), SimulationError>) {
    let mut world = World::new(snapshot, plan);
    let result = plan.actions.iter().try_for_each(|action| {
        let changes = apply(action.step.edits(), now, |key| world.current(key));
        let changes =
            changes.map_err(|reason| SimulationError { step: action.step.reason.clone(), reason })?;
        changes.into_iter().for_each(|(key, object)| world.put(key, object));
        Ok(())
    });
    let (snapshot, take_back) = world.into_snapshot();
    (snapshot, take_back, result)
}

/// A snapshot whose objects can be found and changed by key.
struct World {
    snapshot: Snapshot,
    /// The indices of the objects that the plan touches.
    indices: HashMap<Key, usize>,
    /// Objects that are gone; they are removed at the end, so that indices stay as they are.
    gone: HashSet<Key>,
    take_back: TakeBack,
    /// What is written to affinities carries labels.
    labels: bool,
}

impl World {
    fn new(snapshot: Snapshot, plan: &Plan) -> Self {
        let edits = plan.actions.iter().flat_map(|action| action.step.edits());
        let wanted: HashSet<Key> = edits.map(Edit::key).collect();
        let indices = indices(&snapshot, &wanted);
        let labels = snapshot.labels_affinities();
        Self { snapshot, indices, gone: HashSet::new(), take_back: TakeBack::default(), labels }
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
                self.store(key, index, |s| &mut s.blocks, Versioned { value, revision }, Replaced::block);
            }
            (Some(Object::Handle(value)), _) => {
                self.store(key, index, |s| &mut s.handles, Versioned { value, revision }, Replaced::handle);
            }
            (Some(Object::Affinity(value)), _) => {
                let affinity = Versioned { value, revision };
                self.store(key, index, |s| &mut s.affinities, affinity, Replaced::affinity);
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
        replaced: fn(Versioned<T>, &Versioned<T>) -> Replaced,
    ) {
        let list = list(&mut self.snapshot);
        match index {
            Some(index) => {
                let before = std::mem::replace(&mut list[index], object);
                self.take_back.replaced(replaced(before, &list[index]));
            }
            None => {
                self.indices.insert(key.clone(), list.len());
                list.push(object);
                self.take_back.created(key);
            }
        }
    }

    fn into_snapshot(self) -> (Snapshot, TakeBack) {
        let Self { mut snapshot, gone, mut take_back, .. } = self;
        if !gone.is_empty() {
            take_back.remove(&mut snapshot, &gone);
        }
        (snapshot, take_back)
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
