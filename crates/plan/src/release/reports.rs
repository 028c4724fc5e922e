//! Files with reports of earlier checks, calipam's own and calicoctl's (facts 5.2, 5.4).

mod file;

use std::collections::HashMap;

use calipam_check::{EarlierReport, NoReport};
use calipam_model::attributes::{Attribute, is_windows_reserved};
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use calipam_model::text::Text;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub use self::file::ReportFile;
use super::observation::{Observation, Observations};

/// A reason not to use a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("it is not a report: {0}")]
    NoReport(#[from] NoReport),
    /// The report is from another cluster. Nothing overrides that.
    #[error("it is about cluster {reported}, but this is cluster {found}")]
    OtherCluster {
        /// The GUID in the report.
        reported: String,
        /// The GUID of the cluster.
        found: String,
    },
    /// The report is from a calicoctl of another version than the cluster's. `--force` overrides that.
    #[error("{}", other_version(reported, found))]
    OtherVersion {
        reported: String,
        /// The version of the cluster.
        found: String,
    },
    /// The cluster information, such as its lock, was written after the report. `--force` overrides that.
    #[error("it is stale: cluster information has changed since it was written")]
    Stale,
    /// calicoctl requires a locked datastore for its reports. `--force` overrides that.
    #[error("calicoctl wrote it for a locked datastore, but this one is not locked")]
    NotLocked,
}

fn other_version(reported: &str, found: &str) -> String {
    match reported {
        "" => format!("a calicoctl without a version wrote it, but the cluster runs {found}"),
        _ => format!("calicoctl {reported} wrote it, but the cluster runs {found}"),
    }
}

impl ReportError {
    /// Suggests how to go on: with another cluster, with a lock, with a new report, or by force.
    pub fn hint(&self) -> Hint {
        let forced = |text| {
            Hint::new(
                format!("{text} {{}}: its addresses are released only if they are unused now"),
                [Call::again_with(["--force"])],
            )
        };
        match self {
            Self::OtherCluster { .. } | Self::NoReport(_) => "connect to the cluster that it is about".into(),
            Self::NotLocked => Hint::new(
                "{} locks the datastore during the release; {} releases without the lock",
                [Call::again_with(["--lock"]), Call::again_with(["--force"])],
            ),
            Self::Stale => forced("write a new report, or accept this one with"),
            Self::OtherVersion { .. } => forced("accept the report with"),
        }
    }

    /// Returns true if `--force` overrides the objection.
    pub fn can_be_forced(&self) -> bool {
        matches!(self, Self::OtherVersion { .. } | Self::Stale | Self::NotLocked)
    }
}

/// A report that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReport {
    pub observations: Observations,
    /// Reasons not to use the report for this cluster. A reason that nothing overrides comes first.
    pub objections: Vec<ReportError>,
}

/// Interprets a report. `written` is the time of the file, which counts for reports without a time of their own: a copy
/// can only be younger than its content. `locked` is true if the datastore is locked, or will be for the release.
pub fn read_report(
    name: &str,
    file: ReportFile,
    written: Timestamp,
    snapshot: &Snapshot,
    locked: bool,
) -> Result<ReadReport, ReportError> {
    let mut read = if file.fields.contains_key("clusterGUID") {
        calicoctl(file, written, snapshot, locked)
    } else {
        read_own_report(file)?
    };

    read.observations.name = name.to_owned();
    read.observations.narrows = true;
    let guid = snapshot.guid();

    if read.observations.cluster != guid || guid.is_empty() {
        let other_cluster = ReportError::OtherCluster {
            reported: read.observations.cluster.clone(),
            found: guid.to_owned(),
        };
        read.objections.insert(0, other_cluster);
    }
    Ok(read)
}

