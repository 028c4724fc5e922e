//! `--confirm`: checks everything twice, with a pause.

use calipam_datastore::Datastore;
use jiff::SignedDuration;

use crate::failure::Result;
use crate::operator::{Activity, Operator};
use crate::read::{CheckResult, Criteria, read_and_check, wait};

/// Reads and checks the cluster. With `confirm`, checks it again after that pause, and keeps only findings that both
/// checks report.
pub async fn check_and_confirm(
    datastore: &Datastore,
    criteria: &Criteria,
    confirm: Option<SignedDuration>,
    operator: &dyn Operator,
) -> Result<CheckResult> {
    let first = read_and_check(datastore, criteria, operator).await?;
    let Some(pause) = confirm.filter(|pause| pause.is_positive()) else { return Ok(first) };
    if !datastore.is_live() {
        operator.warn("`--confirm` has no effect: a file does not change".into());
        return Ok(first);
    }

    // If the first snapshot were not dropped here, both would be in memory at once.
    let CheckResult { report: found, snapshot, .. } = first;
    drop(snapshot);
    wait(pause, Activity::Confirming, operator).await;

    let mut second = read_and_check(datastore, criteria, operator).await?;
    second.report.confirm(&found);
    Ok(second)
}
