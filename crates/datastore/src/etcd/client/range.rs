//! Requests for ranges of keys.

use calipam_files::raw::prefix_end;
use etcd_client::{GetOptions, TxnOp};

/// A request for keys from `start` up to `end`, exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub start: Vec<u8>,
    /// The exclusive end of the range; empty to read only the key `start`.
    pub end: Vec<u8>,
    /// Maximum number of keys; 0 for all.
    pub limit: i64,
    /// The revision to read; 0 for the newest.
    pub revision: i64,
    /// True if a member may answer from its own data, without asking the other members. The answer is correct if that
    /// member has already answered at this or a later revision.
    pub serializable: bool,
    /// True if values are omitted.
    pub keys_only: bool,
}

impl Range {
    /// All keys from `first` on, up to the last one that starts with `last`.
    pub(crate) fn span(first: impl Into<Vec<u8>>, last: &str) -> Self {
        Self::between(first, prefix_end(last.as_bytes()))
    }

    pub(crate) fn key(key: impl Into<Vec<u8>>) -> Self {
        Self {
            start: key.into(),
            ..Self::default()
        }
    }

    /// All keys that start with `prefix`.
    pub(crate) fn prefix(prefix: &str) -> Self {
        Self {
            start: prefix.into(),
            end: prefix_end(prefix.as_bytes()),
            ..Self::default()
        }
    }

    /// All keys from `start` up to `end`, exclusive.
    pub(crate) fn between(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: end.into(),
            ..Self::default()
        }
    }

    pub(crate) fn with_limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// Reads at `revision`, from the member's own data. The member must already have answered at this or a later
    /// revision.
    pub(crate) fn at(mut self, revision: i64) -> Self {
        self.revision = revision;
        self.serializable = true;
        self
    }

    pub(crate) fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// The transaction operation that reads this range.
    pub(crate) fn operation(&self) -> TxnOp {
        let mut options = GetOptions::new()
            .with_limit(self.limit)
            .with_revision(self.revision);
        if !self.end.is_empty() {
            options = options.with_range(self.end.clone());
        }
        if self.serializable {
            options = options.with_serializable();
        }
        if self.keys_only {
            options = options.with_keys_only();
        }
        TxnOp::get(self.start.clone(), Some(options))
    }
}
