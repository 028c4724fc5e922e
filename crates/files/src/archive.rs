//! A folder with dated exports from one cluster.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, IPAM_PREFIX};
use calipam_model::names::EndpointName;
use calipam_model::snapshot::Snapshot;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::ProgressFn;
use crate::data_file::DataFile;
use crate::error::{Error, FileError, Result};
use crate::export::{self, Header};
use crate::recording::{self, write_state};
use crate::regular;

/// Prefix and suffix of export names; the time is between them.
const BEGIN: &str = "calipam-";
const END: &str = ".jsonl.zst";
/// The format of the time in a name, in UTC.
const NAMED: &str = "%Y%m%dT%H%M%S%.fZ";
/// The name of the folder with an incomplete export.
const WRITING: &str = ".calipam-writing";
/// The name of the lock file, which keeps two runs from writing at the same time.
const LOCK: &str = ".calipam-lock";

#[derive(Clone, Debug)]
pub struct Archive {
    folder: PathBuf,
    /// The exports, in ascending order of the time of their data.
    exports: Vec<Archived>,
}

/// The part of an export to read.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Whole,
    /// Blocks, affinities, and the handle with this ID, if one is given. Exports of etcd also include the allocator's
    /// configuration.
    Records {
        handle: Option<&'a str>,
    },
    /// The pods with these namespaces and names, and their workload endpoints.
    Users(&'a BTreeSet<(String, String)>),
}

impl Part<'_> {
    /// True for the keys in this part, in exports of both etcd and Kubernetes.
    pub fn holds(&self, key: &[u8]) -> bool {
        let Ok(key) = std::str::from_utf8(key) else { return false };
        match self {
            Self::Whole => true,
            Self::Records { handle } => match (key.strip_prefix(HANDLE_PREFIX), key.split_once('/')) {
                (Some(id), _) => *handle == Some(id),
                (None, Some(("ipamhandles", name))) => handle.is_some_and(|id| id.eq_ignore_ascii_case(name)),
                (None, plural) => {
                    key.starts_with(IPAM_PREFIX)
                        || matches!(plural, Some(("ipamblocks" | "blockaffinities", _)))
                }
            },
            Self::Users(pods) => pod_of(key).is_some_and(|pod| pods.contains(&pod)),
        }
    }
}

/// A pod's namespace and name, from its own key or that of its endpoint.
fn pod_of(key: &str) -> Option<(String, String)> {
    let is_endpoint = key.strip_prefix(ENDPOINT_PREFIX);
    let (namespace, name) = is_endpoint.or_else(|| key.strip_prefix("pods/"))?.split_once('/')?;
    let pod = match is_endpoint {
        Some(_) => EndpointName::parse(name)?.workload,
        None => name.to_owned(),
    };
    Some((namespace.to_owned(), pod))
}

/// One export in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    pub path: PathBuf,
    /// The time at which the data was read.
    pub taken_at: Timestamp,
    /// The revision of the data; empty if there is none.
    pub revision: String,
    /// The cluster's GUID; empty if it had none.
    pub guid: String,
}

impl Archive {
    /// Lists the exports in a folder, and the errors for those whose header cannot be read. Ignores files whose names do
    /// not have the form that [`Adding::finish`] gives them.
    ///
    /// # Errors
    /// If the folder cannot be read, or the exports are from several clusters.
    pub fn open_undamaged(folder: &Path) -> Result<(Self, Vec<Error>)> {
        let failed = |error: io::Error| Error::new(folder, error);
        let (mut exports, mut damaged) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !is_export(&name) {
                continue;
            }
            match archived(path) {
                Ok(export) => exports.push(export),
                // Another run has removed the file.
                Err(error) if error.is_missing_file() => {}
                Err(error) => damaged.push(error),
            }
        }
        exports.sort_by(|a, b| (a.taken_at, &a.path).cmp(&(b.taken_at, &b.path)));
        let archive = Self { folder: folder.to_owned(), exports };
        let guids = archive.exports.iter().map(|export| &export.guid);
        if let Some(other) = guids.clone().find(|guid| Some(*guid) != guids.clone().next()) {
            return Err(archive.other_cluster(other));
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
        let revision = |export: &Archived| export.revision.parse::<u64>().ok();
        let pairs = self.exports.windows(2).map(|pair| [&pair[0], &pair[1]]);
        pairs.filter(move |[first, second]| revision(second).is_some_and(|own| revision(first) > Some(own)))
    }

    /// Returns an error if `guid` belongs to another cluster.
    pub(crate) fn require(&self, guid: &str) -> Result<()> {
        match self.guid() {
            Some(own) if own != guid => Err(self.other_cluster(guid)),
            _ => Ok(()),
        }
    }

    fn other_cluster(&self, found: &str) -> Error {
        let guids = [self.guid().unwrap_or_default().to_owned(), found.to_owned()];
        Error::new(&self.folder, FileError::OtherCluster { guids })
    }
}

/// True for the name of an export: prefix, time, suffix. Files with other names are never removed.
fn is_export(name: &str) -> bool {
    let time = name.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    time.is_some_and(|time| DateTime::strptime(NAMED, time).is_ok())
}

