//! Applies the steps of a plan to a snapshot.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use calipam_model::affinity::Affinity;
use calipam_model::edit::{Current, EditError, apply};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use jiff::Timestamp;

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
    let mut objects = Touched::take(&mut snapshot, &plan.keys());
    objects.apply(plan, &snapshot, now)?;
    objects.put_into(&mut snapshot);
    Ok(snapshot)
}

/// The blocks, handles and affinities that a plan touches, out of their snapshot.
#[derive(Clone)]
pub(super) struct Touched(BTreeMap<Key, Versioned<Object>>);

impl Touched {
    /// Takes objects out of a snapshot.
    pub(super) fn take(snapshot: &mut Snapshot, keys: &HashSet<Key>) -> Self {
        let mut taken = BTreeMap::new();
        for block in snapshot.blocks.extract_if(.., |block| keys.contains(&Key::Block(block.value.key))) {
            let object = Object::Block(block.value.content);
            taken.insert(Key::Block(block.value.key), Versioned { value: object, revision: block.revision });
        }
        let key = |affinity: &Versioned<Affinity>| Key::Affinity(affinity.value.key.clone());
        for Versioned { value, revision } in
            snapshot.affinities.extract_if(.., |affinity| keys.contains(&key(affinity)))
        {
            let key = Key::Affinity(value.key.clone());
            taken.insert(key, Versioned { value: Object::Affinity(value), revision });
        }
        // There may be a million handles to search.
        if keys.iter().any(|key| matches!(key, Key::Handle(_))) {
            let key = |handle: &Handle| Key::Handle(handle.id().to_string());
            for Versioned { value, revision } in
                snapshot.handles.extract_if(.., |handle| keys.contains(&key(&handle.value)))
            {
                taken.insert(key(&value), Versioned { value: Object::Handle(value), revision });
            }
        }
        Self(taken)
    }

    /// Applies the steps, up to the first one that cannot be applied. `snapshot` has the other objects.
    pub(super) fn apply(
        &mut self,
        plan: &Plan,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<(), StepError> {
        let has_labels = snapshot.labels_affinities();
        for action in &plan.actions {
            let current = |key: &Key| {
                let Versioned { value, revision } = self.0.get(key)?;
                Some(Current { revision, object: Some(Cow::Borrowed(value)) })
            };
            let changes = apply(action.step.edits(), now, current)
                .map_err(|reason| StepError { step: action.step.reason.clone(), reason: reason.into() })?;
            for (key, object) in changes {
                let labels = match &key {
                    Key::Affinity(key) if has_labels => {
                        key.labels().map(|(name, value)| (name.to_owned(), value)).into()
                    }
                    _ => BTreeMap::new(),
                };
                let revision = written(snapshot.datastore, labels);
                match object {
                    Some(value) => drop(self.0.insert(key, Versioned { value, revision })),
                    None => drop(self.0.remove(&key)),
                }
            }
        }
        Ok(())
    }

    /// Puts the objects back into the snapshot, after all others.
    pub(super) fn put_into(self, snapshot: &mut Snapshot) {
        for (key, Versioned { value, revision }) in self.0 {
            match (key, value) {
                (Key::Block(key), Object::Block(content)) => {
                    snapshot.blocks.push(Versioned { value: StoredBlock { key, content }, revision });
                }
                (_, Object::Handle(value)) => snapshot.handles.push(Versioned { value, revision }),
                (_, Object::Affinity(value)) => snapshot.affinities.push(Versioned { value, revision }),
                // Plans that change pools or the configuration are not tried.
                (_, Object::Block(_) | Object::Pool(_) | Object::IpamConfig(_)) => {}
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
