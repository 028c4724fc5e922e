//! Reasons to read everything instead of only the changes.

use std::fmt;

/// The reason that everything must be read: the changes are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyWhole {
    /// There was no earlier read.
    New,
    /// The server no longer keeps the changes since the last read.
    Compacted,
    /// The server does not have the last known change: it was restored from a backup, or is another server.
    AnotherHistory(String),
    /// The server broke off its report, and may have been replaced by one with another history.
    Interrupted,
    /// The changes cannot be watched.
    CannotWatch(String),
    /// This datastore does not report changes.
    NotForThisDatastore,
}

impl WhyWhole {
    /// True if this is expected and needs no warning.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::New | Self::Compacted | Self::Interrupted)
    }

    /// The reason for an API server that does not confirm that it has reported everything.
    pub(crate) fn old_server() -> Self {
        let reason = "only Kubernetes 1.33 and later confirms that it has reported all changes";
        Self::CannotWatch(reason.to_owned())
    }
}

impl fmt::Display for WhyWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("nothing has been read yet"),
            Self::Compacted => f.write_str("the server no longer has the changes since the last read"),
            Self::AnotherHistory(reason) => {
                write!(f, "the datastore's history is different, as after a restore: {reason}")
            }
            Self::Interrupted => f.write_str("the server stopped reporting changes"),
            Self::CannotWatch(reason) => write!(f, "changes cannot be watched: {reason}"),
            Self::NotForThisDatastore => f.write_str("only etcd v3 and Kubernetes report changes"),
        }
    }
}
