//! `--confirm`: a check of everything twice, some time apart.

use std::path::Path;

use calipam_datastore::Datastore;
use jiff::SignedDuration;

use super::settle::check_twice;
use crate::error::Error;
use crate::operator::{Activity, Note, Operator, Pending};
use crate::read::{CheckResult, Criteria, read, read_with_cache, wait};

/// As [`read_and_check`] or, with `confirm`, twice, so far apart: then only what both found stays. With the folder `cache`, where the
/// last check has kept what it had read, only what has changed since is read.
pub fn check_and_confirm<'a>(
    datastore: &'a Datastore,
    criteria: &'a Criteria,
    confirm: Option<SignedDuration>,
    cache: Option<&'a Path>,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<CheckResult, Error>> {
    Box::pin(async move {
        let once = async || {
            let snapshot = match cache {
                Some(folder) => read_with_cache(datastore, folder, operator).await?,
                None => read(datastore, operator).await?,
            };
            check_twice(datastore, snapshot, criteria, operator).await
        };
        let first = once().await?;
        let Some(pause) = confirm.filter(|pause| pause.is_positive()) else { return Ok(first) };
        if !datastore.is_live() {
            operator.note(Note::CannotConfirm);
            return Ok(first);
        }

        // Otherwise both snapshots would be in memory at once.
        let CheckResult { report: found, snapshot, .. } = first;
        drop(snapshot);
        wait(pause, Activity::Confirming, operator).await;

        let mut second = once().await?;
        second.report.confirm(&found);
        Ok(second)
    })
}
