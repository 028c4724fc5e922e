//! `--settle`: objects of findings that a half-done Calico operation could explain are read again after a pause, and
//! findings whose objects have changed are dropped.

use calipam_check::{Finding, Recheck, Report, check};
use calipam_model::snapshot::Snapshot;
use calipam_model::words::count;
use jiff::SignedDuration;

use crate::failure::Result;
use crate::operator::{Access, Activity, Event};
use crate::read::{CheckResult, Criteria, wait};

/// Checks a snapshot, and checks suspicious objects a second time.
pub(crate) async fn check_twice(
    access: Access<'_>,
    mut snapshot: Snapshot,
    criteria: &Criteria,
) -> Result<CheckResult> {
    snapshot.rechecked = false;
    let mut report = check(&snapshot, &criteria.options);
    let dropped = recheck(access, &snapshot, &mut report, criteria.recheck_after).await?;
    Ok(CheckResult { snapshot, report, dropped })
}

/// Reads the objects of findings again after `pause`, and drops and returns the findings whose objects have changed.
/// Reads nothing again if the datastore is a file or the pause is zero.
pub(crate) async fn recheck(
    access: Access<'_>,
    snapshot: &Snapshot,
    report: &mut Report,
    pause: SignedDuration,
) -> Result<Vec<Finding>> {
    if !access.datastore.is_live() || !pause.is_positive() {
        return Ok(Vec::new());
    }

    report.rechecked = true;
    let mut dropped = Vec::new();
    let mut recheck = Recheck::new(snapshot);
    while let Some(keys) = recheck.keys(report) {
        let objects = count(keys.len(), "object", "objects");
        access.operator.tell(Event::Detail(format!("rechecking {objects} after {pause:#}")));
        wait(pause, Activity::Rechecking, access.operator).await;
        let Some(later) = access.datastore.reread(&keys).await? else { break };
        dropped.append(&mut recheck.take(report, later));
    }
    Ok(dropped)
}
