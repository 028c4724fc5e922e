//! Disks for journals, which can be full or lose data in power failures.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use calipam_datastore::Pending;
use calipam_model::parallel::lock;
use calipam_repair::journal::{Disk, JournalFile};
use tempfile::TempDir;

use super::{Footprint, World};

/// The folder of each actor with its journals. Every actor has its own machine. Folders are removed with the world.
#[derive(Default)]
pub(crate) struct Files(Mutex<BTreeMap<usize, Folder>>);

struct Folder {
    folder: TempDir,
    /// The journals, oldest first.
    journals: Vec<PathBuf>,
    /// Number of durable bytes of the last journal.
    durable: u64,
    /// True if a line was admitted in the current step. The line becomes durable when the step ends.
    is_admitted: bool,
    /// Number of power failures that tore a journal.
    torn: usize,
}

impl Files {
    /// Returns the path of the next journal of an actor, and the folder of all its journals.
    pub(crate) fn next_journal(&self, actor: usize) -> (PathBuf, PathBuf) {
        let mut folders = lock(&self.0);
        let folder = folders.entry(actor).or_insert_with(Folder::new);
        let path = folder
            .folder
            .path()
            .join(format!("{}.journal", folder.journals.len()));
        folder.journals.push(path.clone());
        folder.durable = 0;
        (path, folder.folder.path().to_owned())
    }

    /// The folders of all actors.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        lock(&self.0)
            .values()
            .map(|folder| folder.folder.path().to_owned())
            .collect()
    }

    /// Ends a step of an actor, which makes admitted lines durable.
    pub(crate) fn end_step(&self, actor: usize) {
        if let Some(folder) = lock(&self.0).get_mut(&actor).filter(|folder| folder.is_admitted) {
            folder.is_admitted = false;
            folder.durable = folder.length();
        }
    }

    /// True if a power failure would truncate the last journal of an actor.
    pub(crate) fn can_tear(&self, actor: usize) -> bool {
        lock(&self.0)
            .get(&actor)
            .is_some_and(|folder| folder.durable < folder.length())
    }

    /// Simulates a power failure: half of the bytes that are not durable are lost.
    pub(crate) fn tear(&self, actor: usize) {
        let mut folders = lock(&self.0);
        let Some(folder) = folders.get_mut(&actor) else {
            return;
        };
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
    /// Creates a folder, in memory if possible.
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let folder = folder.expect("a temporary folder");
        Self {
            folder,
            journals: Vec::new(),
            durable: 0,
            is_admitted: false,
            torn: 0,
        }
    }

    /// The length of the last journal.
    fn length(&self) -> u64 {
        let last = self.journals.last().and_then(|path| std::fs::metadata(path).ok());
        last.map_or(0, |file| file.len())
    }
}

impl Hash for Files {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The contents follow from the answers to the actors, so they need not be hashed.
        for (actor, folder) in &*lock(&self.0) {
            (actor, folder.torn, folder.journals.len()).hash(hasher);
        }
    }
}

/// The disk of an actor.
#[derive(Debug)]
pub(crate) struct OneDisk {
    world: Arc<World>,
    actor: usize,
    /// True if the disk has no room for the next line.
    is_full: AtomicBool,
}

impl OneDisk {
    pub(crate) fn new(world: &Arc<World>, actor: usize) -> Self {
        Self {
            world: Arc::clone(world),
            actor,
            is_full: AtomicBool::new(false),
        }
    }
}

impl Disk for OneDisk {
    fn turn(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let Self {
                world,
                actor,
                is_full,
            } = self;
            let turn = world
                .turn(*actor, "write the journal".into(), Footprint::default())
                .on_disk();
            let has_room = turn.answered().await.is_ok();
            is_full.store(!has_room, Ordering::Relaxed);
            if !has_room {
                return;
            }
            world.record_answer(*actor, "written");
            if let Some(folder) = lock(&world.files.0).get_mut(actor) {
                folder.is_admitted = true;
            }
        })
    }

    fn append(&self, file: &mut JournalFile, line: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            file.append(&line[..line.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.append(line)
    }
}
