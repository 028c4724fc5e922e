//! Recordings: archives that also keep the changes between exports. Next to an export is a file with the same name and
//! the extension `.changes`. It contains every change after the export's state, in the order of arrival.
//!
//! The file consists of frames ([`crate::frames`]). The first frame contains a [`Header`] as JSON. Each later frame
//! contains a group of changes that were made durable together, with the time at which they became known. It is
//! compressed with the text of earlier groups as a dictionary. A group without changes means that there were none up to
//! its time. An incomplete frame at the end was never durable, and is discarded before the next group is appended. Any
//! other damage ends the recording, and is reported with its position.

mod changes;
mod codec;
mod delta;
mod known;
mod read;
mod write;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::changes::Changes;
pub use self::known::{Known, Reached};
pub use self::read::{StateUpdate, States, Version, each_version, write_state};
pub use self::write::{Journal, Recorder};

/// The kind of file and its version in the header.
const FORMAT: &str = "calipam-changes";
const VERSION: u32 = 1;

/// A change to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key, as in an export.
    pub key: Vec<u8>,
    /// The revision of the change; on Kubernetes, its resource version, which is comparable within a kind.
    pub revision: i64,
    /// The value from this revision on; `None` if the object is deleted.
    pub value: Option<Vec<u8>>,
}

/// The point up to which the changes to a kind are known. etcd has one revision for everything, so it counts as one
/// kind, `etcd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub revision: i64,
    /// The revision and [`checksum`] of the last change, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(i64, u32)>,
}

impl Position {
    /// A position whose last change is unknown.
    pub fn at(revision: i64) -> Self {
        Self { revision, last: None }
    }

    /// Records a change, which advances the position to its revision.
    pub fn note(&mut self, change: &Change) {
        self.revision = self.revision.max(change.revision);
        if let Some((last_revision, _)) = self.last
            && last_revision > change.revision
        {
            return;
        }
        self.last = Some((change.revision, checksum(change)));
    }
}

/// The positions by kind.
pub type Positions = BTreeMap<String, Position>;

/// A checksum that distinguishes a change from another history's change with the same revision.
pub fn checksum(change: &Change) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&change.key);
    hasher.update(&[u8::from(change.value.is_none())]);
    hasher.update(change.value.as_deref().unwrap_or_default());
    hasher.finalize()
}

/// The kind to which a key's revisions belong.
pub fn kind_of(key: &[u8]) -> &str {
    // Keys of etcd begin with a slash.
    let end = key.iter().position(|byte| *byte == b'/').unwrap_or_default();
    match std::str::from_utf8(&key[..end]) {
        Ok(plural) if !plural.is_empty() => plural,
        _ => "etcd",
    }
}

/// Changes that became durable together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The time at which the changes became known, by the recorder's clock. Never before the time of the previous
    /// group.
    pub time: Timestamp,
    /// The time by which the recorder's clock was behind the previous group, because it was set back.
    pub set_back: SignedDuration,
    /// The revisions up to which changes are known, by kind, if later than the last change.
    pub reached: BTreeMap<String, i64>,
    pub changes: Vec<Change>,
}

/// The content of the first frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    format: String,
    version: u32,
    pub guid: String,
    /// The positions at which changes after the export begin.
    pub positions: Positions,
    /// True if the datastore's history differs from the earlier recording, so that revisions are not comparable.
    pub restored: bool,
}

#[cfg(test)]
mod tests;
