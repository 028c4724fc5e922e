//! What a snapshot becomes when a plan is carried out.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use calipam_model::edit::{Current, Edit, EditError, apply};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use jiff::Timestamp;

use super::revert::{Replaced, Revert, indices};
use crate::plan::Plan;

/// A step that cannot be made on the very data that it was planned on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step for {step} cannot be made: {reason}")]
pub struct StepError {
    /// The reason that the step states.
    pub step: String,
    /// The guard that does not hold.
    pub reason: Box<EditError>,
}

/// Makes all steps of a plan on the snapshot that it was planned on.
pub fn apply_plan(snapshot: Snapshot, plan: &Plan, now: Timestamp) -> Result<Snapshot, StepError> {
    let (snapshot, _, result) = apply_with_revert(snapshot, plan, now);
    result.map(|()| snapshot)
}

/// The same, where the snapshot is needed again: as far as the steps could be made, and how to revert them.
pub(super) fn apply_with_revert(
    snapshot: Snapshot,
    plan: &Plan,
    now: Timestamp,
) -> (Snapshot, Revert, Result<(), StepError>) {
    let mut objects = Objects::new(snapshot, plan);
    let result = plan.actions.iter().try_for_each(|action| {
        let changes = apply(action.step.edits(), now, |key| objects.current(key));
        let changes = changes
            .map_err(|reason| StepError { step: action.step.reason.clone(), reason: reason.into() })?;
        changes.into_iter().for_each(|(key, object)| objects.put(key, object));
        Ok(())
    });
    let (snapshot, revert) = objects.into_snapshot();

    (snapshot, revert, result)
}

/// A snapshot whose objects can be found and changed by key.
struct Objects {
    snapshot: Snapshot,
    /// The indices of the objects that the plan touches.
    indices: HashMap<Key, usize>,
    /// Objects that are gone; they are removed at the end, so that indices stay as they are.
    gone: HashSet<Key>,
    revert: Revert,
    /// What is written to affinities carries labels.
    labels: bool,
}

impl Objects {
    fn new(snapshot: Snapshot, plan: &Plan) -> Self {
        let edits = plan.actions.iter().flat_map(|action| action.step.edits());
        let wanted: HashSet<Key> = edits.map(Edit::key).collect();
        let indices = indices(&snapshot, &wanted);
        let labels = snapshot.labels_affinities();
        Self { snapshot, indices, gone: HashSet::new(), revert: Revert::default(), labels }
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
                self.store(key, index, |s| &mut s.blocks, Versioned { value, revision }, Replaced::Block);
            }
            (Some(Object::Handle(value)), _) => {
                self.store(key, index, |s| &mut s.handles, Versioned { value, revision }, Replaced::Handle);
            }
            (Some(Object::Affinity(value)), _) => {
                let affinity = Versioned { value, revision };
                self.store(key, index, |s| &mut s.affinities, affinity, Replaced::Affinity);
            }
            // Plans that change pools or the configuration are checked by what they are, not by findings.
            (Some(Object::Block(_) | Object::Pool(_) | Object::IpamConfig(_)), _) => {}
        }
    }

    fn store<T>(
        &mut self,
        key: Key,
        index: Option<usize>,
        list: fn(&mut Snapshot) -> &mut Vec<Versioned<T>>,
        object: Versioned<T>,
        replaced: fn(Versioned<T>) -> Replaced,
    ) {
        let list = list(&mut self.snapshot);
        match index {
            Some(index) => {
                let before = std::mem::replace(&mut list[index], object);
                self.revert.replaced(replaced(before));
            }
            None => {
                self.indices.insert(key.clone(), list.len());
                list.push(object);
                self.revert.created(key);
            }
        }
    }

    fn into_snapshot(self) -> (Snapshot, Revert) {
        let Self { mut snapshot, gone, mut revert, .. } = self;
        if !gone.is_empty() {
            revert.remove(&mut snapshot, &gone);
        }
        (snapshot, revert)
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
