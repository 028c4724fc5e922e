//! Errors about data files.

use std::io;
use std::path::PathBuf;

use calipam_model::hint::{Call, Hint};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error for a data file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", path.display())]
pub struct Error {
    pub path: PathBuf,
    pub kind: FileError,
}

impl Error {
    pub fn new(path: impl Into<PathBuf>, kind: impl Into<FileError>) -> Self {
        Self {
            path: path.into(),
            kind: kind.into(),
        }
    }

    /// Converts the error to one about a file in an archive.
    pub(crate) fn of_archive(self) -> Self {
        Self {
            kind: self.kind.of_archive(),
            ..self
        }
    }

    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.kind, FileError::ChangesDamaged { .. })
    }

    /// True for a folder, a pipe or a link in the place of a file.
    pub fn is_irregular_file(&self) -> bool {
        matches!(&self.kind, FileError::Io(error) if error.kind() == io::ErrorKind::InvalidInput)
    }

    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(&self.kind, FileError::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The reason why a data file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An error of the operating system.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    /// The file is of no known kind.
    #[error("neither a calipam export, nor an etcd snapshot, nor Kubernetes objects in JSON{0}")]
    UnknownKind(String),
    /// An etcd member's data folder, or a backup of one from `etcdctl backup`.
    #[error("an etcd data folder (`member/snap`, `member/wal`), which only etcd itself can read")]
    EtcdFolder,
    /// A file of Kubernetes objects that is cut off or not JSON.
    #[error("cannot read the Kubernetes objects: {0}")]
    Objects(String),
    /// A list of Kubernetes objects that lacks pages.
    #[error("the list of {kind} is incomplete: {}", if *.remaining > 0 { format!("{remaining} more objects follow (`metadata.remainingItemCount`)") } else { "more objects follow (`metadata.continue`)".to_owned() })]
    ObjectsMissing { kind: String, remaining: u64 },
    #[error("holds no Calico data: there is no key under /calico/")]
    NoCalico,
    /// Files with Kubernetes objects, but without Calico objects.
    #[error("holds no Calico objects")]
    NoObjects,
    /// An export in another version of the format.
    #[error("an export of version {0}; this program reads version 1")]
    ExportVersion(u64),
    /// An export with an invalid line, such as a footer with a wrong number of entries.
    #[error("line {line} of the export: {reason}")]
    ExportLine {
        /// Line number, from 1.
        line: u64,
        reason: String,
    },
    /// An export that ends too early.
    #[error("the export ends after {entries} entries")]
    ExportCut {
        /// The number of entries before its end.
        entries: u64,
    },
    /// Invalid compressed data.
    #[error("cannot unpack it: {0}")]
    Unpack(String),
    /// An export in an archive is damaged.
    #[error("{0}")]
    Archived(Box<FileError>),
    /// The data is from another cluster than the archive. Contains the archive's GUID, then the other cluster's GUID.
    #[error("an archive of cluster {:?}, not of {:?}", .guids[0], .guids[1])]
    OtherCluster { guids: [String; 2] },
    /// Another run is writing to the archive.
    #[error("another run is writing to this archive")]
    ArchiveBusy,
    /// A recording's changes are damaged.
    #[error("damaged at byte {at}: the changes from there on cannot be read")]
    ChangesDamaged { at: u64 },
    /// Changes in another version of the format.
    #[error("changes of version {0}; this program reads version 1")]
    ChangesVersion(u32),
    /// An etcd snapshot that ends too early.
    #[error("the etcd snapshot is cut off: {0}")]
    SnapshotCut(String),
    /// An etcd snapshot whose checksum does not match.
    #[error("the etcd snapshot is damaged: its checksum (SHA-256) does not match its content")]
    SnapshotChecksum,
    /// An etcd snapshot whose pages are damaged.
    #[error("the etcd snapshot is damaged: {0}")]
    SnapshotDamaged(String),
}

impl FileError {
    /// Returns a hint about what to do next; `None` if the error says all that is known.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Empty | Self::UnknownKind(_) => Hint::new(
                "use a file written by {}, `etcdctl snapshot save FILE` or `kubectl get … -o json`",
                [Call::elsewhere(["export", "FILE"])],
            ),
            Self::EtcdFolder => {
                "serve a copy of it: `etcd --data-dir COPY --force-new-cluster --enable-v2 --listen-client-urls \
                 http://127.0.0.1:2399 --advertise-client-urls http://127.0.0.1:2399` (etcd 3.4 or older), and read that with \
                 DATASTORE_TYPE=etcdv2. Calico 3 data is in its file member/snap/db".into()
            }
            Self::NoCalico => {
                "is this the etcd that Calico uses? A cluster often has another one for the Kubernetes API; \
                 with the Kubernetes datastore, Calico uses no etcd of its own. Calico 2.x data is read with \
                 DATASTORE_TYPE=etcdv2".into()
            }
            Self::ObjectsMissing { .. } => {
                "write it again with all pages: `kubectl get … -o json` follows them, `kubectl get --raw` with a limit does not".into()
            }
            Self::Objects(_) | Self::NoObjects => {
                "write it again: `kubectl get ipamblocks,ipamhandles,blockaffinities,ipamconfigs,ippools,\
                 ipreservations,clusterinformations,kubecontrollersconfigurations,nodes,pods,services -A -o json`".into()
            }
            Self::ExportVersion(_) | Self::ChangesVersion(_) => "use the version of calipam that wrote it".into(),
            Self::ExportLine { .. } | Self::ExportCut { .. } | Self::Unpack(_) => {
                Hint::new("write it again with {}, or copy it again", [Call::elsewhere(["export", "FILE"])])
            }
            Self::SnapshotCut(_) | Self::SnapshotChecksum | Self::SnapshotDamaged(_) => {
                "take it again with `etcdctl snapshot save FILE`; a copy of a running etcd's file \
                 `member/snap/db` is not consistent".into()
            }
            Self::OtherCluster { .. } => "each cluster has an archive of its own: name another folder".into(),
            Self::ArchiveBusy => "wait until the other run has ended; files left by a killed run do no harm".into(),
            Self::ChangesDamaged { .. } | Self::Archived(_) => {
                "move the file out of the archive: the time that it covered then shows as a gap".into()
            }
            Self::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                "is the path right, and does its folder exist?".into()
            }
            Self::Io(_) => return None,
        })
    }

    /// Converts the error to one about a file in an archive, where damaged data cannot be written again.
    pub(crate) fn of_archive(self) -> Self {
        match self {
            Self::Empty
            | Self::UnknownKind(_)
            | Self::ExportLine { .. }
            | Self::ExportCut { .. }
            | Self::Unpack(_) => Self::Archived(Box::new(self)),
            other => other,
        }
    }
}
