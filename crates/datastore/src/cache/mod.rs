//! What a check has read, kept in files for the next check of the same cluster, which then reads only what has changed since:
//! one file for an etcd, and on Kubernetes one for each kind of which there are many objects.
//!
//! A file holds the objects as they were at one revision, packed; then, appended by each later check, the changes that it
//! read; after each of them what all of it comes to: at which revision that is, and what was written last before it. The next
//! check watches from that last write on, so that the server reports it again: if it reports another one, its data was restored
//! from a backup, or it is another server. Wherever there is any doubt, everything is read.
//!
//! Nothing but a check reads a cache: what is to be written is planned on a whole read.

pub(crate) mod etcd;
mod file;
pub(crate) mod kubernetes;
mod newest;

use std::fmt;

use calipam_model::snapshot::Snapshot;

pub use self::kubernetes::Worth;

/// What a read with a cache came to.
#[derive(Debug)]
pub struct CachedRead {
    pub snapshot: Snapshot,
    pub used: CacheUse,
    /// Why the cache could not be written: the next check reads everything.
    pub unsaved: Option<String>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// So many changes since the revision of the last check.
    Changes { since: i64, changes: usize },
    /// Everything.
    Whole(WhyWhole),
    /// Of each kind of which there may be many objects, its changes or all of it; of all other kinds everything.
    Kinds(Vec<KindUse>),
    /// Of etcd, and of the pods of its cluster.
    WithKinds(Box<CacheUse>, Vec<KindUse>),
}

/// What was read of a kind of Kubernetes objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindUse {
    /// The plural of the kind.
    pub kind: &'static str,
    /// The version of the kind that was read.
    pub version: String,
    /// How many of its objects have changed since the last check; or why all of them were read.
    pub read: Result<usize, WhyWhole>,
}

/// Why everything was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyWhole {
    /// The folder holds nothing of this cluster.
    NoCacheYet,
    /// Most of what the cache holds has changed since: it is written from scratch.
    ManyChanges,
    /// What has changed since is no longer kept by the server.
    Compacted,
    /// There is so little of it that reading it takes no longer than learning what has changed.
    Little,
    /// It is damaged, or of another version of this program; or it cannot be read.
    Unusable(String),
    /// The server does not say what was written when the cache was made: it was restored from a backup, or is another one.
    AnotherHistory(String),
    /// The changes cannot be watched.
    CannotWatch(String),
    /// This datastore has none.
    NotForThisDatastore,
}

impl WhyWhole {
    /// True if that is to be expected, so that no warning is due.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::NoCacheYet | Self::ManyChanges | Self::Compacted | Self::Little)
    }

    /// An API server that does not say when it has reported everything.
    pub(crate) fn old_server() -> Self {
        let reason = "only Kubernetes 1.33 and later says when it has reported all changes";
        Self::CannotWatch(reason.to_owned())
    }

    fn damaged() -> Self {
        Self::Unusable("it is damaged".to_owned())
    }
}

impl fmt::Display for WhyWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCacheYet => f.write_str("there is no cache of this cluster yet"),
            Self::ManyChanges => f.write_str("much has changed since the cache was made"),
            Self::Compacted => {
                f.write_str("the server no longer knows what has changed since the last check")
            }
            Self::Little => f.write_str("the cluster is so small that this is as fast"),
            Self::Unusable(reason) => write!(f, "the cache cannot be used: {reason}"),
            Self::AnotherHistory(reason) => {
                write!(
                    f,
                    "the cache is of another history of this datastore, such as before a restore: {reason}"
                )
            }
            Self::CannotWatch(reason) => write!(f, "what has changed cannot be watched: {reason}"),
            Self::NotForThisDatastore => {
                f.write_str("only what is read from etcd v3 and Kubernetes is kept in a cache")
            }
        }
    }
}

/// True if it is time to write a cache from scratch: so much was appended to it.
fn has_much_changed(changes: u64, objects: u64) -> bool {
    changes > objects / 4 + 1_000
}

/// What a file name can take of a text that comes from a server.
fn part_of_name(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).take(32).collect()
}
