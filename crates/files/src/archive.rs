//! A folder with dated exports from one cluster.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::archived::END;
pub use crate::archived::{Archived, Part};
use crate::error::{Error, FileError, Result};
use crate::recording::write_state;
use crate::regular;

/// The prefix of export names. The time and [`END`] follow.
const BEGIN: &str = "calipam-";
/// The format of the time in a name, in UTC.
const TIME_FORMAT: &str = "%Y%m%dT%H%M%S%.fZ";
/// The name of the folder with an incomplete export.
const WRITING: &str = ".calipam-writing";
/// The name of the incomplete export in this folder.
const INCOMPLETE: &str = "export.jsonl.zst";
/// The name of a copy of this export with a later time.
const INCOMPLETE_LATER: &str = "later.jsonl.zst";
/// The name of the lock file, which keeps two runs from writing at the same time.
const LOCK: &str = ".calipam-lock";

#[derive(Clone, Debug)]
pub struct Archive {
    folder: PathBuf,
    /// The exports, in ascending order of the time of their data.
    exports: Vec<Archived>,
}

impl Archive {
    /// Opens the archive in a folder: the exports in it whose header can be read. Also returns an error for each other
    /// export. Ignores files whose names do not have the form `calipam-TIME.jsonl.zst`.
    ///
    /// # Errors
    /// If the folder cannot be read, or the exports are from several clusters.
    pub fn open_with_damage(folder: &Path) -> Result<(Self, Vec<Error>)> {
        let failed = |error: io::Error| Error::new(folder, error);
        let mut exports = Vec::new();
        let mut damaged = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default();
            if !is_export(&name.to_string_lossy()) {
                continue;
            }
            match Archived::open(path) {
                Ok(export) => exports.push(export),
                // Another run has removed the file.
                Err(error) if error.is_missing_file() => {}
                Err(error) => damaged.push(error),
            }
        }
        exports.sort_by(|a, b| (a.taken_at, &a.path).cmp(&(b.taken_at, &b.path)));

        let archive = Self {
            folder: folder.to_owned(),
            exports,
        };
        for export in &archive.exports {
            archive.require_cluster(&export.guid)?;
        }
        Ok((archive, damaged))
    }

    pub fn exports(&self) -> &[Archived] {
        &self.exports
    }

    /// The GUID of the cluster; `None` if the archive is empty.
    pub fn guid(&self) -> Option<&str> {
        self.exports.first().map(|export| export.guid.as_str())
    }

    /// Pairs of successive exports of which the second has the lower revision, because a clock was set back or the
    /// datastore was restored in between.
    pub fn pairs_with_falling_revisions(&self) -> impl Iterator<Item = [&Archived; 2]> {
        let pairs = self.exports.windows(2).map(|pair| [&pair[0], &pair[1]]);
        pairs.filter(|[earlier, later]| has_higher_revision(earlier, later))
    }

    /// Returns an error if the archive is of another cluster than the one with this GUID.
    pub(crate) fn require_cluster(&self, guid: &str) -> Result<()> {
        if let Some(guid_of_archive) = self.guid()
            && guid_of_archive != guid
        {
            let guids = [guid_of_archive.to_owned(), guid.to_owned()];
            return Err(Error::new(&self.folder, FileError::OtherCluster { guids }));
        }
        Ok(())
    }
}

/// True if the revision of `export` is higher than that of `other`; false if one of them has no number.
fn has_higher_revision(export: &Archived, other: &Archived) -> bool {
    if let Ok(revision) = export.revision.parse::<u64>()
        && let Ok(other_revision) = other.revision.parse::<u64>()
    {
        return revision > other_revision;
    }
    false
}

/// True for the name of an export: prefix, time, suffix. Files with other names are never removed.
fn is_export(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix(BEGIN)
        && let Some(time) = rest.strip_suffix(END)
    {
        return DateTime::strptime(TIME_FORMAT, time).is_ok();
    }
    false
}

/// The result of adding to an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    pub export: Archived,
    pub entries: u64,
    /// The time of the newest existing export, if it is later than the time of the added export, which means that a
    /// clock was set back.
    pub later: Option<Timestamp>,
    /// True if the new export was not kept, because an export with the same time existed.
    pub already_existed: bool,
}

