//! Reverting what the trial of a plan has done to a snapshot.

use std::collections::{HashMap, HashSet};

use calipam_model::affinity::Affinity;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, StoredBlock, Versioned};

/// The objects that a trial has changed, as they were before it.
#[derive(Default)]
pub(super) struct Revert {
    /// In the order in which they were replaced.
    replaced: Vec<Replaced>,
    blocks: Vec<Versioned<StoredBlock>>,
    handles: Vec<Versioned<Handle>>,
    affinities: Vec<Versioned<Affinity>>,
    created: HashSet<Key>,
}

/// An object before it was replaced.
pub(super) enum Replaced {
    Block(Versioned<StoredBlock>),
    Handle(Versioned<Handle>),
    Affinity(Versioned<Affinity>),
}

impl Replaced {
    fn key(&self) -> Key {
        match self {
            Self::Block(block) => of_block(block),
            Self::Handle(handle) => of_handle(handle),
            Self::Affinity(affinity) => of_affinity(affinity),
        }
    }

    /// Puts it where its successor is.
    fn put_back(self, snapshot: &mut Snapshot, index: usize) {
        match self {
            Self::Block(block) => snapshot.blocks[index] = block,
            Self::Handle(handle) => snapshot.handles[index] = handle,
            Self::Affinity(affinity) => snapshot.affinities[index] = affinity,
        }
    }
}

impl Revert {
    /// Notes an object that was replaced.
    pub(super) fn replaced(&mut self, replaced: Replaced) {
        self.replaced.push(replaced);
    }

    /// Notes an object that did not exist before.
    pub(super) fn created(&mut self, key: Key) {
        self.created.insert(key);
    }

    /// Takes objects out of the snapshot.
    pub(super) fn remove(&mut self, snapshot: &mut Snapshot, gone: &HashSet<Key>) {
        let is_gone = |key: Key| gone.contains(&key);
        self.blocks.extend(snapshot.blocks.extract_if(.., |block| is_gone(of_block(block))));
        self.affinities.extend(snapshot.affinities.extract_if(.., |affinity| is_gone(of_affinity(affinity))));
        if gone.iter().any(|key| matches!(key, Key::Handle(_))) {
            self.handles.extend(snapshot.handles.extract_if(.., |handle| is_gone(of_handle(handle))));
        }
    }

    /// Makes the snapshot hold the objects that it held before, in whatever order. False if it cannot.
    #[must_use]
    pub(super) fn put_back(self, snapshot: &mut Snapshot) -> bool {
        let Self { replaced, blocks, handles, affinities, created } = self;
        snapshot.blocks.extend(blocks);
        snapshot.handles.extend(handles);
        snapshot.affinities.extend(affinities);

        let indices = indices(snapshot, &replaced.iter().map(Replaced::key).collect());
        // What was replaced twice is made of its last successor first.
        for before in replaced.into_iter().rev() {
            let Some(index) = indices.get(&before.key()) else { return false };
            before.put_back(snapshot, *index);
        }
        if !created.is_empty() {
            snapshot.blocks.retain(|block| !created.contains(&of_block(block)));
            snapshot.handles.retain(|handle| !created.contains(&of_handle(handle)));
            snapshot.affinities.retain(|affinity| !created.contains(&of_affinity(affinity)));
        }
        true
    }
}

/// Where in their lists these blocks, handles and affinities stand.
pub(super) fn indices(snapshot: &Snapshot, wanted: &HashSet<Key>) -> HashMap<Key, usize> {
    let mut indices = HashMap::new();
    let mut add = |key: Key, index: usize| {
        if wanted.contains(&key) {
            indices.insert(key, index);
        }
    };
    snapshot.blocks.iter().enumerate().for_each(|(index, block)| add(of_block(block), index));
    snapshot.affinities.iter().enumerate().for_each(|(index, affinity)| add(of_affinity(affinity), index));
    if wanted.iter().any(|key| matches!(key, Key::Handle(_))) {
        snapshot.handles.iter().enumerate().for_each(|(index, handle)| add(of_handle(handle), index));
    }
    indices
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

    use super::super::apply::apply_with_revert;
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
    fn a_trial_that_was_reverted_leaves_nothing() {
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
            let (mut after, revert, made) = apply_with_revert(snapshot.clone(), plan, snapshot.taken_at);
            assert_eq!(made, Ok(()));
            assert_ne!(sorted(after.clone()), sorted(snapshot.clone()));
            for replaced in &revert.replaced {
                match replaced {
                    Replaced::Block(_, _, Before::Earlier(_)) => kinds[0] += 1,
                    Replaced::Block(_, _, Before::Whole(_)) => kinds[1] += 1,
                    Replaced::Handle(_) | Replaced::Affinity(_) => kinds[2] += 1,
                }
            }
            kinds[3] += revert.blocks.len() + revert.handles.len() + revert.affinities.len();
            kinds[4] += revert.created.len();
            assert!(revert.put_back(&mut after));
            assert!(sorted(after) == sorted(snapshot.clone()));
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    }
}
