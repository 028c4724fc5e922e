//! Reads the data in a file: an export, an etcd snapshot, or Kubernetes objects.

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calipam_model::block::RecordDetail;
use calipam_model::parallel::in_order;
use calipam_model::snapshot::{Coverage, DatastoreKind, ETCD_SOURCES, Snapshot, Source, WhySkipped};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;
use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, FileError, Result};
use crate::etcd_snapshot::{self, SnapshotInfo, looks_like_snapshot, sort_by_key};
use crate::export::{self, Export, Header, Tally, Writer, looks_like_export};
use crate::extent::{Extent, skip};
use crate::kubectl;
use crate::raw::{RawEntry, is_read};
use crate::{CALICO_2_SOURCES, Progress, ProgressFn, regular};

/// The number of bytes at the start of a file by which its kind is recognized.
const HEAD: u64 = (1 << 16) + 4096;
/// The name of standard input, in place of a path.
const STANDARD_INPUT: &str = "standard input";

/// A data file of a known kind.
#[derive(Clone, Debug)]
pub struct DataFile {
    path: PathBuf,
    /// The name of the data for people: the path, or what they named instead.
    name: PathBuf,
    kind: FileKind,
    /// The temporary file with the content of standard input, which is needed more than once.
    input: Option<Arc<TempPath>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Export,
    EtcdSnapshot,
    /// Kubernetes objects in JSON: a file, or a folder of files.
    KubernetesObjects,
}

impl DataFile {
    /// Recognizes a file by its content, regardless of its name.
    ///
    /// # Errors
    /// If the file cannot be read, or is of no known kind.
    pub fn open(path: &Path) -> Result<Self> {
        if is_etcd_folder(path) || is_etcd_folder(&path.join("member")) {
            return Err(Error::new(path, FileError::EtcdFolder));
        }
        if path.is_dir() {
            return Ok(Self::of_kind(path, FileKind::KubernetesObjects));
        }
        let failed = |error: std::io::Error| Error::new(path, error);
        let mut head = Vec::new();
        let file = regular::open(path).map_err(failed)?;
        file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
        if head.is_empty() {
            return Err(Error::new(path, FileError::Empty));
        }
        let kind = if looks_like_export(&head) {
            FileKind::Export
        } else if looks_like_snapshot(&head) {
            FileKind::EtcdSnapshot
        } else if kubectl::looks_like_objects(&head) {
            FileKind::KubernetesObjects
        } else {
            return Err(Error::new(path, FileError::UnknownKind(String::new())));
        };
        Ok(Self::of_kind(path, kind))
    }

    /// A file of a known kind at a path, which is also its name in messages.
    fn of_kind(path: &Path, kind: FileKind) -> Self {
        Self {
            path: path.to_owned(),
            name: path.to_owned(),
            kind,
            input: None,
        }
    }

