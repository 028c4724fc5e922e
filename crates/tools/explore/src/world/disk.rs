//! Files: a disk below a journal that can be full, and what a power failure leaves of a file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calipam_datastore::Pending;
use calipam_repair::journal::Disk;
use tempfile::TempDir;

use super::{Footprint, Verdict, World};

/// The folder of all journals, and what is durable in it.
#[derive(Default)]
pub(crate) struct Files(Mutex<State>);

#[derive(Default)]
struct State {
    /// Of each actor, which is on a machine of its own. They are removed with the world.
    folders: BTreeMap<usize, Folder>,
}

struct Folder {
    folder: TempDir,
    /// Journals, in their order.
    journals: Vec<PathBuf>,
    /// How many bytes of the last one are durable.
    durable: u64,
    /// A line was admitted and is durable when the step ends.
    is_admitted: bool,
    /// How often a power failure has torn a journal.
    torn: usize,
}

impl Files {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the next journal of an actor goes, and the folder of all that it has.
    pub(crate) fn next_journal(&self, actor: usize) -> Option<(PathBuf, PathBuf)> {
        let mut state = self.state();
        let folder = match state.folders.entry(actor) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Folder::new()?),
        };
        let path = folder.folder.path().join(format!("{}.journal", folder.journals.len()));
        folder.journals.push(path.clone());
        folder.durable = 0;
        Some((path, folder.folder.path().to_owned()))
    }

    /// The folders of all actors that have any.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.state().folders.values().map(|folder| folder.folder.path().to_owned()).collect()
    }

    /// A step of an actor has ended.
    pub(crate) fn settle(&self, actor: usize) {
        if let Some(folder) = self.state().folders.get_mut(&actor).filter(|folder| folder.is_admitted) {
            folder.is_admitted = false;
            folder.durable = folder.length();
        }
    }

    /// True if a power failure would take something from the last journal of an actor.
    pub(crate) fn can_tear(&self, actor: usize) -> bool {
        self.state().folders.get(&actor).is_some_and(|folder| folder.durable < folder.length())
    }

    /// A power failure: half of what was not durable is gone.
    pub(crate) fn tear(&self, actor: usize) {
        let mut state = self.state();
        let Some(folder) = state.folders.get_mut(&actor) else { return };
        folder.torn += 1;
        let left = folder.durable + (folder.length() - folder.durable) / 2;
        if let Some(path) = folder.journals.last()
            && let Ok(file) = std::fs::OpenOptions::new().write(true).open(path)
        {
            file.set_len(left).ok();
        }
    }
}

impl Folder {
    /// In memory, where that can be had.
    fn new() -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Some(Self { folder: folder.ok()?, journals: Vec::new(), durable: 0, is_admitted: false, torn: 0 })
    }

    /// Of the last journal.
    fn length(&self) -> u64 {
        let last = self.journals.last().and_then(|path| std::fs::metadata(path).ok());
        last.map_or(0, |file| file.len())
    }
}

impl Hash for Files {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let state = self.state();
        // What else is in them follows from what their actors were told.
        state
            .folders
            .iter()
            .for_each(|(actor, folder)| (actor, folder.torn, folder.journals.len()).hash(hasher));
    }
}

/// The disk of an actor.
pub(crate) struct OneDisk(pub Arc<World>, pub usize);

impl fmt::Debug for OneDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneDisk({})", self.1)
    }
}

impl Disk for OneDisk {
    fn admit(&self, bytes: usize) -> Pending<'_, usize> {
        Box::pin(async move {
            let Self(world, actor) = self;
            let verdict =
                world.turn(*actor, "write the journal".into(), Footprint::default(), None, None).await;
            world.tell(*actor, verdict);
            if verdict == Verdict::Fail {
                return bytes / 2;
            }
            if let Some(folder) = world.files.state().folders.get_mut(actor) {
                folder.is_admitted = true;
            }
            bytes
        })
    }
}

/// A disk with room for everything.
#[derive(Debug)]
pub(crate) struct FreeDisk;

impl Disk for FreeDisk {
    fn admit(&self, bytes: usize) -> Pending<'_, usize> {
        Box::pin(async move { bytes })
    }
}
