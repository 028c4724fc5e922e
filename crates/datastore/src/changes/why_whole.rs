//! Reasons to read everything instead of what has changed.

use std::fmt;

/// Why everything has to be read: its changes are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyWhole {
    /// Nothing is known of it yet.
    New,
    /// The server no longer keeps what has changed since.
    Compacted,
    /// The server does not know what was written last: it was restored from a backup, or is another one.
    AnotherHistory(String),
    /// The server broke off what it reported: it may be another one since, with another history.
    Interrupted,
    /// The changes cannot be watched.
    CannotWatch(String),
    /// This datastore does not report changes.
    NotForThisDatastore,
}

impl WhyWhole {
    /// True if that is to be expected, so that no warning is due.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::New | Self::Compacted | Self::Interrupted)
    }

    /// An API server that does not say when it has reported everything.
    pub(crate) fn old_server() -> Self {
        let reason = "only Kubernetes 1.33 and later says when it has reported all changes";
        Self::CannotWatch(reason.to_owned())
    }
}

impl fmt::Display for WhyWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("nothing is known of it yet"),
            Self::Compacted => f.write_str("the server no longer knows what has changed since"),
            Self::AnotherHistory(reason) => {
                write!(f, "the datastore has another history, such as after a restore: {reason}")
            }
            Self::Interrupted => f.write_str("the server broke off what it reported"),
            Self::CannotWatch(reason) => write!(f, "what has changed cannot be watched: {reason}"),
            Self::NotForThisDatastore => f.write_str("only etcd v3 and Kubernetes report what has changed"),
        }
    }
}
