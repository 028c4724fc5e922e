//! Files with reports of earlier checks.

use std::path::Path;

use calipam_check::read_document;
use calipam_files::regular;
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::{
    Force, Observations, ReadReport, ReportError, ReportFile, objections, read_report,
};
use jiff::Timestamp;

use crate::failure::{Failure, Kind, Result};
use crate::operator::Operator;
use crate::release::ReleaseRequest;

/// The error for a report that does not fit the cluster or the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the report {report} cannot be used: {objection}")]
pub struct UnusableReport {
    pub report: String,
    pub objection: ReportError,
}

/// The error for a file that is not a report.
pub fn no_report(path: &Path, error: &ReportError) -> Failure {
    Failure::new(Kind::Failed, format!("{}: {error}", path.display()))
        .hint(Hint::new("write one with {} or `calicoctl ipam check --output FILE`", [Call::Check]))
}

/// Reads the observations from the reports of a request. Fails if a report has an objection that forbids using it.
pub(crate) fn read(
    request: &ReleaseRequest,
    snapshot: &Snapshot,
    operator: &dyn Operator,
) -> Result<Vec<Observations>> {
    let is_locked = snapshot.cluster.as_ref().is_some_and(|cluster| cluster.datastore_ready == Some(false));
    let locked = request.lock || is_locked;
    let reports: Vec<ReadReport> =
        request.reports.iter().map(|path| read_file(path, snapshot, locked)).collect::<Result<_, _>>()?;

    for (report, objection) in objections(&reports) {
        if !objection.can_be_forced() || request.targets.force != Force::Reported {
            let unusable = UnusableReport { report: report.to_owned(), objection: objection.clone() };
            return Err(Failure::of(Kind::Refused, unusable, Some(objection.hint())));
        }
        operator.warn(format!("--force: {objection} ({report})"));
    }
    Ok(reports.into_iter().map(|report| report.observations).collect())
}

fn read_file(path: &Path, snapshot: &Snapshot, locked: bool) -> Result<ReadReport> {
    let file = regular::open(path).map_err(Failure::io_at("read", path))?;
    let written = file.metadata().and_then(|meta| meta.modified()).map_err(Failure::io_at("read", path))?;
    let written = Timestamp::try_from(written).unwrap_or(Timestamp::MAX);

    let name = path.display().to_string();
    read_document::<ReportFile>(file)
        .map_err(ReportError::from)
        .and_then(|file| read_report(&name, file, written, snapshot, locked))
        .map_err(|error| no_report(path, &error))
}
