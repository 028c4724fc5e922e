//! Nodes as the plugin calls on them see them. A node has a lock, and keeps notes about full blocks in a file for later
//! calls. Faults may damage this file.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_assign::plugin::Host;
use calipam_assign::{Family, FullBlocks, KnownState, Notes};
use calipam_model::parallel::lock;
use calipam_testkit::memory::MemoryStore;
use jiff::Timestamp;

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
        lock(&self.0)
            .entry(node.to_owned())
            .and_modify(|kept| kept.now = kept.before.take());
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
            (
                node,
                kept.now.as_ref().map(in_order),
                kept.before.as_ref().map(in_order),
            )
                .hash(hasher);
        }
    }
}

/// The contents of notes in a fixed order.
fn in_order(full: &FullBlocks) -> impl Hash {
    let blocks: BTreeMap<String, String> = full
        .blocks
        .iter()
        .map(|(cidr, revision)| (cidr.to_string(), revision.clone()))
        .collect();
    (full.inputs_hash, full.exhausted_at, blocks)
}

/// The path of a node's notes in footprints.
pub(crate) fn notes_path(node: &str) -> String {
    format!("notes/{node}")
}

/// A node on which an actor calls the plugin.
#[derive(Clone, Debug)]
pub struct Node {
    world: Arc<World>,
    actor: usize,
    name: String,
}

/// A guard of a node's lock. Dropping it releases the lock.
pub struct LockGuard(Node);

impl Node {
    pub fn new(world: &Arc<World>, actor: usize, name: &str) -> Self {
        Self {
            world: Arc::clone(world),
            actor,
            name: name.to_owned(),
        }
    }

    /// A node on which nothing else runs.
    pub(crate) fn alone() -> Self {
        Self::new(&Arc::new(World::free(MemoryStore::default())), 0, "")
    }

    /// The path of the lock, which the plugin calls on the node take one after another.
    fn lock_path(&self) -> String {
        format!("lock/{}", self.name)
    }
}

/// A plugin call has no time limits.
impl Host for Node {
    type LockGuard = LockGuard;
    type Error = Infallible;

    async fn lock(&self) -> LockGuard {
        let (Self { world, actor, .. }, path) = (self, self.lock_path());
        let footprint = Footprint::default().write(path.clone());
        let _ = world
            .turn(*actor, format!("take {path}"), footprint)
            .locking(&path)
            .answered()
            .await;
        world.state().locks.insert(path, *actor);
        world.record_answer(*actor, "locked");
        LockGuard(self.clone())
    }

    async fn within<T>(&self, _: Duration, work: impl Future<Output = T>) -> Option<T> {
        Some(work.await)
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let (Node { world, .. }, path) = (&self.0, self.0.lock_path());
        world.state().locks.remove(&path);
        world.touch(&Footprint::default().write(path));
    }
}

/// Notes that keep nothing but the state before the first step.
#[derive(Debug)]
pub(crate) struct NoteOfBeginning(pub Timestamp);

impl Notes for NoteOfBeginning {
    fn full_blocks(&self, _: Family) -> Option<FullBlocks> {
        None
    }

    fn keep_full_blocks(&self, _: Family, _: &FullBlocks) {}

    fn forget_exhaustion(&self) {}

    fn known_state(&self) -> Option<KnownState> {
        Some(KnownState {
            version: "1".to_owned(),
            at: self.0,
        })
    }

    fn keep_known_state(&self, _: &KnownState) {}
}

impl Notes for Node {
    fn full_blocks(&self, _: Family) -> Option<FullBlocks> {
        self.world
            .touch(&Footprint::default().read(notes_path(&self.name)));
        let found = self.world.notes.of(&self.name);
        self.world.record_answer(self.actor, found.as_ref().map(in_order));
        found
    }

    fn keep_full_blocks(&self, _: Family, full: &FullBlocks) {
        self.world
            .touch(&Footprint::default().write(notes_path(&self.name)));
        self.world
            .notes
            .write(&self.name, |now| *now = Some(full.clone()));
    }

    fn forget_exhaustion(&self) {
        self.world
            .touch(&Footprint::default().write(notes_path(&self.name)));
        self.world.notes.write(&self.name, |now| {
            now.iter_mut().for_each(|full| full.exhausted_at = None)
        });
    }

    /// The node notes no state; see [`NoteOfBeginning`].
    fn known_state(&self) -> Option<KnownState> {
        None
    }

    fn keep_known_state(&self, _: &KnownState) {}
}
