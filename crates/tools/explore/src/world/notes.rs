//! The notes about full blocks that a node's plugin keeps in a file for later calls, and the faults that damage this
//! file.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use calipam_assign::{Family, FullBlocks, Notes};
use calipam_model::parallel::lock;

use super::{Footprint, World};

/// The files of all nodes.
#[derive(Default)]
pub(crate) struct AllNotes(Mutex<BTreeMap<String, NodeFile>>);

/// The notes file of a node, for IPv4 only.
#[derive(Clone, Debug, Default)]
struct NodeFile {
    now: Option<FullBlocks>,
    /// The contents before the last write.
    before: Option<FullBlocks>,
}

impl AllNotes {
    /// The notes of a node.
    pub(crate) fn of(&self, node: &str) -> Option<FullBlocks> {
        lock(&self.0).get(node).and_then(|kept| kept.now.clone())
    }

    /// Tears the file. The plugin treats a torn file like a missing one, which its own tests check.
    pub(crate) fn tear(&self, node: &str) {
        lock(&self.0).remove(node);
    }

    /// Reverts the last write, which was not durable at a power failure.
    pub(crate) fn revert(&self, node: &str) {
        lock(&self.0).entry(node.to_owned()).and_modify(|kept| kept.now = kept.before.take());
    }

    fn write(&self, node: &str, change: impl FnOnce(&mut Option<FullBlocks>)) {
        let mut all = lock(&self.0);
        let kept = all.entry(node.to_owned()).or_default();
        kept.before = kept.now.clone();
        change(&mut kept.now);
    }
}

impl Hash for AllNotes {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for (node, kept) in &*lock(&self.0) {
            (node, kept.now.as_ref().map(in_order), kept.before.as_ref().map(in_order)).hash(hasher);
        }
    }
}

/// The contents of notes in a fixed order.
fn in_order(full: &FullBlocks) -> impl Hash {
    let blocks: BTreeMap<String, String> =
        full.blocks.iter().map(|(cidr, revision)| (cidr.to_string(), revision.clone())).collect();
    (full.inputs_hash, full.exhausted_at, blocks)
}

/// The path of a node's notes in footprints.
pub(crate) fn path(node: &str) -> String {
    format!("notes/{node}")
}

/// A node's notes, as one plugin call accesses them.
#[derive(Debug)]
pub(crate) struct NodeNotes {
    pub world: Arc<World>,
    pub actor: usize,
    pub node: String,
}

impl Notes for NodeNotes {
    fn full_blocks(&self, _: Family) -> Option<FullBlocks> {
        self.world.touch(&Footprint::default().read(path(&self.node)));
        let found = self.world.notes.of(&self.node);
        self.world.record_answer(self.actor, found.as_ref().map(in_order));
        found
    }

    fn keep_full_blocks(&self, _: Family, full: &FullBlocks) {
        self.world.touch(&Footprint::default().write(path(&self.node)));
        self.world.notes.write(&self.node, |now| *now = Some(full.clone()));
    }

    fn forget_exhaustion(&self) {
        self.world.touch(&Footprint::default().write(path(&self.node)));
        self.world.notes.write(&self.node, |now| now.iter_mut().for_each(|full| full.exhausted_at = None));
    }
}
