//! The export format: what a check reads, as JSON lines, so that a check runs elsewhere on what an
//! operator sends. `docs/export.md` describes it.
//!
//! The first line is a [`Header`], then comes one entry a line, then a footer with their number, which
//! tells a whole export from one that was cut off. A value that is JSON on one line stands as it is; any
//! other one stands as base64, so that a check of the export sees exactly the bytes of the datastore.

pub(crate) mod etcd;
pub(crate) mod etcdv2;
pub(crate) mod kubernetes;
mod line;
mod read;
mod write;

use std::collections::BTreeMap;

use calipam_model::snapshot::{Coverage, Source, WhySkipped};
use serde::{Deserialize, Serialize};

pub(crate) use self::read::{Export, Tally};
pub(crate) use self::read::{header_of, looks_like_export, read};
pub(crate) use self::write::Writer;
pub(crate) use self::write::write_line;

/// What the first line says about the kind of file.
const FORMAT: &str = "calipam-export";
/// The version of the format that this program writes, and the latest one that it reads.
pub const VERSION: u64 = 1;

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    /// Always `calipam-export`.
    format: String,
    /// Version of the format.
    version: u64,
    /// `etcd`, `etcdv2` or `kubernetes`: the datastore that was exported.
    pub datastore: String,
    /// Where it was read, without secrets.
    pub location: String,
    /// The revision at which it was read.
    pub revision: String,
    /// When it was read, RFC 3339: the clock of a check of this export.
    pub taken_at: String,
    /// The cluster's GUID, for people; a check takes it from the entries.
    #[serde(default)]
    pub guid: String,
    /// By source: `read`, or `skipped: ` and the reason.
    pub coverage: BTreeMap<Source, String>,
}

impl Header {
    /// A header of this program's format.
    pub(crate) fn new(datastore: &str, location: &str, revision: &str, taken_at: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            datastore: datastore.to_owned(),
            location: location.to_owned(),
            revision: revision.to_owned(),
            taken_at: taken_at.to_owned(),
            guid: String::new(),
            coverage: BTreeMap::new(),
        }
    }

    /// Sets which sources were read.
    pub(crate) fn with_coverage(mut self, coverage: &BTreeMap<Source, Coverage>) -> Self {
        let text = |coverage: &Coverage| match coverage {
            Coverage::Partial => "skipped: only partly exported".to_owned(),
            Coverage::Read | Coverage::Skipped(_) => coverage.to_string(),
        };
        self.coverage = coverage.iter().map(|(source, coverage)| (*source, text(coverage))).collect();
        self
    }

    /// Which sources were read.
    pub(crate) fn coverage(&self) -> BTreeMap<Source, Coverage> {
        let read = |text: &str| match text {
            "read" => Coverage::Read,
            other => Coverage::Skipped(WhySkipped::parse(other.strip_prefix("skipped: ").unwrap_or(other))),
        };
        self.coverage.iter().map(|(source, text)| (*source, read(text))).collect()
    }
}

#[cfg(test)]
mod tests;