fn text(fields: &Map<String, Value>, name: &str) -> String {
    fields
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Reads the output of `calipam check -o json` or `-o yaml`.
///
/// # Errors
/// If it is not such an output, has no list of findings, or a finding cannot be decoded.
fn read_own_report(file: ReportFile) -> Result<ReadReport, ReportError> {
    // The findings were already read from the file, apart from its other fields.
    let report = EarlierReport::without_findings(&Value::Object(file.fields))?;
    let Some(found) = file.found else {
        return Err(NoReport::Undecodable("no `findings`".into()).into());
    };
    let mut observations = found?;
    observations.at = report.taken_at;
    observations.cluster = report.guid;
    Ok(ReadReport {
        observations,
        objections: Vec::new(),
    })
}

/// Reads the output of `calicoctl ipam check --output`.
fn calicoctl(file: ReportFile, written: Timestamp, snapshot: &Snapshot, locked: bool) -> ReadReport {
    let ReportFile { fields, listed, .. } = file;
    let observations = Observations {
        at: written,
        cluster: text(&fields, "clusterGUID"),
        addresses: listed,
        handles: leaked_handles(&fields),
        ..Observations::default()
    };

    let mut objections = Vec::new();
    let found = match &snapshot.cluster {
        Some(cluster) => cluster.calico_version.clone(),
        None => String::new(),
    };
    let reported = text(&fields, "version");
    if reported != found {
        objections.push(ReportError::OtherVersion { reported, found });
    }

    let revision = snapshot.cluster_revision.as_ref().map(ToString::to_string);
    if revision != Some(text(&fields, "clusterInformationRevision")) {
        objections.push(ReportError::Stale);
    }

    if !locked {
        objections.push(ReportError::NotLocked);
    }
    ReadReport {
        observations,
        objections,
    }
}

/// Returns true if calicoctl would release the allocation, and Windows does not reserve its address: calicoctl also
/// lists reserved addresses (facts 5.3).
fn is_released(element: &Map<String, Value>) -> bool {
    let is_set = |flag: &str| match element.get(flag) {
        // A flag that cannot be read counts as set.
        Some(value) => value.as_bool().unwrap_or(true),
        None => false,
    };
    let handle = text(element, "handle");
    !is_set("inUse") && !is_set("coolingDown") && !is_windows_reserved(Text::new(&handle).as_ref())
}

/// Reads an allocation. `None` if its sequence number cannot be read: in that case it is unknown which allocation was
/// seen.
fn allocation(element: &Map<String, Value>) -> Option<Observation> {
    let sequence = match element.get("sequenceNumber") {
        None => None,
        Some(value) => Some(value.as_u64()?),
    };
    let handle = element.get("handle").and_then(Value::as_str);
    let record = Attribute {
        handle: handle.map(str::to_owned),
        ..Attribute::default()
    };
    Some(Observation {
        record: record.into(),
        has_owner: false,
        sequence,
    })
}

/// Returns the leaked handles of a calicoctl report by ID, with the revisions that it saw.
fn leaked_handles(fields: &Map<String, Value>) -> HashMap<String, String> {
    let mut revisions = HashMap::new();
    let handles = fields.get("leakedHandles").and_then(Value::as_array);
    for handle in handles.into_iter().flatten() {
        if let Some(handle) = handle.as_object() {
            revisions.insert(text(handle, "ID"), text(handle, "Revision"));
        }
    }
    revisions
}

/// Returns the reasons not to use these reports together, by report. By calicoctl's rule, one of them has to show the
/// current state of the lock (facts 5.4); the other reports may be older.
pub fn objections(reports: &[ReadReport]) -> Vec<(&str, &ReportError)> {
    let has_fresh = reports
        .iter()
        .any(|report| !report.objections.contains(&ReportError::Stale));
    let mut objections = Vec::new();
    for report in reports {
        for objection in &report.objections {
            if has_fresh && *objection == ReportError::Stale {
                continue;
            }
            objections.push((report.observations.name.as_str(), objection));
        }
    }
    objections
}