fn archived(path: PathBuf) -> Result<Archived> {
    let Header { taken_at, revision, guid, .. } = export::header_of(&path).map_err(Error::of_archive)?;
    Ok(Archived { path, taken_at, revision, guid })
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
        Self::with(folder, Lock::take(folder)?)
    }

    /// Adds to an archive that is already locked.
    pub(crate) fn with(folder: &Path, lock: Arc<Lock>) -> Result<Self> {
        let failed = |error: io::Error| Error::new(folder, error);
        // A damaged export does not prevent new ones.
        let (archive, _) = Archive::open_undamaged(folder)?;

        let writing = folder.join(WRITING);
        if writing.exists() {
            fs::remove_dir_all(&writing).map_err(failed)?;
        }
        fs::create_dir(&writing).map_err(failed)?;
        Ok(Self { archive, writing, _lock: lock })
    }

    /// The path at which to write the export.
    pub fn path(&self) -> PathBuf {
        self.writing.join("export.jsonl.zst")
    }

    /// Like [`Self::finish`], for a recorder whose clock could have been set back. If necessary, the export's time is
    /// moved after `last`, the last recorded time, and after all other exports.
    ///
    /// # Errors
    /// The same as in [`Self::finish`].
    pub fn finish_last(self, entries: u64, last: Option<Timestamp>) -> Result<Added> {
        let export = archived(self.path())?;
        let newest = self.archive.exports.last().map(|newest| newest.taken_at).max(last);
        if let Some(newest) = newest.filter(|newest| *newest >= export.taken_at) {
            let taken_at = newest + SignedDuration::from_millis(1);
            let later = self.writing.join("later.jsonl.zst");
            write_state(&Archived { taken_at, ..export }, None, &later)?;
            fs::rename(&later, self.path()).map_err(|error| Error::new(&later, error))?;
        }
        self.finish(entries)
    }

    /// Gives the finished export its name, unless an export with the same time exists.
    ///
    /// # Errors
    /// If the export cannot be read, is from another cluster, or cannot be renamed.
    pub fn finish(self, entries: u64) -> Result<Added> {
        let mut export = archived(self.path())?;
        self.archive.require(&export.guid)?;
        let exports = &self.archive.exports;
        let newest = exports.last().map(|newest| newest.taken_at);
        let later = newest.filter(|newest| *newest > export.taken_at);
        if let Some(same) = exports.iter().find(|other| other.taken_at == export.taken_at) {
            return Ok(Added { export: same.clone(), entries, later, already_existed: true });
        }

        let at = export.taken_at.to_zoned(TimeZone::UTC).strftime(NAMED);
        let named = self.archive.folder.join(format!("{BEGIN}{at}{END}"));
        fs::rename(&export.path, &named).map_err(|error| Error::new(&named, error))?;
        export.path = named;
        Ok(Added { export, entries, later, already_existed: false })
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.writing);
    }
}

impl Archived {
    /// Reads a part of the export; `None` if another run has removed the export.
    pub fn read(&self, part: Part<'_>, progress: &ProgressFn) -> Result<Option<Snapshot>> {
        let opened = DataFile::open(&self.path).map_err(Error::of_archive);
        let Some(file) = unless_missing(opened)? else { return Ok(None) };
        let read = match part {
            Part::Whole => file.observe(progress),
            part => file.observe_some(&|key| part.holds(key), progress),
        };
        unless_missing(read.map_err(Error::of_archive))
    }

    /// The path of the file with the changes after this export. The file can be missing.
    pub fn changes(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("{}{}", name.strip_suffix(END).unwrap_or(&name), recording::END))
    }

    /// Removes the export and the changes after it, unless another run has already done so.
    pub fn remove(&self) -> Result<()> {
        let changes = self.changes();
        regular::remove(&changes).map_err(|error| Error::new(&changes, error))?;
        regular::remove(&self.path).map_err(|error| Error::new(&self.path, error))
    }
}

pub(crate) fn unless_missing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_missing_file() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_exports_in_an_archive() {
        for good in ["calipam-20261120T031200Z.jsonl.zst", "calipam-20261120T031200.25Z.jsonl.zst"] {
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

    #[test]
    fn parts_of_exports_of_both_datastores() {
        let pods = BTreeSet::from([("shop".to_owned(), "web-0".to_owned())]);
        let records = Part::Records { handle: Some("net.Web-0") };
        let users = Part::Users(&pods);
        let endpoint = |rest: &str| format!("{ENDPOINT_PREFIX}{rest}");
        for (part, wanted, key) in [
            (records, true, "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26"),
            (records, true, "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.0-26"),
            (records, true, "/calico/ipam/v2/handle/net.Web-0"),
            (records, false, "/calico/ipam/v2/handle/net.web-0"),
            (Part::Records { handle: None }, false, "/calico/ipam/v2/handle/net.Web-0"),
            (records, true, "ipamblocks/10-0-0-0-26"),
            (records, true, "blockaffinities/node-1-10-0-0-0-26"),
            (records, true, "ipamhandles/net.web-0"),
            (records, false, "ipamhandles/net.web-1"),
            (records, false, "pods/shop/web-0"),
            (records, false, "/calico/resources/v3/projectcalico.org/nodes/node-1"),
            (users, true, "pods/shop/web-0"),
            (users, false, "pods/shop/web-1"),
            (users, false, "services/shop/web-0"),
            (users, true, &endpoint("shop/node--1-k8s-web--0-eth0")),
            (users, false, &endpoint("shop/node--1-k8s-web--1-eth0")),
            (users, false, "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26"),
            (Part::Whole, true, "services/shop/web-0"),
        ] {
            assert_eq!(part.holds(key.as_bytes()), wanted, "{part:?}: {key}");
        }
    }
}
