//! Applies the steps of a plan to a snapshot.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use calipam_check::handle_ids;
use calipam_model::affinity::Affinity;
use calipam_model::edit::{Current, EditError, apply};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::parallel::{BLOCKS, OBJECTS, in_parts};
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use jiff::Timestamp;

use crate::plan::Plan;

/// A step that cannot be applied, not even to the data on which it was planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the step for {step} cannot be made: {reason}")]
pub struct StepError {
    /// The reason for the step, as the step states it.
    pub step: String,
    /// The guard that does not hold.
    pub reason: Box<EditError>,
}

/// Applies all steps of a plan to the snapshot that it was planned on.
pub fn apply_plan(mut snapshot: Snapshot, plan: &Plan, now: Timestamp) -> Result<Snapshot, StepError> {
    let mut objects = Touched::take(&mut snapshot, &plan.keys());
    objects.apply(plan, snapshot.datastore, now)?;
    objects.put_into(&mut snapshot);
    Ok(snapshot)
}

/// The blocks, handles and affinities that a plan touches, taken out of their snapshot or copied from it.
#[derive(Clone)]
pub(crate) struct Touched {
    objects: BTreeMap<Key, Versioned<Object>>,
    /// Objects with the key of a later one, such as wrongly named ones on Kubernetes. Only a deletion changes them.
    doubles: Vec<(Key, Versioned<Object>)>,
    /// True if affinities are written with labels.
    has_labels: bool,
}

impl Touched {
    /// Takes objects out of a snapshot.
    pub(crate) fn take(snapshot: &mut Snapshot, keys: &HashSet<Key>) -> Self {
        let has_labels = snapshot.needs_affinity_labels();
        let mut objects = BTreeMap::new();
        let mut doubles = Vec::new();
        let mut add = |key: Key, value: Object, revision: Revision| {
            let object = Versioned { value, revision };
            match objects.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(object);
                }
                Entry::Occupied(mut entry) => {
                    let earlier = entry.insert(object);
                    doubles.push((entry.key().clone(), earlier));
                }
            }
        };

        for block in snapshot
            .blocks
            .extract_if(.., |block| keys.contains(&Key::Block(block.value.key)))
        {
            add(
                Key::Block(block.value.key),
                Object::Block(block.value.content),
                block.revision,
            );
        }
        let key = |affinity: &Affinity| Key::Affinity(affinity.key.clone());
        for Versioned { value, revision } in snapshot
            .affinities
            .extract_if(.., |affinity| keys.contains(&key(&affinity.value)))
        {
            add(key(&value), Object::Affinity(value), revision);
        }
        // There may be a million handles to search.
        let handles = handle_ids(keys);
        if !handles.is_empty() {
            let is_taken = |handle: &mut Versioned<Handle>| handles.contains(handle.value.id().packed());
            for Versioned { value, revision } in snapshot.handles.extract_if(.., is_taken) {
                let key = Key::Handle(value.id().to_string());
                add(key, Object::Handle(value), revision);
            }
        }
        Self {
            objects,
            doubles,
            has_labels,
        }
    }

    /// Copies objects of a snapshot.
    pub(crate) fn copy(snapshot: &Snapshot, keys: &HashSet<Key>) -> Self {
        let handles = handle_ids(keys);
        let mut copied = Snapshot {
            datastore: snapshot.datastore,
            cluster: snapshot.cluster.clone(),
            ..Default::default()
        };
        copied.blocks = copies(BLOCKS, &snapshot.blocks, |block| {
            keys.contains(&Key::Block(block.key))
        });
        let has_affinity =
            |affinity: &&Versioned<Affinity>| keys.contains(&Key::Affinity(affinity.value.key.clone()));
        copied
            .affinities
            .extend(snapshot.affinities.iter().filter(has_affinity).cloned());
        // There may be a million handles to search.
        if !handles.is_empty() {
            copied.handles = copies(OBJECTS, &snapshot.handles, |handle| {
                handles.contains(handle.id().packed())
            });
        }
        Self {
            has_labels: snapshot.needs_affinity_labels(),
            ..Self::take(&mut copied, keys)
        }
    }

    /// Returns the labels with which Calico writes an object: only affinities have any, if they need them.
    fn labels_of(&self, key: &Key) -> BTreeMap<String, String> {
        match key {
            Key::Affinity(key) if self.has_labels => {
                key.labels().map(|(name, value)| (name.to_owned(), value)).into()
            }
            _ => BTreeMap::new(),
        }
    }

    /// Applies the steps, up to the first one that cannot be applied.
    pub(crate) fn apply(
        &mut self,
        plan: &Plan,
        datastore: DatastoreKind,
        now: Timestamp,
    ) -> Result<(), StepError> {
        for action in &plan.actions {
            let current = |key: &Key| {
                let Versioned { value, revision } = self.objects.get(key)?;
                Some(Current {
                    revision,
                    object: Some(Cow::Borrowed(value)),
                })
            };
            let changes = apply(action.step.edits(), now, current).map_err(|reason| StepError {
                step: action.step.reason.clone(),
                reason: reason.into(),
            })?;

            for (key, object) in changes {
                let Some(value) = object else {
                    self.doubles.retain(|(double, _)| *double != key);
                    self.objects.remove(&key);
                    continue;
                };
                let revision = written(datastore, self.labels_of(&key));
                self.objects.insert(key, Versioned { value, revision });
            }
        }
        Ok(())
    }

    /// Puts the objects back into the snapshot, after the objects that the plan does not touch.
    pub(crate) fn put_into(self, snapshot: &mut Snapshot) {
        for (key, Versioned { value, revision }) in self.doubles.into_iter().chain(self.objects) {
            match (key, value) {
                (Key::Block(key), Object::Block(content)) => {
                    snapshot.blocks.push(Versioned {
                        value: StoredBlock { key, content },
                        revision,
                    });
                }
                (_, Object::Handle(value)) => snapshot.handles.push(Versioned { value, revision }),
                (_, Object::Affinity(value)) => snapshot.affinities.push(Versioned { value, revision }),
                // Plans that change pools or the configuration are not tried.
                (_, Object::Block(_) | Object::Pool(_) | Object::IpamConfig(_)) => {}
            }
        }
    }
}

