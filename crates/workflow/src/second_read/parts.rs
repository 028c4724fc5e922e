//! Writing in two parts: what is certain at once, and the rest after a second read.

use calipam_model::hint::{Call, Hint};
use calipam_model::words::count;
use calipam_plan::release::Observations;
use calipam_plan::{Basis, Plan};
use calipam_repair::{Interrupt, RepairError};

use super::grace::{Planned, plan_after_grace, seen_once};
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

/// Plans and writes. If some of the changes need a second read, the others are written first. `tried` tries a plan in
/// memory.
pub(crate) async fn write_in_parts(
    run: Run<'_>,
    criteria: &Criteria,
    mut seen: CheckResult,
    observations: Vec<Observations>,
    plan: impl Fn(&Basis<'_>) -> Plan,
    tried: impl Fn(CheckResult, Plan, Part) -> Result<Plan>,
) -> Result<Repaired> {
    if let Some((first, waiting)) = certain(&run, criteria, &seen, &observations, &plan).await? {
        let (written, rest) = run.write_first(tried(seen, first, Part::First)?).await?;
        if let Some(rest) = rest {
            let second = write_rest(&rest, criteria, observations, plan, tried).await;
            return finish(&rest, written, waiting, second).await;
        }
        if written.run.is_some() {
            return Ok(written);
        }
        seen = read_and_check(run.access, criteria).await?;
    }
    let Planned { seen, plan, passed } = plan_after_grace(&run, criteria, seen, observations, plan).await?;
    run.write(tried(seen, plan, Part::First)?, passed).await
}

/// Returns the changes that need no second read, and the number of those that need one. `None` if there are not both, or
/// if nothing will be written.
async fn certain(
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
    let first = plan(&seen.basis(criteria).with(observations, cooldown));
    let waiting = seen_once(&first);
    if waiting == 0 || first.actions.is_empty() {
        return Ok(None);
    }
    run.check_limit(first.changes().count() + waiting)?;
    let after = calipam_check::grace(&seen.snapshot, &criteria.options);
    run.access.operator.info(format!(
        "{} found unused once and will be checked again in {after:#}: the other changes are written first",
        count(waiting, "address or handle was", "addresses or handles were")
    ));
    Ok(Some((first, waiting)))
}

/// Writes the second part; `None` if the run was interrupted before that.
async fn write_rest(
    run: &Run<'_>,
    criteria: &Criteria,
    observations: Vec<Observations>,
    plan: impl Fn(&Basis<'_>) -> Plan,
    tried: impl Fn(CheckResult, Plan, Part) -> Result<Plan>,
) -> Result<Option<Repaired>> {
    // A signal must not end the process, since something was written.
    let now = WritingNow::begin();
    let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
    let planned = async {
        let seen = read_and_check(run.access, criteria).await?;
        plan_after_grace(run, criteria, seen, observations, plan).await
    };
    let Planned { seen, plan, passed } = tokio::select! {
        planned = planned => planned?,
        () = interrupt.wait() => return Ok(None),
    };
    drop(now);
    run.write(tried(seen, plan, Part::Rest)?, passed).await.map(Some)
}

/// Closes the journal, unless the second part has, and combines both parts.
async fn finish(
    run: &Run<'_>,
    mut written: Repaired,
    waiting: usize,
    second: Result<Option<Repaired>>,
) -> Result<Repaired> {
    if let Some(begun) = &run.begun
        && !matches!(&second, Ok(Some(Repaired { run: Some(_), .. })))
    {
        if matches!(&second, Ok(None)) {
            begun.mark_interrupted().map_err(RepairError::from)?;
        }
        begun.end().await.map_err(RepairError::from)?;
    }
    if let Some(second) = second? {
        return Ok(second.after(written));
    }
    if let Some(executed) = &mut written.run {
        executed.execution.interrupted = true;
        executed.execution.steps += waiting;
        executed.execution.not_started += waiting;
    }
    let operator = run.access.operator;
    operator.warn(format!(
        "interrupted before the second check: {} found unused once and stay as they are",
        count(waiting, "address or handle was", "addresses or handles were")
    ));
    operator.tell(Event::Hint(Hint::new("{} goes on with them", [Call::again()])));
    Ok(written)
}
