//! Checks a cluster. Objects of findings that a half-done Calico operation could explain are read again after a pause
//! (`--settle`), and findings whose objects have changed are dropped.

use calipam_check::{Context, Finding, Options, Recheck, Report};
use calipam_model::snapshot::Snapshot;
use calipam_model::words::count;
use calipam_plan::advice::{self, Advice};
use calipam_plan::{Basis, FailedTrial, Plan, try_plan};
use jiff::SignedDuration;

use crate::failure::Result;
use crate::operator::{Access, Activity, Event};
use crate::read::{read, wait};
use crate::scope::Names;

/// The options of a check.
#[derive(Clone, Debug, Default)]
pub struct Criteria {
    pub options: Options,
    /// The time after which suspicious objects are read again; zero to read nothing again.
    pub recheck_after: SignedDuration,
}

/// The result of a check.
pub struct CheckResult {
    pub snapshot: Snapshot,
    /// The findings that remain after the second read.
    pub report: Report,
    /// Findings whose objects had changed when they were read again.
    pub dropped: Vec<Finding>,
}

impl CheckResult {
    pub(crate) fn basis(&self, criteria: &Criteria) -> Basis<'_> {
        Basis::new(&self.snapshot, &self.report, &criteria.options)
    }

    /// Tries a plan in memory, and returns it without the steps that fail there.
    pub(crate) fn try_plan(mut self, plan: Plan, criteria: &Criteria) -> Result<Plan, FailedTrial> {
        // The trial starts from data that still contains the findings that the recheck dropped. Without them in the
        // report, the trial would treat them as new.
        self.report.findings.extend(self.dropped);
        try_plan(self.snapshot, self.report, plan, &criteria.options)
    }
}

/// Reads and checks the cluster. Objects whose findings a half-done Calico operation could explain are read again, and
/// findings whose objects have changed are dropped.
pub(crate) async fn read_and_check(access: Access<'_>, criteria: &Criteria) -> Result<CheckResult> {
    let evaluate_nothing = |_: Context<'_>, _: &mut Report| ();
    let (checked, ()) = read_check_and_evaluate(access, criteria, evaluate_nothing).await?;
    Ok(checked)
}

/// Does the same as [`read_and_check`], then calls `evaluate` with the context of the check and the report, which it
/// may change, and returns its result, too. `evaluate` gets the context because another one would cost as much as all
/// rules if the cluster has a million addresses.
pub(crate) async fn read_check_and_evaluate<T>(
    access: Access<'_>,
    criteria: &Criteria,
    evaluate: impl FnOnce(Context<'_>, &mut Report) -> T,
) -> Result<(CheckResult, T)> {
    let mut snapshot = read(access).await?;
    // A file can claim this of its data; only `recheck` may claim it here.
    snapshot.rechecked = false;

    let context = Context::new(&snapshot, &criteria.options);
    let mut report = context.check();
    let dropped = recheck(access, &snapshot, &mut report, criteria.recheck_after).await?;
    let evaluation = evaluate(context, &mut report);

    let result = CheckResult {
        snapshot,
        report,
        dropped,
    };
    Ok((result, evaluation))
}

/// Finds the causes of the findings in a complete report, and what helps in the named part of the cluster.
///
/// # Errors
/// If none of the named nodes or pools exists.
pub fn advise(context: Context<'_>, report: &Report, names: &Names) -> Result<Advice> {
    let scope = names.found(&[context.snapshot])?.found;
    Ok(advice::advise(context, report, &scope))
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
        access
            .operator
            .tell(Event::Detail(format!("rechecking {objects} after {pause:#}")));
        wait(pause, Activity::Rechecking, access.operator).await;

        let Some(later) = access.datastore.reread(&keys).await? else {
            break;
        };
        dropped.append(&mut recheck.take(report, later));
    }

    Ok(dropped)
}
