//! Writing in two parts: what is certain at once, and the rest after a second read.

use calipam_model::hint::{Call, Hint};
use calipam_plan::release::Observations;
use calipam_plan::{Basis, Plan};
use calipam_repair::{Interrupt, RepairError};

use super::grace::{Planned, addresses_were, plan_after_grace, seen_once};
use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::{Failure, Result};
use crate::operator::Event;
use crate::read::cooldown;
use crate::run::Run;
use crate::write::{Repaired, WritingNow};

/// The part of a request that a plan carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything, or what is certain at once.
    First,
    /// The rest, after a second read.
    Rest,
}

/// Plans and writes. If some of the changes need a second read, the others are written first. `try_plan` tries a plan
/// in memory.
pub(crate) async fn write_in_parts(
    run: Run<'_>,
    criteria: &Criteria,
    mut seen: CheckResult,
    observations: Vec<Observations>,
    plan: impl Fn(&Basis<'_>) -> Plan,
    try_plan: impl Fn(CheckResult, Plan, Part) -> Result<Plan>,
) -> Result<Repaired> {
    if let Some((first_plan, waiting)) = plan_first(&run, criteria, &seen, &observations, &plan).await? {
        let first_plan = try_plan(seen, first_plan, Part::First)?;
        let (first, rest_of_run) = run.write_first(first_plan).await?;
        if let Some(rest_of_run) = rest_of_run {
            let second = write_rest(&rest_of_run, criteria, observations, plan, try_plan).await;
            return close_and_combine(&rest_of_run, first, waiting, second).await;
        }
        if first.run.is_some() {
            return Ok(first);
        }
        // None of the changes remained after the trial, so everything is planned again.
        seen = read_and_check(run.access, criteria).await?;
    }

    let Planned { seen, plan, passed } = plan_after_grace(&run, criteria, seen, observations, plan).await?;
    run.write(try_plan(seen, plan, Part::First)?, passed).await
}

/// Returns the changes that need no second read, and the number of those that need one. `None` if there are not both,
/// or if nothing will be written.
async fn plan_first(
    run: &Run<'_>,
    criteria: &Criteria,
    seen: &CheckResult,
    observations: &[Observations],
    plan: impl Fn(&Basis<'_>) -> Plan,
) -> Result<Option<(Plan, usize)>> {
    if run.writing().is_none() {
        return Ok(None);
    }
    let cooldown = cooldown(run.access.datastore, &seen.snapshot).await;
    let first_plan = plan(&seen.basis(criteria).with(observations, cooldown));
    let waiting = seen_once(&first_plan);
    if waiting == 0 || first_plan.actions.is_empty() {
        return Ok(None);
    }

    run.check_limit(first_plan.changes().count() + waiting)?;
    let after = calipam_check::grace(&seen.snapshot, &criteria.options);
    run.access.operator.info(format!(
        "{} found unused once and will be checked again in {after:#}: the other changes are written first",
        addresses_were(waiting)
    ));
    Ok(Some((first_plan, waiting)))
}

/// Writes the second part; `None` if the run was interrupted before that.
async fn write_rest(
    run: &Run<'_>,
    criteria: &Criteria,
    observations: Vec<Observations>,
    plan: impl Fn(&Basis<'_>) -> Plan,
    try_plan: impl Fn(CheckResult, Plan, Part) -> Result<Plan>,
) -> Result<Option<Repaired>> {
    // A signal must not end the process, since something was written.
    let guard = WritingNow::begin();
    let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
    let planned = async {
        let seen = read_and_check(run.access, criteria).await?;
        plan_after_grace(run, criteria, seen, observations, plan).await
    };
    let Planned { seen, plan, passed } = tokio::select! {
        planned = planned => planned?,
        () = interrupt.wait() => return Ok(None),
    };
    drop(guard);

    let repaired = run.write(try_plan(seen, plan, Part::Rest)?, passed).await?;
    Ok(Some(repaired))
}

/// Closes the journal, unless the second part has, and combines both parts.
async fn close_and_combine(
    run: &Run<'_>,
    mut first: Repaired,
    waiting: usize,
    second: Result<Option<Repaired>>,
) -> Result<Repaired> {
    let is_closed = matches!(&second, Ok(Some(Repaired { run: Some(_), .. })));
    if let Some(journal) = &run.journal_so_far
        && !is_closed
    {
        if matches!(&second, Ok(None)) {
            journal.mark_interrupted().map_err(RepairError::from)?;
        }
        journal.end().await.map_err(RepairError::from)?;
    }
    if let Some(second) = second? {
        return Ok(second.after(first));
    }

    if let Some(executed) = &mut first.run {
        executed.execution.interrupted = true;
        executed.execution.steps += waiting;
        executed.execution.not_started += waiting;
    }
    let operator = run.access.operator;
    operator.warn(format!(
        "interrupted before the second check: {} found unused once and stay as they are",
        addresses_were(waiting)
    ));
    operator.tell(Event::Hint(Hint::new("{} goes on with them", [Call::again()])));
    Ok(first)
}
