//! Applies the steps of a plan to a snapshot.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use calipam_model::edit::{Current, EditError, apply};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use jiff::Timestamp;

use super::touched::{indices, remove};
use crate::plan::Plan;

/// A step that cannot be applied even to the data that it was planned on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step for {step} cannot be made: {reason}")]
pub struct StepError {
    /// The reason that the step states.
    pub step: String,
    /// The guard that does not hold.
    pub reason: Box<EditError>,
}

/// Applies all steps of a plan to the snapshot that it was planned on.
pub fn apply_plan(mut snapshot: Snapshot, plan: &Plan, now: Timestamp) -> Result<Snapshot, StepError> {
    apply_steps(&mut snapshot, plan, now).map(|()| snapshot)
}

/// Applies the steps, up to the first one that cannot be applied.
pub(super) fn apply_steps(snapshot: &mut Snapshot, plan: &Plan, now: Timestamp) -> Result<(), StepError> {
    let mut objects = Objects::new(snapshot, plan);
    let result = plan.actions.iter().try_for_each(|action| {
        let changes = apply(action.step.edits(), now, |key| objects.current(key));
        let changes = changes
            .map_err(|reason| StepError { step: action.step.reason.clone(), reason: reason.into() })?;
        changes.into_iter().for_each(|(key, object)| objects.put(key, object));
        Ok(())
    });
    let Objects { snapshot, gone, .. } = objects;
    if !gone.is_empty() {
        remove(snapshot, &gone);
    }
    result
}

/// A snapshot whose objects can be found and changed by key.
struct Objects<'s> {
    snapshot: &'s mut Snapshot,
    /// The indices of the objects that the plan touches.
    indices: HashMap<Key, usize>,
    /// Objects that are deleted. They are removed at the end, so that indices stay valid.
    gone: HashSet<Key>,
    /// True if affinities are written with labels.
    labels: bool,
}

impl<'s> Objects<'s> {
    fn new(snapshot: &'s mut Snapshot, plan: &Plan) -> Self {
        let indices = indices(snapshot, &plan.keys());
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
            // Plans that change pools or the configuration are not tried.
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
        let list = list(self.snapshot);
        match index {
            Some(index) => list[index] = object,
            None => {
                self.indices.insert(key, list.len());
                list.push(object);
            }
        }
    }
}

/// Returns the revision of objects that a plan writes. It differs from all revisions that were read.
fn written(datastore: DatastoreKind, labels: BTreeMap<String, String>) -> Revision {
    match datastore {
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Revision::Etcd(i64::MAX),
        DatastoreKind::Kubernetes => {
            let resource_version = "planned".to_owned();
            Revision::Kubernetes(Box::new(ObjectVersion { resource_version, labels, ..Default::default() }))
        }
    }
}
