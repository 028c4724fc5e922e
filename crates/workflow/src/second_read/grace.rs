//! `--grace`: an address that was seen unused once is released only if a second read also finds it unused.

use calipam_model::snapshot::Snapshot;
use calipam_model::words::count;
use calipam_plan::release::Observations;
use calipam_plan::{Basis, Plan, SkipReason};
use jiff::{SignedDuration, Timestamp};

use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::Result;
use crate::operator::{Activity, Event, Operator, Proposal};
use crate::preflight::Passed;
use crate::read::{cooldown, wait};
use crate::run::Run;
use crate::write::sources;

/// A plan, the data on which it is based, and the result of its preflight if that was already performed.
pub(crate) struct Planned {
    pub seen: CheckResult,
    pub plan: Plan,
    pub passed: Option<Passed>,
}

/// Plans, and plans again after the grace period if addresses were seen unused only once. The expected plan is shown
/// before the wait, after its preflight. If nothing will be written, there is no wait: the plan assumes that the second
/// read finds the addresses unused.
pub(crate) async fn plan_after_grace(
    run: &Run<'_>,
    criteria: &Criteria,
    seen: CheckResult,
    mut observations: Vec<Observations>,
    make_plan: impl Fn(&Basis<'_>) -> Plan,
) -> Result<Planned> {
    let seconds = cooldown(run.access.datastore, &seen.snapshot).await;
    let first_plan = make_plan(&seen.basis(criteria).with(&observations, seconds));
    let addresses = seen_once(&first_plan);
    if addresses == 0 {
        return Ok(Planned {
            seen,
            plan: first_plan,
            passed: None,
        });
    }
    drop(first_plan);

    // The expected plan is the one that the second read gives if everything stays as it is. This read then counts as an
    // observation that is as old as the grace period.
    let grace = calipam_check::grace(&seen.snapshot, &criteria.options);
    let observation = Observations::of_report(&seen.report);
    let observed_at = observation.at;
    observations.push(Observations {
        at: observed_at.saturating_sub(grace).unwrap_or(Timestamp::MIN),
        ..observation
    });
    let expected_plan = make_plan(&seen.basis(criteria).with(&observations, seconds));
    let Some(writing) = run.writing() else {
        run.access.operator.warn(format!(
            "{} found unused once; the plan assumes that a second check, {grace:#} later, finds the same",
            addresses_were(addresses)
        ));
        return Ok(Planned {
            seen,
            plan: expected_plan,
            passed: None,
        });
    };

    // Only the summary is shown. The steps are planned from the read after the wait.
    let (summary, _) = seen.try_plan(expected_plan, criteria)?.divide();
    run.access.operator.show(Proposal::Plan(&summary))?;
    let kind = summary.kind;
    let guid = &summary.cluster.guid;
    let changes = summary.changes.len();
    let mut passed = run.preflight(writing, guid, sources(kind), changes).await?;
    run.tell_of_unfinished(guid);
    passed.shown = Some(summary);

    run.access.operator.tell(Event::SecondRead {
        addresses,
        after: grace,
        kind,
    });
    wait(grace, Activity::WaitingForSecondRead, run.access.operator).await;

    let seen = read_and_check(run.access, criteria).await?;
    if let Some(observation) = observations.last_mut() {
        observation.at = observed_at;
    }
    let seconds = cooldown(run.access.datastore, &seen.snapshot).await;
    let plan = make_plan(&seen.basis(criteria).with(&observations, seconds));
    Ok(Planned {
        seen,
        plan,
        passed: Some(passed),
    })
}

/// The number of addresses, handles and affinities that the plan skips because they were seen only once.
pub(crate) fn seen_once(plan: &Plan) -> usize {
    plan.skipped
        .iter()
        .filter(|skipped| skipped.reason == SkipReason::SeenOnce)
        .count()
}

/// The subject of a sentence about addresses that were found unused once: `1 address or handle was`.
pub(super) fn addresses_were(number: usize) -> String {
    count(number, "address or handle was", "addresses or handles were")
}

/// The longest time that a CNI plugin's operation takes, from its first write to its last.
const CNI_OPERATION: SignedDuration = SignedDuration::from_secs(10);

/// Warns of a grace period so short that an address may look unused while a pod is getting it.
pub(crate) fn warn_of_short_grace(snapshot: &Snapshot, criteria: &Criteria, operator: &dyn Operator) {
    let grace = calipam_check::grace(snapshot, &criteria.options);
    if grace < CNI_OPERATION {
        operator.warn(format!(
            "a grace period of {grace:#} is shorter than a CNI operation can take: an address that is just being \
             assigned can look unused; use 10s or more"
        ));
    }
}
