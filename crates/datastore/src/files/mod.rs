//! Reading everything from a file: an export or an etcd snapshot.

pub(crate) mod objects;
mod snapshot;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calipam_model::snapshot::{Coverage, DatastoreKind, ETCD_SOURCES, Snapshot, Source, WhySkipped};
use jiff::Timestamp;
use tempfile::{NamedTempFile, TempPath};

use self::snapshot::looks_like_snapshot;
use crate::error::{Error, FileError, Result};
use crate::export::{self, Header, looks_like_export};
use crate::raw::{RawEntry, is_read};
use crate::read::whole::{Progress, ProgressFn, etcdv2};

/// How much of a file tells its kind.
const HEAD: u64 = (1 << 16) + 4096;
/// Entries after which progress is told.
const STEP: u64 = 10_000;

/// What standard input is called where a file has a path.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// A file of data, whose kind is known.
#[derive(Clone, Debug)]
pub struct DataFile {
    path: PathBuf,
    kind: FileKind,
    /// What came from standard input lies in a temporary file, since it is read more than once.
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
    /// Finds out by its content what a file is; its name does not matter.
    ///
    /// # Errors
    /// Where it cannot be read, or is nothing that this program knows.
    pub fn open(path: &Path) -> Result<Self> {
        if is_etcd_folder(path) || is_etcd_folder(&path.join("member")) {
            return Err(Error::file(path, FileError::EtcdFolder));
        }
        if path.is_dir() {
            return Ok(Self { path: path.to_owned(), kind: FileKind::KubernetesObjects, input: None });
        }
        let mut head = Vec::new();
        let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        read.map_err(|e| Error::file(path, e))?;
        let kind = if head.is_empty() {
            return Err(Error::file(path, FileError::Empty));
        } else if looks_like_export(&head) {
            FileKind::Export
        } else if looks_like_snapshot(&head) {
            FileKind::EtcdSnapshot
        } else if objects::looks_like_objects(&head) {
            FileKind::KubernetesObjects
        } else {
            return Err(Error::file(path, FileError::UnknownKind(String::new())));
        };
        Ok(Self { path: path.to_owned(), kind, input: None })
    }

    /// Takes the whole of standard input.
    ///
    /// # Errors
    /// As [`Self::open`], and where there is no room for a temporary file.
    pub(crate) fn of_input(mut input: impl Read) -> Result<Self> {
        let mut spooled = || -> std::io::Result<TempPath> {
            let mut file = NamedTempFile::new()?;
            std::io::copy(&mut input, &mut file)?;
            Ok(file.into_temp_path())
        };
        let path = spooled().map_err(|e| Error::file(STANDARD_INPUT, e))?;
        let found = Self::open(&path).map_err(of_input)?;
        Ok(Self { input: Some(Arc::new(path)), ..found })
    }

    /// Its path, or what stands for it.
    pub fn name(&self) -> String {
        self.named(&self.path).display().to_string()
    }

