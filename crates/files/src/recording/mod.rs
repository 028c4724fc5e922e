//! Recordings: archives in which the changes between the exports are kept, too. Next to an export lies a file of the same name with the
//! ending `.changes`: every change after the state of the export, in the order in which it was learnt of.
//!
//! The file is of frames ([`crate::frames`]), each packed with what the last ones say. The first holds a [`Header`] as JSON; every other
//! one a group of changes that were made durable together, with the time at which they were known. A group without changes says
//! that there were none up to its time. What is torn off at the end was never durable, and is cut before the next group is
//! appended; what is not as it was written ends the recording there, and is named with its place.

mod codec;
mod delta;
mod known;
mod read;
mod write;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::known::{Known, Reached};
pub use self::read::{Changes, States, Told, Version, each_version, write_state};
pub(crate) use self::write::remove_changes;
pub use self::write::{Journal, Recorder};

/// The ending of the name, instead of that of the export.
pub(crate) const END: &str = ".changes";
/// The kind of file and its version in the header.
const FORMAT: &str = "calipam-changes";
const VERSION: u32 = 1;

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// As an export has it.
    pub key: Vec<u8>,
    /// The revision that it made; on Kubernetes the version of its kind.
    pub revision: i64,
    /// What is stored from this revision on; `None` if the object is deleted.
    pub value: Option<Vec<u8>>,
}

/// Up to where the changes of a kind are known; of etcd, which has one revision for everything, under the kind `etcd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub revision: i64,
    /// The last change of it: its revision and [`sum`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(i64, u32)>,
}

impl Position {
    /// Nothing was changed since.
    pub fn at(revision: i64) -> Self {
        Self { revision, last: None }
    }

    /// Takes note of a change, which reaches as far as its revision.
    pub fn note(&mut self, change: &Change) {
        self.revision = self.revision.max(change.revision);
        if self.last.is_none_or(|(last, _)| last <= change.revision) {
            self.last = Some((change.revision, sum(change)));
        }
    }
}

/// By kind.
pub type Positions = BTreeMap<String, Position>;

/// What tells a change from others that another history has under the same revision.
pub fn sum(change: &Change) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&change.key);
    hasher.update(&[u8::from(change.value.is_none())]);
    hasher.update(change.value.as_deref().unwrap_or_default());
    hasher.finalize()
}

/// The kind in whose revisions those of a key are counted.
pub fn kind_of(key: &[u8]) -> &str {
    let end = key.iter().position(|byte| *byte == b'/').unwrap_or_default();
    std::str::from_utf8(&key[..end]).ok().filter(|plural| !plural.is_empty()).unwrap_or("etcd")
}

/// Changes that became durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// When they were known, by the clock of the recorder, in milliseconds. Never before the time of the last group.
    pub time: Timestamp,
    /// By how much that clock was behind the time of the last group: it was set back.
    pub set_back: SignedDuration,
    /// Kinds of which the changes are known up to a revision, though the last of them was earlier.
    pub reached: BTreeMap<String, i64>,
    pub changes: Vec<Change>,
}

/// The first frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    format: String,
    version: u32,
    /// The GUID of the cluster.
    pub guid: String,
    /// From where on changes follow the export.
    pub positions: Positions,
    /// The datastore has another history than what was recorded before: its revisions are not comparable.
    pub restored: bool,
}

#[cfg(test)]
mod tests;
