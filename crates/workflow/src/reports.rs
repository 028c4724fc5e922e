//! Files with reports of earlier checks.

use std::path::{Path, PathBuf};

use calipam_check::read_document;
use calipam_datastore::Datastore;
use calipam_files::regular;
use calipam_model::config::ClusterInformation;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{
    Force, Observations, ReadReport, ReportError, ReportFile, objections, read_report,
};
use jiff::Timestamp;

use crate::failure::{Failure, Kind, Result};
use crate::operator::Operator;

/// The error for a report that does not fit the cluster or the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the report {report} cannot be used: {objection}")]
pub struct UnusableReport {
    pub report: String,
    pub objection: ReportError,
}

/// The error for a file that is not a report.
pub fn no_report(path: &Path, error: &ReportError) -> Failure {
    Failure::new(Kind::Failed, format!("{}: {error}", path.display())).hint(Hint::new(
        "write one with {} or `calicoctl ipam check --output FILE`",
        [Call::to(["check", "-o", "json"])],
    ))
}

/// A file with a report.
pub(crate) struct OpenReport {
    path: PathBuf,
    content: ReportFile,
    /// The modification time of the file.
    modified: Timestamp,
}

/// Reads the files of reports.
pub(crate) fn open(paths: &[PathBuf]) -> Result<Vec<OpenReport>> {
    let mut files = Vec::new();
    for path in paths {
        files.push(open_file(path)?);
    }
    Ok(files)
}

/// Reads the file of a report, with its modification time.
fn open_file(path: &Path) -> Result<OpenReport> {
    let file = regular::open(path).map_err(Failure::io_at("read", path))?;
    let metadata = file.metadata().map_err(Failure::io_at("read", path))?;
    let modified = metadata.modified().map_err(Failure::io_at("read", path))?;
    let modified = Timestamp::try_from(modified).unwrap_or(Timestamp::MAX);
    let content = read_document::<ReportFile>(file).map_err(|error| no_report(path, &error.into()))?;
    Ok(OpenReport {
        path: path.to_owned(),
        content,
        modified,
    })
}

/// Reads the cluster information alone.
pub(crate) async fn read_cluster_information(datastore: &Datastore) -> Result<Snapshot> {
    let stored = datastore.stored_object(Key::cluster_information()).await?;
    let mut snapshot = Snapshot::default();
    if let Some(stored) = stored {
        snapshot.cluster = ClusterInformation::parse(&stored.raw).ok();
        snapshot.cluster_revision = Some(stored.revision);
    }
    Ok(snapshot)
}

/// Returns the observations in the reports in `files`.
///
/// `cluster` contains at least the cluster information, by which each report is checked. `will_lock` is true if the run
/// locks the datastore: calicoctl's reports can only be used while it is locked.
///
/// # Errors
/// If a file is not a report, or there is an objection to using its report in this cluster that `force` does not
/// override. An overridden objection becomes a warning.
pub(crate) fn read_observations(
    files: Vec<OpenReport>,
    cluster: &Snapshot,
    force: Force,
    will_lock: bool,
    operator: &dyn Operator,
) -> Result<Vec<Observations>> {
    let locked = will_lock || cluster.is_locked();

    let mut reports: Vec<ReadReport> = Vec::new();
    for file in files {
        let name = file.path.display().to_string();
        let report = read_report(&name, file.content, file.modified, cluster, locked)
            .map_err(|error| no_report(&file.path, &error))?;
        reports.push(report);
    }

    for (report, objection) in objections(&reports) {
        if !objection.can_be_forced() || force != Force::Reported {
            let unusable = UnusableReport {
                report: report.to_owned(),
                objection: objection.clone(),
            };
            return Err(Failure::of(Kind::Refused, unusable, Some(objection.hint())));
        }
        operator.warn(format!("--force: {objection} ({report})"));
    }

    Ok(reports.into_iter().map(|report| report.observations).collect())
}