    fn named<'a>(&self, path: &'a Path) -> &'a Path {
        if self.input.is_some() { Path::new(STANDARD_INPUT) } else { path }
    }

    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Reads all of it. Takes its time; does not belong on a thread that has to answer others.
    ///
    /// # Errors
    /// Where the file is damaged or cut.
    pub fn observe(&self, progress: &ProgressFn) -> Result<Snapshot> {
        self.observe_path(&|_| true, progress)
            .map_err(|error| if self.input.is_some() { of_input(error) } else { error })
    }

    /// Reads the entries of an export whose keys are wanted. What else it holds counts as read only in part.
    ///
    /// # Errors
    /// As [`Self::observe`].
    pub fn observe_some(&self, is_wanted: &dyn Fn(&[u8]) -> bool, progress: &ProgressFn) -> Result<Snapshot> {
        let mut snapshot = self.observe_path(is_wanted, progress)?;
        for coverage in snapshot.coverage.values_mut().filter(|coverage| **coverage == Coverage::Read) {
            *coverage = Coverage::Partial;
        }
        Ok(snapshot)
    }

    fn observe_path(&self, is_wanted: &dyn Fn(&[u8]) -> bool, progress: &ProgressFn) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut read = 0;
        let mut add = |entry: &RawEntry<'_>| {
            if objects::is_exported(entry.key) {
                objects::add_exported(&mut snapshot, entry.key, entry.value);
            } else {
                snapshot.add_entry(entry.key, entry.value, entry.mod_revision);
            }
            read += 1;
            if read % STEP == 0 {
                progress(Progress { read, expected: 0 });
            }
        };
        match self.kind {
            FileKind::Export => {
                let header = export::read_some(&self.path, is_wanted, &mut add)?;
                self.describe(&mut snapshot, &header)?;
            }
            FileKind::EtcdSnapshot => {
                let info = self::snapshot::read(&self.path, is_read, &mut add)?;
                if info.entries == 0 {
                    return Err(Error::NoCalico { location: self.name() });
                }
                snapshot.revision = info.revision.to_string();
                snapshot.location = self.name();
                self.set_clock(&mut snapshot)?;
                snapshot.mark_read(ETCD_SOURCES);
                sort_by_key(&mut snapshot);
            }
            FileKind::KubernetesObjects => {
                snapshot = objects::read(&self.path, &self.files()?)?;
                snapshot.location = self.name();
                self.set_clock(&mut snapshot)?;
            }
        }
        Ok(snapshot)
    }

    /// Gives each entry to `take`, without looking at it.
    ///
    /// # Errors
    /// Where the file is damaged or cut.
    pub(crate) fn entries(&self, take: impl FnMut(&RawEntry<'_>)) -> Result<()> {
        match self.kind {
            FileKind::Export => export::read(&self.path, take).map(drop),
            FileKind::EtcdSnapshot => self::snapshot::read(&self.path, is_read, take).map(drop),
            FileKind::KubernetesObjects => objects::read_entries(&self.files()?, take),
        }
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.path.is_dir() {
            return Ok(vec![self.path.clone()]);
        }
        objects::files_of(&self.path).map_err(|e| Error::file(&self.path, e))
    }

    /// Sets the clock of a file that does not say when it was written. Times in the future come from
    /// clocks that run wrong.
    fn set_clock(&self, snapshot: &mut Snapshot) -> Result<()> {
        let newest = newest_time(snapshot, Timestamp::now());
        snapshot.taken_at = newest.map_or_else(|| self.changed_at(), Ok)?;
        Ok(())
    }

    /// Takes over what an export says about itself.
    fn describe(&self, snapshot: &mut Snapshot, header: &Header) -> Result<()> {
        let line = |reason: String| Error::file(&self.path, FileError::ExportLine { line: 1, reason });
        snapshot.datastore = match header.datastore.as_str() {
            "etcd" => DatastoreKind::Etcd,
            "etcdv2" => DatastoreKind::EtcdV2,
            "kubernetes" => DatastoreKind::Kubernetes,
            other => return Err(line(format!("the datastore {other:?} is not known to this program"))),
        };
        snapshot.taken_at = header
            .taken_at
            .parse()
            .map_err(|_| line(format!("`takenAt` is {:?}, which is not a time", header.taken_at)))?;
        snapshot.location = format!("{} (exported from {})", self.name(), header.location);
        snapshot.revision.clone_from(&header.revision);
        snapshot.coverage = header.coverage();
        let expected: Vec<Source> = match snapshot.datastore {
            DatastoreKind::Etcd => ETCD_SOURCES.to_vec(),
            DatastoreKind::EtcdV2 => etcdv2::SOURCES.to_vec(),
            DatastoreKind::Kubernetes => objects::sources().collect(),
        };
        for source in expected {
            let absent = || Coverage::Skipped(WhySkipped::NotInExport);
            snapshot.coverage.entry(source).or_insert_with(absent);
        }
        Ok(())
    }

    fn changed_at(&self) -> Result<Timestamp> {
        let changed = std::fs::metadata(&self.path).and_then(|m| m.modified());
        let changed = changed.map_err(|e| Error::file(&self.path, e))?;
        Ok(Timestamp::try_from(changed).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

/// True for the folder of an etcd with its snapshots and its log.
fn is_etcd_folder(path: &Path) -> bool {
    path.join("snap").is_dir() && path.join("wal").is_dir()
}

/// The error of the temporary file of standard input.
fn of_input(error: Error) -> Error {
    match error {
        Error::File { kind, .. } => Error::File { path: STANDARD_INPUT.into(), kind },
        other => other,
    }
}

/// The newest time in the data that has passed.
pub(crate) fn newest_time(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    snapshot.newest_creation.map(|newest| newest.min(now)).max(newest_in_blocks(snapshot, now))
}

/// When a block was last claimed, or an address allocated or released. Nodes and pods write these times by clocks of
/// their own: what is in the future says nothing about the others.
fn newest_in_blocks(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let times = blocks.flat_map(|block| {
        let records = block.attributes().flat_map(|a| [a.allocated_at(), a.released_time()]);
        records.chain([block.claimed_at()])
    });
    times.flatten().filter(|at| *at <= now).max()
}

/// Puts objects into the order of their keys, as etcd gives them out; a snapshot file has them in the
/// order of their last change.
pub(crate) fn sort_by_key(snapshot: &mut Snapshot) {
    use calipam_model::key::Key;
    snapshot.blocks.sort_by_cached_key(|b| Key::Block(b.value.key).to_string());
    snapshot.affinities.sort_by_cached_key(|a| Key::Affinity(a.value.key.clone()).to_string());
    snapshot.handles.sort_by_cached_key(|h| h.value.id().to_string());
    snapshot.endpoints.sort_by_cached_key(|e| format!("{}/{}", e.value.namespace(), e.value.name()));
    snapshot.nodes.sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot.pools.sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot.reservations.sort_by(|a, b| a.value.name.cmp(&b.value.name));
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_tells_what_a_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            DataFile::open(&path)
        };
        let kind = |error: Error| match error {
            Error::File { kind, .. } => kind,
            other => panic!("{other}"),
        };
        assert!(matches!(kind(open("a.db", b"").unwrap_err()), FileError::Empty));
        assert!(matches!(
            kind(open("a.zst", b"{\"kind\":\"Other\"}").unwrap_err()),
            FileError::UnknownKind(_)
        ));
        assert!(matches!(kind(DataFile::open(&folder.path().join("none")).unwrap_err()), FileError::Io(_)));
        let header = br#"{"format":"calipam-export","version":1"#;
        assert_eq!(open("a.db", header).unwrap().kind(), FileKind::Export);
        assert_eq!(open("b", &[0x28, 0xB5, 0x2F, 0xFD, 0]).unwrap().kind(), FileKind::Export);
    }

    #[test]
    fn what_comes_from_standard_input_is_a_file_of_that_name() {
        let wrong = DataFile::of_input(&b"hello"[..]).unwrap_err().to_string();
        assert!(wrong.starts_with("standard input: "), "{wrong}");
        let header = b"{\"format\":\"calipam-export\",\"version\":1}\n";
        let file = DataFile::of_input(&header[..]).unwrap();
        assert_eq!((file.kind(), file.name().as_str()), (FileKind::Export, "standard input"));
        let quiet: ProgressFn = Arc::new(|_| {});
        let cut = file.observe(&quiet).unwrap_err().to_string();
        assert!(cut.starts_with("standard input: "), "{cut}");
        let path = file.path.clone();
        drop((file.clone(), file));
        assert!(!path.exists(), "the temporary file is taken away");
    }

    #[test]
    fn the_clock_of_objects_is_the_newest_creation_that_they_hold_and_that_has_passed() {
        let folder = tempfile::tempdir().unwrap();
        let taken_at = |record: &str| {
            let path = folder.path().join("x.json");
            let block = r#"{"apiVersion":"projectcalico.org/v3","kind":"IPAMBlock","metadata":{"name":"10-0-0-0-31"},"spec":{"cidr":"10.0.0.0/31",
                "affinityClaimTime":"2026-05-01T10:00:00Z","allocations":[0,null],"unallocated":[1],"attributes":[RECORD]}}"#;
            std::fs::write(&path, block.replace("RECORD", record)).unwrap();
            let quiet: ProgressFn = Arc::new(|_| {});
            DataFile::open(&path).unwrap().observe(&quiet).unwrap().taken_at.to_string()
        };
        let released = |at: &str| taken_at(&format!(r#"{{"releasedAt":"{at}"}}"#));
        assert_eq!(released("2026-05-01T12:00:00Z"), "2026-05-01T12:00:00Z");
        assert_eq!(released("2026-05-01T09:00:00Z"), "2026-05-01T10:00:00Z");
        assert_eq!(released("2999-01-01T00:00:00Z"), "2026-05-01T10:00:00Z");
        let allocated =
            |at: &str| taken_at(&format!(r#"{{"handle_id":"h","secondary":{{"timestamp":"{at}"}}}}"#));
        assert_eq!(allocated("2026-05-01 12:00:00 +0000 UTC"), "2026-05-01T12:00:00Z");
        assert_eq!(allocated("2999-01-01 00:00:00 +0000 UTC"), "2026-05-01T10:00:00Z");
    }

    #[test]
    fn an_export_says_when_and_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let mut header = Header::new("etcd", "https://10.0.0.5:2379", "48250", "2026-05-01T12:00:00Z");
        header.coverage.insert(calipam_model::snapshot::Source::Blocks, "read".into());
        let mut writer = export::Writer::create(&path, &header).unwrap();
        let key = b"/calico/ipam/v2/handle/h";
        writer.entry(&RawEntry { key, value: b"{}", mod_revision: 7, ..RawEntry::default() }).unwrap();
        writer.finish().unwrap();
        let quiet: ProgressFn = Arc::new(|_| {});
        let snapshot = DataFile::open(&path).unwrap().observe(&quiet).unwrap();
        assert_eq!((snapshot.handles.len(), snapshot.revision.as_str()), (1, "48250"));
        assert_eq!(snapshot.taken_at, "2026-05-01T12:00:00Z".parse().unwrap());
        assert!(snapshot.has_read(calipam_model::snapshot::Source::Blocks));
        assert!(!snapshot.has_read(calipam_model::snapshot::Source::Handles));
        assert!(snapshot.location.ends_with("x.jsonl (exported from https://10.0.0.5:2379)"));
    }
}
