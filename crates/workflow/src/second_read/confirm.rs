//! `--confirm`: checks everything twice, with a pause.

use jiff::SignedDuration;

use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::Result;
use crate::operator::{Access, Activity};
use crate::read::wait;

/// Reads and checks the cluster. With `confirm`, checks it again after that pause, and keeps only findings that both
/// checks report.
pub async fn check_and_confirm(
    access: Access<'_>,
    criteria: &Criteria,
    confirm: Option<SignedDuration>,
) -> Result<CheckResult> {
    let first = read_and_check(access, criteria).await?;
    let Some(pause) = confirm.filter(|pause| pause.is_positive()) else {
        return Ok(first);
    };
    if !access.datastore.is_live() {
        access
            .operator
            .warn("`--confirm` has no effect: a file does not change".into());
        return Ok(first);
    }

    // If the first snapshot were not dropped here, both would be in memory at once.
    let CheckResult {
        report: found,
        snapshot,
        ..
    } = first;
    drop(snapshot);
    wait(pause, Activity::Confirming, access.operator).await;

    let mut second = read_and_check(access, criteria).await?;
    second.report.confirm(&found);
    Ok(second)
}
