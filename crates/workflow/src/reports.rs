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
    /// The time of the file.
    written: Timestamp,
}

/// Reads the files of reports.
pub(crate) fn open(paths: &[PathBuf]) -> Result<Vec<OpenReport>> {
    paths.iter().map(|path| open_one(path)).collect()
}

/// Opens a report, with the time at which its file was written.
fn open_one(path: &Path) -> Result<OpenReport> {
    let file = regular::open(path).map_err(Failure::io_at("read", path))?;
    let written = file
        .metadata()
        .and_then(|meta| meta.modified())
        .map_err(Failure::io_at("read", path))?;
    let written = Timestamp::try_from(written).unwrap_or(Timestamp::MAX);
    let content = read_document::<ReportFile>(file).map_err(|error| no_report(path, &error.into()))?;
    Ok(OpenReport {
        path: path.to_owned(),
        content,
        written,
    })
}

/// Reads the cluster information alone.
pub(crate) async fn cluster(datastore: &Datastore) -> Result<Snapshot> {
    let stored = datastore
        .stored(&[Key::ClusterInformation("default".into())])
        .await?
        .pop()
        .flatten();
    let cluster = stored
        .as_ref()
        .and_then(|stored| ClusterInformation::parse(&stored.raw).ok());
    let cluster_revision = stored.map(|stored| stored.revision);
    Ok(Snapshot {
        cluster,
        cluster_revision,
        ..Snapshot::default()
    })
}

/// Returns the observations in reports. Fails if a report has an objection that forbids using it in this cluster, unless
/// `force` overrides it. `locks` is true if the run locks the datastore.
pub(crate) fn read(
    files: Vec<OpenReport>,
    cluster: &Snapshot,
    force: Force,
    locks: bool,
    operator: &dyn Operator,
) -> Result<Vec<Observations>> {
    let is_locked = cluster
        .cluster
        .as_ref()
        .is_some_and(|cluster| cluster.datastore_ready == Some(false));
    let locked = locks || is_locked;
    let read = |OpenReport {
                    path,
                    content,
                    written,
                }| {
        let name = path.display().to_string();
        read_report(&name, content, written, cluster, locked).map_err(|error| no_report(&path, &error))
    };
    let reports: Vec<ReadReport> = files.into_iter().map(read).collect::<Result<_, _>>()?;

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