/// Copies the objects that a plan touches. Uses several cores if there are at least `least` objects for each of them.
fn copies<T: Clone + Send + Sync>(
    least: usize,
    stored: &[Versioned<T>],
    is_touched: impl Fn(&T) -> bool + Sync,
) -> Vec<Versioned<T>> {
    let parts = in_parts(least, stored.len(), |range| {
        let touched = stored[range].iter().filter(|object| is_touched(&object.value));
        touched.cloned().collect::<Vec<_>>()
    });
    parts.into_iter().flatten().collect()
}

/// Returns the revision for objects that a plan writes. It differs from all revisions that were read.
fn written(datastore: DatastoreKind, labels: BTreeMap<String, String>) -> Revision {
    match datastore {
        DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Revision::Etcd(i64::MAX),
        DatastoreKind::Kubernetes => {
            let resource_version = "planned".to_owned();
            Revision::Kubernetes(Box::new(ObjectVersion {
                resource_version,
                labels,
                ..Default::default()
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use calipam_check::{Options, check};
    use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
    use jiff::SignedDuration;

    use super::*;
    use crate::basis::Basis;
    use crate::{rebuild, release};

    fn sorted(mut snapshot: Snapshot) -> Snapshot {
        snapshot.blocks.sort_by_key(|block| block.value.key);
        snapshot
            .handles
            .sort_by_key(|handle| handle.value.id().to_string());
        snapshot
            .affinities
            .sort_by_key(|affinity| affinity.value.key.clone());
        snapshot
    }

    #[test]
    fn an_undone_trial_leaves_the_snapshot_unchanged() {
        let mut cluster = Cluster::plain(ClusterSpec::new(17), 3, 6);
        let faults = [
            Fault::LeakedNoOwner,
            Fault::LeakedInUnownedBlock,
            Fault::NodeGone,
            Fault::UnallocatedFreed,
            Fault::UnallocatedNoBlock,
            Fault::OwnerMismatchPod,
            Fault::OrphanHandle,
            Fault::MissingHandle,
            Fault::AffinityPending,
            Fault::CorruptIndexHuge,
        ];
        for fault in faults.iter() {
            cluster.inject(*fault, 2);
        }
        let snapshot = cluster.snapshot();
        let options = Options {
            grace: Some(SignedDuration::ZERO),
            ..Options::default()
        };
        let report = check(&snapshot, &options);
        let basis = Basis::new(&snapshot, &report, &options);
        let request = release::Request {
            leaked: true,
            orphan_handles: true,
            ..Default::default()
        };
        let released = release::plan(&basis, &request);
        let rebuilt = rebuild::plan(&basis, &rebuild::Request::default());
        // Splits each step in two, so that the second half starts from the blocks that the first half has written.
        let halves = |plan: &Plan| {
            let mut halves = plan.clone();
            for action in &plan.actions {
                let mut rest = action.clone();
                rest.step.parts.drain(..rest.step.parts.len() / 2);
                halves.actions.push(rest);
            }
            for action in halves.actions.iter_mut().take(plan.actions.len()) {
                action.step.parts.truncate(action.step.parts.len() / 2);
            }
            halves
        };

        let mut kinds = [0; 5];
        for plan in [&released, &halves(&released), &rebuilt] {
            let keys = plan.keys();
            let mut after = snapshot.clone();
            let before = Touched::take(&mut after, &keys);
            let mut tried = before.clone();
            assert_eq!(tried.apply(plan, snapshot.datastore, snapshot.taken_at), Ok(()));
            tried.put_into(&mut after);
            assert_ne!(sorted(after.clone()), sorted(snapshot.clone()));
            let later = Touched::take(&mut after, &keys);
            for key in before.objects.keys() {
                let kind = match key {
                    Key::Block(_) => 0,
                    Key::Handle(_) => 1,
                    _ => 2,
                };
                kinds[kind] += 1;
            }
            kinds[3] += before
                .objects
                .keys()
                .filter(|key| !later.objects.contains_key(*key))
                .count();
            kinds[4] += later
                .objects
                .keys()
                .filter(|key| !before.objects.contains_key(*key))
                .count();
            before.put_into(&mut after);
            assert!(sorted(after) == sorted(snapshot.clone()));
        }
        assert!(
            kinds.iter().all(|count| *count > 0),
            "of each kind, deleted and created: {kinds:?}"
        );
    }

    /// On Kubernetes, an object with a wrong name can have the key of another object.
    #[test]
    fn objects_with_one_key_are_all_put_back() {
        let cluster = Cluster::plain(ClusterSpec::new(17), 1, 2);
        let mut snapshot = cluster.snapshot();
        let double = snapshot.handles[0].clone();
        snapshot.handles.push(double.clone());
        let key = Key::Handle(double.value.id().to_string());

        let mut after = snapshot.clone();
        let touched = Touched::take(&mut after, &[key].into());
        assert_eq!(after.handles.len(), snapshot.handles.len() - 2);
        touched.put_into(&mut after);
        assert!(sorted(after) == sorted(snapshot));
    }

    /// The only affinity with labels is one that the plan changes.
    #[test]
    fn labels_are_decided_before_objects_are_taken() {
        let mut snapshot = Cluster::plain(ClusterSpec::new(17), 2, 2).snapshot();
        snapshot.cluster = None;
        let affinity = &mut snapshot.affinities[0];
        let labels = affinity
            .value
            .key
            .labels()
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        affinity.revision = written(DatastoreKind::Kubernetes, labels);
        let key = Key::Affinity(affinity.value.key.clone());

        let touched = Touched::take(&mut snapshot, &[key].into());
        assert!(touched.has_labels && !snapshot.needs_affinity_labels());
    }
}
