//! `--confirm`: checks everything twice, with a pause.

use calipam_check::{Context, Report};
use jiff::SignedDuration;

use crate::check::{CheckResult, Criteria, read_and_check, read_check_and_evaluate};
use crate::failure::Result;
use crate::operator::{Access, Activity};
use crate::read::wait;

/// Reads and checks the cluster. With `confirm`, checks it again after that pause, and keeps only findings that both
/// checks report. Also returns the result of `evaluate`, which gets the context of the last check and the report.
pub async fn check_and_confirm<T>(
    access: Access<'_>,
    criteria: &Criteria,
    confirm: Option<SignedDuration>,
    evaluate: impl FnOnce(Context<'_>, &Report) -> T,
) -> Result<(CheckResult, T)> {
    let pause = confirm.unwrap_or_default();
    if !pause.is_positive() {
        return read_check_and_evaluate(access, criteria, |context, report| evaluate(context, report)).await;
    }
    if !access.datastore.is_live() {
        let result =
            read_check_and_evaluate(access, criteria, |context, report| evaluate(context, report)).await?;
        access
            .operator
            .warn("`--confirm` has no effect: a file does not change".into());
        return Ok(result);
    }

    // The first snapshot is dropped before the second one is read.
    let first_report = read_and_check(access, criteria).await?.report;
    wait(pause, Activity::Confirming, access.operator).await;
    read_check_and_evaluate(access, criteria, |context, report| {
        report.confirm(&first_report);
        evaluate(context, report)
    })
    .await
}
