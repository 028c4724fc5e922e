//! A folder of dated exports of one cluster.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use calipam_model::key::BLOCK_PREFIX;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::{Error, FileError, Result};
use crate::export::{self, Header};
use crate::files::DataFile;
use crate::read::ProgressFn;
use crate::store::Datastore;

/// What the names of exports begin and end with; the time stands between.
const BEGIN: &str = "calipam-";
const END: &str = ".jsonl.zst";
/// What an export is called until it is whole.
const WRITING: &str = ".calipam-writing";
/// Two runs do not write at once.
const LOCK: &str = ".calipam-lock";

/// An archive.
#[derive(Clone, Debug)]
pub struct Archive {
    folder: PathBuf,
    /// By the time of the data, ascending.
    exports: Vec<Archived>,
}

/// One export of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    pub path: PathBuf,
    /// When its data was read.
    pub taken_at: Timestamp,
    /// The revision of its data; empty where there is none.
    pub revision: String,
    /// The GUID of its cluster; empty where it had none.
    pub guid: String,
}

impl Archive {
    /// Lists the exports of a folder. Files with other names are none of its business.
    ///
    /// # Errors
    /// Where the folder or an export in it cannot be read, or exports are of several clusters.
    pub fn open(folder: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::file(folder, error);
        let mut exports = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(BEGIN) && name.ends_with(END) {
                exports.push(archived(path)?);
            }
        }
        exports.sort_by(|a, b| (a.taken_at, &a.path).cmp(&(b.taken_at, &b.path)));
        let archive = Self { folder: folder.to_owned(), exports };
        let guids = archive.exports.iter().map(|export| &export.guid);
        if let Some(other) = guids.clone().find(|guid| Some(*guid) != guids.clone().next()) {
            return Err(archive.other_cluster(other));
        }
        Ok(archive)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The exports, ascending by time.
    pub fn exports(&self) -> &[Archived] {
        &self.exports
    }

    /// The GUID of the cluster that it is of; `None` where it holds nothing yet.
    pub fn guid(&self) -> Option<&str> {
        self.exports.first().map(|export| export.guid.as_str())
    }

    /// Reads an export, or of it the blocks only.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn read(&self, export: &Archived, blocks_only: bool, progress: &ProgressFn) -> Result<Snapshot> {
        let file = DataFile::open(&export.path)?;
        if blocks_only { file.observe_some(is_block, progress) } else { file.observe(progress) }
    }

    fn other_cluster(&self, found: &str) -> Error {
        let guids = [self.guid().unwrap_or_default().to_owned(), found.to_owned()];
        Error::file(&self.folder, FileError::OtherCluster { guids })
    }
}

/// True for keys of blocks, as etcd and Kubernetes have them.
fn is_block(key: &[u8]) -> bool {
    key.starts_with(BLOCK_PREFIX.as_bytes()) || key.starts_with(b"ipamblocks/")
}

fn archived(path: PathBuf) -> Result<Archived> {
    let Header { taken_at, revision, guid, .. } = export::header_of(&path)?;
    let taken_at = taken_at.parse().map_err(|_| Error::file(&path, FileError::NoTime(taken_at)))?;
    Ok(Archived { path, taken_at, revision, guid })
}

/// What became of adding to an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    pub export: Archived,
    /// Number of entries in it.
    pub entries: u64,
    /// The newest export before it, where that has a later time: a clock was set back.
    pub later: Option<Timestamp>,
    /// There was an export of the same time, and the new one was not needed.
    pub was_there: bool,
}

impl Datastore {
    /// Adds an export to an archive, whose folder is made where it is missing. The export gets its name when it is whole; what
    /// a killed run has left is taken away.
    ///
    /// # Errors
    /// Where the datastore cannot be read, the file not be written, another run writes to the archive, or it is of another
    /// cluster.
    pub async fn add_to_archive(&self, folder: &Path, progress: &ProgressFn) -> Result<Added> {
        let failed = |error: io::Error| Error::file(folder, error);
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::file(folder, FileError::ArchiveBusy)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let archive = Archive::open(folder)?;

        // Within the folder, so that it can take its name there; a folder of its own holds what a kill leaves.
        let writing = folder.join(WRITING);
        if writing.exists() {
            fs::remove_dir_all(&writing).map_err(failed)?;
        }
        fs::create_dir(&writing).map_err(failed)?;
        let added = self.add_by(&archive, &writing.join("export.jsonl.zst"), progress).await;
        let _ = fs::remove_dir_all(&writing);
        added
    }

    async fn add_by(&self, archive: &Archive, path: &Path, progress: &ProgressFn) -> Result<Added> {
        let entries = self.export(path, progress).await?;
        let mut export = archived(path.to_owned())?;
        if archive.guid().is_some_and(|guid| guid != export.guid) {
            return Err(archive.other_cluster(&export.guid));
        }
        let newest = archive.exports.last().map(|newest| newest.taken_at);
        let later = newest.filter(|newest| *newest > export.taken_at);
        if let Some(same) = archive.exports.iter().find(|other| other.taken_at == export.taken_at) {
            return Ok(Added { export: same.clone(), entries, later, was_there: true });
        }
        let at = export.taken_at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%S%.fZ");
        let named = archive.folder.join(format!("{BEGIN}{at}{END}"));
        fs::rename(path, &named).map_err(|error| Error::file(&named, error))?;
        export.path = named;
        Ok(Added { export, entries, later, was_there: false })
    }
}

impl Archived {
    /// Removes the file.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn remove(&self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| Error::file(&self.path, error))
    }
}
