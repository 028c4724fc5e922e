//! The export format: the input for a check as JSON lines, so that operators can send it and others can check it.
//! `docs/export.md` describes the format.
//!
//! The first line is a [`Header`], the last line is a footer with the number of entries, and each line in between is an
//! entry. Without the footer, an export is incomplete. A value that is JSON on one line is included as it is, any other
//! value in base64. A check of the export therefore sees exactly the datastore's bytes.

mod line;
mod read;
mod write;

use std::collections::BTreeMap;

use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use self::read::read_some;
pub use self::read::{Export, Tally, header_of, looks_like_export, read};
pub use self::write::{Lines, Writer};

/// The text in the first line that identifies the kind of file.
const FORMAT: &str = "calipam-export";
/// The version of the format, the only one that this program writes and reads.
pub const VERSION: u64 = 1;

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Always `calipam-export`.
    format: String,
    version: u64,
    /// The datastore that was exported.
    pub datastore: DatastoreKind,
    /// The location from which the data was read, without secrets.
    pub location: String,
    /// The revision at which the data was read.
    pub revision: String,
    /// The time at which the data was read. A check of this export uses it as the current time.
    pub taken_at: Timestamp,
    /// The cluster's GUID, with which an archive rejects data from other clusters. A check uses the GUID in the
    /// entries.
    #[serde(default)]
    pub guid: String,
    pub coverage: BTreeMap<Source, Coverage>,
}

impl Header {
    /// Creates a header in this program's format.
    pub fn new(datastore: DatastoreKind, location: &str, revision: &str, taken_at: Timestamp) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            datastore,
            location: location.to_owned(),
            revision: revision.to_owned(),
            taken_at,
            guid: String::new(),
            coverage: BTreeMap::new(),
        }
    }

    /// Creates the header for an export of a snapshot.
    pub fn of_snapshot(snapshot: &Snapshot) -> Self {
        let Snapshot {
            datastore,
            location,
            revision,
            taken_at,
            ..
        } = snapshot;
        let guid = snapshot.guid().to_owned();
        let coverage = snapshot.coverage.clone();
        Self {
            guid,
            coverage,
            ..Self::new(*datastore, location, revision, *taken_at)
        }
    }
}

#[cfg(test)]
mod tests;
