//! `--confirm`: checks everything twice, with a pause.

use calipam_check::{Context, Report};
use jiff::SignedDuration;

use crate::check::{CheckResult, Criteria, read_and_check, read_and_check_for};
use crate::failure::Result;
use crate::operator::{Access, Activity};
use crate::read::wait;

/// Reads and checks the cluster. With `confirm`, checks it again after that pause, and keeps only findings that both
/// checks report. Also makes something of the context of the last check and the report.
pub async fn check_and_confirm<T>(
    access: Access<'_>,
    criteria: &Criteria,
    confirm: Option<SignedDuration>,
    make: impl FnOnce(Context<'_>, &Report) -> T,
) -> Result<(CheckResult, T)> {
    let is_live = access.datastore.is_live();
    let Some(pause) = confirm.filter(|pause| is_live && pause.is_positive()) else {
        let checked = read_and_check_for(access, criteria, |context, report| make(context, report)).await?;
        if !is_live && confirm.is_some_and(|pause| pause.is_positive()) {
            access
                .operator
                .warn("`--confirm` has no effect: a file does not change".into());
        }
        return Ok(checked);
    };

    // The first snapshot is dropped before the second one is read.
    let found = read_and_check(access, criteria).await?.report;
    wait(pause, Activity::Confirming, access.operator).await;
    read_and_check_for(access, criteria, |context, report| {
        report.confirm(&found);
        make(context, report)
    })
    .await
}