    /// Sets the name of the data in documents, in place of the path.
    #[must_use]
    pub fn shown_as(self, name: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Reads standard input to its end, and recognizes its content.
    pub fn of_input(mut input: impl Read) -> Result<Self> {
        let failed = |error: std::io::Error| Error::new(STANDARD_INPUT, error);
        let mut file = NamedTempFile::new().map_err(failed)?;
        std::io::copy(&mut input, &mut file).map_err(failed)?;
        let path = file.into_temp_path();
        let data_file = Self::open(&path).map_err(about_input)?;
        Ok(Self {
            input: Some(Arc::new(path)),
            ..data_file.shown_as(STANDARD_INPUT)
        })
    }

    /// The name of the data for people: the path, unless [another](Self::shown_as) was set.
    pub fn name(&self) -> String {
        self.name.display().to_string()
    }

    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Reads the entire file. This takes time, so it must not run on a thread that answers requests.
    pub fn observe(&self, progress: &ProgressFn) -> Result<Snapshot> {
        self.observe_extent(&Extent::Whole, progress)
    }

    /// Reads the part of the file that `extent` describes into a snapshot. A file of Kubernetes objects is always read
    /// completely.
    pub fn observe_extent(&self, extent: &Extent, progress: &ProgressFn) -> Result<Snapshot> {
        let is_wanted = |key: &[u8]| extent.has_key(key);
        let mut snapshot = match self.observe_path(is_wanted, extent.records(), progress) {
            Ok(snapshot) => snapshot,
            // The error is about the temporary file, which the user does not know.
            Err(error) if self.input.is_some() => return Err(about_input(error)),
            Err(error) => return Err(error),
        };
        if self.kind == FileKind::KubernetesObjects {
            return Ok(snapshot);
        }

        // The file may have more sources than were read.
        snapshot
            .coverage
            .retain(|source, coverage| extent.has(*source) || *coverage != Coverage::Read);
        extent.mark_unwanted(&mut snapshot);
        Ok(snapshot)
    }

    /// Reads the wanted entries in an export or etcd snapshot, by their keys. Sources in the file count as partly read.
    pub fn observe_some(
        &self,
        is_wanted: &(dyn Fn(&[u8]) -> bool + Sync),
        progress: &ProgressFn,
    ) -> Result<Snapshot> {
        let mut snapshot = self.observe_path(is_wanted, RecordDetail::Full, progress)?;
        snapshot.mark_all_partial();
        Ok(snapshot)
    }

    /// Reads the wanted entries of the file, and the time and place that it is about.
    fn observe_path(
        &self,
        is_wanted: impl Fn(&[u8]) -> bool + Sync,
        records: RecordDetail,
        progress: &ProgressFn,
    ) -> Result<Snapshot> {
        let mut snapshot = Snapshot {
            records,
            ..Snapshot::default()
        };
        match self.kind {
            FileKind::Export => {
                let header = self.read_export(&mut snapshot, &is_wanted, progress)?;
                describe(&self.name, &mut snapshot, &header);
            }
            FileKind::EtcdSnapshot => {
                let info = self.read_snapshot(&mut snapshot, &is_wanted, progress)?;
                if info.entries == 0 {
                    return Err(Error::new(self.name(), FileError::NoCalico));
                }
                snapshot.revision = info.revision.to_string();
                snapshot.location = self.name();
                self.set_clock(&mut snapshot)?;
                snapshot.mark_read(ETCD_SOURCES);
                sort_by_key(&mut snapshot);
            }
            FileKind::KubernetesObjects => {
                snapshot = kubectl::read(&self.path, &self.files()?)?;
                snapshot.location = self.name();
                self.set_clock(&mut snapshot)?;
            }
        }
        Ok(snapshot)
    }

    /// Adds the wanted entries in an export, whose pieces are decoded on several cores. Returns the export's header.
    ///
    /// # Errors
    /// If a line is invalid, or the export cannot be read or is cut off.
    fn read_export(
        &self,
        snapshot: &mut Snapshot,
        is_wanted: &(impl Fn(&[u8]) -> bool + Sync),
        progress: &ProgressFn,
    ) -> Result<Header> {
        let failed = |kind| Error::new(&self.path, kind);
        let mut export = Export::open(&self.path).map_err(failed)?;
        let records = snapshot.records;
        let mut tally = Tally::default();
        let mut read = 0;
        let mut read_error = None;
        let pieces = std::iter::from_fn(|| match export.piece() {
            Ok(piece) => piece,
            Err(error) => {
                read_error = Some(error);
                None
            }
        });
        let end = in_order(
            pieces,
            |piece| {
                let mut part = Snapshot {
                    records,
                    ..Snapshot::default()
                };
                let decoded = piece.decode(is_wanted, |entry| add(&mut part, entry));
                (part, decoded)
            },
            |(part, decoded)| {
                snapshot.absorb(part);
                read += decoded.entries;
                progress(Progress { read, expected: 0 });
                tally.add(decoded)
            },
        );

        let has_end = match end {
            // An invalid line takes precedence over a later read error.
            ControlFlow::Break(Err(error)) => return Err(failed(error)),
            ControlFlow::Break(Ok(())) => true,
            ControlFlow::Continue(()) => false,
        };
        if let Some(error) = read_error {
            return Err(failed(error));
        }
        if !has_end {
            return Err(failed(tally.cut()));
        }
        export.finish().map_err(failed)?;
        Ok(export.header)
    }

    /// Adds the wanted entries in an etcd snapshot.
    fn read_snapshot(
        &self,
        snapshot: &mut Snapshot,
        is_wanted: &(impl Fn(&[u8]) -> bool + Sync),
        progress: &ProgressFn,
    ) -> Result<SnapshotInfo> {
        let records = snapshot.records;
        let mut read = 0;
        // An etcd can contain other keys of Calico, and those of other programs, which a check does not need.
        let is_wanted_by_check = |key: &[u8]| is_read(key) && is_wanted(key);
        etcd_snapshot::read_in_parts(
            &self.path,
            &is_wanted_by_check,
            || Snapshot {
                records,
                ..Snapshot::default()
            },
            |part, entry| part.add_entry(entry.key, entry.value, entry.mod_revision),
            |part, entries| {
                snapshot.absorb(part);
                read += entries;
                progress(Progress { read, expected: 0 });
            },
        )
    }

    /// Passes undecoded entries to `take`: all in an export, and those that a check needs in any other file.
    pub fn entries(&self, take: impl FnMut(&RawEntry<'_>) + Send) -> Result<()> {
        match self.kind {
            FileKind::Export => export::read(&self.path, take).map(drop),
            FileKind::EtcdSnapshot => etcd_snapshot::read(&self.path, is_read, take).map(drop),
            FileKind::KubernetesObjects => kubectl::read_entries(&self.files()?, take),
        }
    }

    /// Exports the content: converts an etcd snapshot or Kubernetes objects, or compresses or decompresses an export.
    /// Returns the number of entries.
    pub fn export(&self, path: &Path, progress: &ProgressFn) -> Result<u64> {
        let mut writer = Writer::create(path, &Header::of_snapshot(&self.observe(progress)?))?;
        // `entries` cannot be stopped, so after an error the other entries are skipped.
        let mut result = Ok(());
        self.entries(|entry| {
            if result.is_ok() && (is_read(entry.key) || kubectl::is_exported(entry.key)) {
                result = writer.entry(entry);
            }
        })?;
        result?;
        writer.finish()
    }

    /// The path itself, or the files of Kubernetes objects in the folder at the path.
    fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.path.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        kubectl::files_of(&self.path).map_err(|e| Error::new(&self.path, e))
    }

    /// Sets the snapshot's time for a file that does not record one: the newest time in the data, or else the time at
    /// which the file was last modified.
    fn set_clock(&self, snapshot: &mut Snapshot) -> Result<()> {
        snapshot.taken_at = match newest_time(snapshot, Timestamp::now()) {
            Some(newest) => newest,
            None => self.modified_at()?,
        };
        Ok(())
    }

    /// The time at which the file was last modified.
    fn modified_at(&self) -> Result<Timestamp> {
        let modified = std::fs::metadata(&self.path)
            .and_then(|metadata| metadata.modified())
            .map_err(|error| Error::new(&self.path, error))?;
        Ok(Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

/// Copies the data from an export's header to a snapshot.
pub(crate) fn describe(path: &Path, snapshot: &mut Snapshot, header: &Header) {
    snapshot.datastore = header.datastore;
    snapshot.taken_at = header.taken_at;
    snapshot.location = format!("{} (exported from {})", path.display(), header.location);
    snapshot.revision.clone_from(&header.revision);
    snapshot.coverage.clone_from(&header.coverage);
    let expected: Vec<Source> = match snapshot.datastore {
        DatastoreKind::Etcd => ETCD_SOURCES.to_vec(),
        DatastoreKind::EtcdV2 => CALICO_2_SOURCES.to_vec(),
        DatastoreKind::Kubernetes => kubectl::sources().collect(),
    };
    for source in expected {
        skip(snapshot, source, WhySkipped::NotInExport);
    }
}

/// Decodes one entry of an export.
pub fn of_entry(entry: &RawEntry<'_>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    add(&mut snapshot, entry);
    snapshot
}

/// Decodes an entry of an export, and adds its object to a snapshot.
pub(crate) fn add(snapshot: &mut Snapshot, entry: &RawEntry<'_>) {
    if kubectl::is_exported(entry.key) {
        kubectl::add_exported(snapshot, entry.key, entry.value);
    } else {
        snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
    }
}

/// True for an etcd data folder, with snapshots and log.
fn is_etcd_folder(path: &Path) -> bool {
    path.join("snap").is_dir() && path.join("wal").is_dir()
}

/// Turns an error about the temporary file into one about standard input.
fn about_input(error: Error) -> Error {
    Error {
        path: STANDARD_INPUT.into(),
        ..error
    }
}

/// Returns the newest time in the data that is not in the future; `None` if the data has no such time.
pub fn newest_time(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let mut newest = newest_in_blocks(snapshot, now);
    // If the newest creation time is in the future, those of other objects are unknown, so only the times in blocks
    // remain.
    if let Some(creation) = snapshot.newest_creation
        && creation.duration_since(now) <= CLOCK_SKEW
    {
        newest = newest.max(Some(creation.min(now)));
    }
    newest
}

/// The latest time at which a block was claimed, or an address allocated or released. Nodes write these times by their
/// own clocks, so a time in the future is ignored.
fn newest_in_blocks(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let unless_future = |time: Option<Timestamp>| time.filter(|time| *time <= now);
    let mut newest = None;
    for stored in &snapshot.blocks {
        let Some(block) = stored.value.content.sound() else {
            continue;
        };
        newest = newest.max(unless_future(block.claimed_at()));
        for attribute in block.attributes() {
            newest = newest
                .max(unless_future(attribute.allocated_at()))
                .max(unless_future(attribute.released_time()));
        }
    }
    newest
}

#[cfg(test)]
mod tests;
