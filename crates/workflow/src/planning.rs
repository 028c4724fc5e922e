//! What planning a release, an assignment and a rebuild have in common.

use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_plan::{FailedTrial, Plan};

use crate::read::{CheckResult, Criteria};

/// Tries the plan in memory. What it comes to is the plan without the steps that fail there.
pub(crate) fn try_plan(checked: CheckResult, plan: Plan, criteria: &Criteria) -> Result<Plan, FailedTrial> {
    let CheckResult { snapshot, mut report, dropped } = checked;
    // What the recheck dropped is found in the data of the trial, too, and is not new there.
    report.findings.extend(dropped);
    calipam_plan::try_plan(snapshot, report, plan, &criteria.options)
}

/// Seconds for which the cluster lets released addresses cool down; 0 if its datastore does not keep the time.
pub(crate) async fn cooldown(datastore: &Datastore, snapshot: &Snapshot) -> i64 {
    let configured = snapshot.effective_ipam_config().map_or(0, |config| config.cooldown_seconds.max(0));
    if configured > 0 && datastore.keeps_cooldown().await { configured } else { 0 }
}
