//! What planning a release and planning a rebuild have in common: the second look, and the trial of the plan.

use calipam_check::ClusterIdentity;
use calipam_datastore::Datastore;
use calipam_model::edit::Step;
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::Sightings;
use calipam_plan::{Change, FailedTrial, Plan, PlanKind, SkipReason, Skipped, Totals, Warning};
use jiff::{SignedDuration, Timestamp};

use crate::error::Error;
use crate::look::{Judging, Look, look, wait};
use crate::operator::{Activity, Note, Operator};
use crate::write::{Intent, may_begin, sources};

/// What people see of a plan: everything but the edits, which the executor consumes.
#[derive(Clone, Debug)]
pub struct PlanSummary {
    pub kind: PlanKind,
    pub cluster: ClusterIdentity,
    pub totals: Totals,
    pub changes: Vec<Change>,
    pub skipped: Vec<Skipped>,
    pub warnings: Vec<Warning>,
}

impl PlanSummary {
    /// What people see of a plan, and its steps.
    pub(crate) fn divide(plan: Plan) -> (Self, Vec<Step>) {
        let totals = plan.totals();
        let Plan { kind, cluster, actions, skipped, warnings, .. } = plan;
        let (steps, changes): (Vec<Step>, Vec<Vec<Change>>) =
            actions.into_iter().map(|action| (action.step, action.changes)).unzip();
        let changes = changes.into_iter().flatten().collect();
        (Self { kind, cluster, totals, changes, skipped, warnings }, steps)
    }
}

/// Seconds for which the cluster lets released addresses cool down; 0 where its datastore does not keep the time.
pub(crate) async fn cooldown(datastore: &Datastore, snapshot: &Snapshot) -> i64 {
    let configured = snapshot.effective_ipam_config().map_or(0, |config| config.cooldown_seconds.max(0));
    if configured > 0 && datastore.keeps_cooldown().await { configured } else { 0 }
}

/// How many addresses the plan skips because they have been seen unused only once.
fn seen_once(plan: &Plan) -> usize {
    plan.skipped.iter().filter(|skipped| skipped.reason == SkipReason::SeenOnce).count()
}

/// A plan, the look that it rests on, and whether what can refuse it was looked at already.
pub(crate) struct Planned {
    pub seen: Look,
    pub plan: Plan,
    pub may_begin: bool,
}

/// Plans by `plan`. Addresses that were seen unused once are looked at again, a grace period later. What would refuse the
/// plan after that wait refuses it before. Where nothing will be written, there is no wait: the plan is made as if the
/// second look saw the same.
pub(crate) async fn plan_on_two_looks(
    datastore: &Datastore,
    mut seen: Look,
    mut sightings: Vec<Sightings>,
    judging: &Judging,
    intent: Intent<'_>,
    operator: &impl Operator,
    plan: impl AsyncFn(&Look, &[Sightings]) -> Plan,
) -> Result<Planned, Error> {
    let first = plan(&seen, &sightings).await;
    let addresses = seen_once(&first);
    if addresses == 0 {
        return Ok(Planned { seen, plan: first, may_begin: false });
    }
    drop(first);

    let after = calipam_check::grace(&seen.snapshot, &judging.options);
    let sighting = Sightings::of_report(&seen.report);
    let at = sighting.at;
    sightings.push(Sightings { at: at.saturating_sub(after).unwrap_or(Timestamp::MIN), ..sighting });
    let expected = plan(&seen, &sightings).await;
    let Some(writing) = intent.writing.filter(|_| datastore.is_live()) else {
        operator.note(Note::SecondLookAssumed { addresses, after });
        return Ok(Planned { seen, plan: expected, may_begin: false });
    };

    let expected = try_plan(seen, expected, judging)?;
    let (guid, changes) = (&expected.cluster.guid, expected.changes().count());
    may_begin(datastore, guid, sources(expected.kind), changes, writing, intent, operator).await?;
    drop(expected);

    operator.note(Note::SecondLook { addresses, after });
    wait(after, Activity::WaitingForSecondLook, operator).await;
    seen = look(datastore, judging, operator).await?;
    if let Some(sighting) = sightings.last_mut() {
        sighting.at = at;
    }
    let plan = plan(&seen, &sightings).await;
    Ok(Planned { seen, plan, may_begin: true })
}

/// What an operation of a CNI plugin takes at most, from the first object that it writes to the last.
const CNI_OPERATION: SignedDuration = SignedDuration::from_secs(10);

/// Warns of a grace period in which an address that a pod is just being given looks unused.
pub(crate) fn warn_of_short_grace(snapshot: &Snapshot, judging: &Judging, operator: &impl Operator) {
    let grace = calipam_check::grace(snapshot, &judging.options);
    if grace < CNI_OPERATION {
        operator.note(Note::ShortGrace(grace));
    }
}

/// Tries the plan in memory. What it comes to is the plan without the steps that fail there.
pub(crate) fn try_plan(look: Look, plan: Plan, judging: &Judging) -> Result<Plan, FailedTrial> {
    let Look { snapshot, mut report, dropped } = look;
    // What had not settled is found in the simulated data, too, and is not new there.
    report.findings.extend(dropped);
    calipam_plan::try_plan(snapshot, report, plan, &judging.options)
}