/// Keeps other runs from writing to the archive.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file may not release the lock, since a child process that is just being started also has the file
        // open.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Creates the folder if it is missing, and locks the archive.
    pub(crate) fn take(folder: &Path) -> Result<Arc<Self>> {
        let failed = |error: io::Error| Error::new(folder, error);
        fs::create_dir_all(folder).map_err(failed)?;
        let path = folder.join(LOCK);
        let lock = regular::open_lock(&path).map_err(|error| Error::new(&path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Arc::new(Self(lock))),
            Err(TryLockError::WouldBlock) => Err(Error::new(folder, FileError::ArchiveBusy)),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// An export that is being added to an archive. It gets its final name when it is complete.
#[derive(Debug)]
pub struct Adding {
    archive: Archive,
    /// A folder inside the archive in which the export is written until it is complete. If the run is killed, leftovers
    /// stay in it.
    writing: PathBuf,
    _lock: Arc<Lock>,
}

impl Adding {
    /// Creates the folder if it is missing, locks the archive, and removes leftovers of killed runs.
    ///
    /// # Errors
    /// If the folder cannot be written, another run is writing to it, or its exports are from several clusters.
    pub fn begin(folder: &Path) -> Result<Self> {
        Self::with_lock(folder, Lock::take(folder)?)
    }

    /// Adds to an archive that is already locked.
    pub(crate) fn with_lock(folder: &Path, lock: Arc<Lock>) -> Result<Self> {
        let failed = |error: io::Error| Error::new(folder, error);
        // A damaged export does not prevent new ones.
        let (archive, _) = Archive::open_with_damage(folder)?;

        // A run that was killed leaves its incomplete files.
        let writing = folder.join(WRITING);
        if writing.exists() {
            fs::remove_dir_all(&writing).map_err(failed)?;
        }
        fs::create_dir(&writing).map_err(failed)?;
        Ok(Self {
            archive,
            writing,
            _lock: lock,
        })
    }

    /// The path at which to write the export.
    pub fn path(&self) -> PathBuf {
        self.writing.join(INCOMPLETE)
    }

    /// Like [`Self::finish`], for a recorder, whose exports must be in the order in which they were made, even if the
    /// clock was set back. If this export is not later than all others and `last_recorded`, the time of the last
    /// recorded change, it gets a time one millisecond later.
    ///
    /// # Errors
    /// The same as in [`Self::finish`].
    pub fn finish_last(self, entries: u64, last_recorded: Option<Timestamp>) -> Result<Added> {
        let export = Archived::open(self.path())?;
        let newest_export = self.archive.exports.last().map(|newest| newest.taken_at);
        let newest_time = newest_export.max(last_recorded);
        if let Some(newest_time) = newest_time
            && newest_time >= export.taken_at
        {
            // The time is in the first line of the export, which is compressed, so the whole export is written again.
            let moved = Archived {
                taken_at: newest_time + SignedDuration::from_millis(1),
                ..export
            };
            let moved_path = self.writing.join(INCOMPLETE_LATER);
            let end_of_changes = None;
            write_state(&moved, end_of_changes, &moved_path)?;
            fs::rename(&moved_path, self.path()).map_err(|error| Error::new(&moved_path, error))?;
        }
        self.finish(entries)
    }

    /// Gives the finished export its name, unless an export with the same time exists, which is returned then. Also
    /// returns the time of the newest export if that is later.
    ///
    /// # Errors
    /// If the export cannot be read, is from another cluster, or cannot be renamed.
    pub fn finish(self, entries: u64) -> Result<Added> {
        let mut export = Archived::open(self.path())?;
        self.archive.require_cluster(&export.guid)?;
        let exports = &self.archive.exports;
        let newest = exports.last().map(|newest| newest.taken_at);
        let later = newest.filter(|newest| *newest > export.taken_at);
        if let Some(existing) = exports.iter().find(|other| other.taken_at == export.taken_at) {
            return Ok(Added {
                export: existing.clone(),
                entries,
                later,
                already_existed: true,
            });
        }

        let time = export.taken_at.to_zoned(TimeZone::UTC).strftime(TIME_FORMAT);
        let final_path = self.archive.folder.join(format!("{BEGIN}{time}{END}"));
        fs::rename(&export.path, &final_path).map_err(|error| Error::new(&final_path, error))?;
        // The caller may remove older exports next.
        regular::sync_folder(&self.archive.folder)
            .map_err(|error| Error::new(&self.archive.folder, error))?;
        export.path = final_path;
        Ok(Added {
            export,
            entries,
            later,
            already_existed: false,
        })
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.writing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exports_in_an_archive() {
        for good in [
            "calipam-20261120T031200Z.jsonl.zst",
            "calipam-20261120T031200.25Z.jsonl.zst",
        ] {
            assert!(is_export(good), "{good}");
        }
        for other in [
            "calipam-before-the-restore.jsonl.zst",
            "calipam-20261120T031200Z.jsonl",
            "calipam-20261120T031200Z-copy.jsonl.zst",
            "calipam-20261320T031200Z.jsonl.zst",
            "calipam-.jsonl.zst",
            ".calipam-20261120T031200Z.jsonl.zst",
        ] {
            assert!(!is_export(other), "{other}");
        }
    }
}
