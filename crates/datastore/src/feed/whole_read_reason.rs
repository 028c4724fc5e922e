//! Reasons to read everything instead of only the changes.

/// The reason why everything must be read, and not only the changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WholeReadReason {
    /// There was no earlier read.
    #[error("nothing has been read yet")]
    New,
    /// The server no longer keeps the changes since the last read.
    #[error("the server no longer has the changes since the last read")]
    Compacted,
    /// The server does not have the last known change: it was restored from a backup, or is another server.
    #[error("the datastore's history is different, as after a restore: {0}")]
    AnotherHistory(String),
    /// The server broke off its report, and may have been replaced by one with another history.
    #[error("the server stopped reporting changes")]
    Interrupted,
    /// The changes cannot be watched.
    #[error("changes cannot be watched: {0}")]
    CannotWatch(String),
    /// This datastore does not report changes.
    #[error("only etcd v3 and Kubernetes report changes")]
    NotForThisDatastore,
}

impl WholeReadReason {
    /// True if this is expected and needs no warning.
    pub fn is_usual(&self) -> bool {
        matches!(self, Self::New | Self::Compacted | Self::Interrupted)
    }
}
