//! Copies of the objects that a plan touches, from before its trial.

use std::collections::{HashMap, HashSet};

use calipam_model::affinity::Affinity;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, StoredBlock, Versioned};

use crate::plan::Plan;

pub(super) struct Touched {
    keys: HashSet<Key>,
    blocks: Vec<Versioned<StoredBlock>>,
    handles: Vec<Versioned<Handle>>,
    affinities: Vec<Versioned<Affinity>>,
}

impl Touched {
    /// Copies the blocks, handles and affinities that a plan touches.
    pub(super) fn of(snapshot: &Snapshot, plan: &Plan) -> Self {
        let keys = plan.keys();
        let blocks = snapshot.blocks.iter().filter(|block| keys.contains(&of_block(block)));
        let affinities = snapshot.affinities.iter().filter(|affinity| keys.contains(&of_affinity(affinity)));
        let handles = if has_handle(&keys) {
            snapshot.handles.iter().filter(|handle| keys.contains(&of_handle(handle))).cloned().collect()
        } else {
            Vec::new()
        };
        Self { blocks: blocks.cloned().collect(), affinities: affinities.cloned().collect(), handles, keys }
    }

    /// Puts the copies back into the snapshot, in any order.
    pub(super) fn put_back(self, snapshot: &mut Snapshot) {
        remove(snapshot, &self.keys);
        snapshot.blocks.extend(self.blocks);
        snapshot.handles.extend(self.handles);
        snapshot.affinities.extend(self.affinities);
    }
}

/// Returns the positions of objects in their lists.
pub(super) fn indices(snapshot: &Snapshot, wanted: &HashSet<Key>) -> HashMap<Key, usize> {
    let mut indices = HashMap::new();
    let mut add = |key: Key, index: usize| {
        if wanted.contains(&key) {
            indices.insert(key, index);
        }
    };
    snapshot.blocks.iter().enumerate().for_each(|(index, block)| add(of_block(block), index));
    snapshot.affinities.iter().enumerate().for_each(|(index, affinity)| add(of_affinity(affinity), index));
    if has_handle(wanted) {
        snapshot.handles.iter().enumerate().for_each(|(index, handle)| add(of_handle(handle), index));
    }
    indices
}

/// Removes objects from a snapshot.
pub(super) fn remove(snapshot: &mut Snapshot, keys: &HashSet<Key>) {
    snapshot.blocks.retain(|block| !keys.contains(&of_block(block)));
    snapshot.affinities.retain(|affinity| !keys.contains(&of_affinity(affinity)));
    if has_handle(keys) {
        snapshot.handles.retain(|handle| !keys.contains(&of_handle(handle)));
    }
}

/// Returns true if one of the keys is a handle's. There may be a million handles to search.
fn has_handle(keys: &HashSet<Key>) -> bool {
    keys.iter().any(|key| matches!(key, Key::Handle(_)))
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

#[cfg(test)]
mod tests {
    use calipam_check::{Options, check};
    use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
    use jiff::SignedDuration;

    use super::super::apply::apply_steps;
    use super::*;
    use crate::basis::Basis;
    use crate::{Plan, rebuild, release};

    fn sorted(mut snapshot: Snapshot) -> Snapshot {
        snapshot.blocks.sort_by_key(|block| block.value.key);
        snapshot.handles.sort_by_key(|handle| handle.value.id().to_string());
        snapshot.affinities.sort_by_key(|affinity| affinity.value.key.clone());
        snapshot
    }

    #[test]
    fn a_trial_that_was_taken_back_leaves_nothing() {
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
        faults.iter().for_each(|fault| cluster.inject(*fault, 2));
        let snapshot = cluster.snapshot();
        let options = Options { grace: Some(SignedDuration::ZERO), ..Options::default() };
        let report = check(&snapshot, &options);
        let basis = Basis::new(&snapshot, &report, &options);
        let request = release::Request { leaked: true, orphan_handles: true, ..Default::default() };
        let released = release::plan(&basis, &request, &[], 0);
        let rebuilt = rebuild::plan(&basis, &rebuild::Request::default(), &[], 0);
        // The same block twice: the second time as the first has left it.
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
            let touched = Touched::of(&snapshot, plan);
            let mut after = snapshot.clone();
            assert_eq!(apply_steps(&mut after, plan, snapshot.taken_at), Ok(()));
            assert_ne!(sorted(after.clone()), sorted(snapshot.clone()));
            let before = [touched.blocks.len(), touched.handles.len(), touched.affinities.len()];
            before.iter().zip(&mut kinds).for_each(|(count, kind)| *kind += count);
            let later = indices(&after, &touched.keys);
            let earlier = indices(&snapshot, &touched.keys);
            kinds[3] += earlier.keys().filter(|key| !later.contains_key(*key)).count();
            kinds[4] += later.keys().filter(|key| !earlier.contains_key(*key)).count();
            touched.put_back(&mut after);
            assert!(sorted(after) == sorted(snapshot.clone()));
        }
        assert!(kinds.iter().all(|count| *count > 0), "of each kind, deleted and created: {kinds:?}");
    }
}
