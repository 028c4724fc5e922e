//! From looks at the cluster to a plan that was tried in memory.

use calipam_check::{Options, check};
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_plan::release::Sightings;
use calipam_plan::{Basis, Plan, SkipReason, simulate, verify};
use jiff::{SignedDuration, Timestamp};

use crate::commands::sight::{Sight, sight};
use crate::exit::Failure;
use crate::output::Console;
use crate::progress;
use crate::render::text::thousands;

/// Makes a plan from what was found, earlier sightings, and the seconds for which released addresses cool down.
pub type Planner<'a> = dyn Fn(&Basis<'_>, &[Sightings], i64) -> Result<Plan, Failure> + 'a;

/// How to look before planning.
pub struct Looks<'a> {
    /// How to judge.
    pub options: Options,
    /// After how long suspects are read again.
    pub settle: SignedDuration,
    /// The plan is to be carried out, so that a second look is worth the wait.
    pub for_real: bool,
    /// Sightings of files; asked for once the cluster is known.
    pub reported: &'a dyn Fn(&Snapshot) -> Result<Vec<Sightings>, Failure>,
    /// Makes the plan.
    pub planner: &'a Planner<'a>,
    /// Looks at plan and data before the plan is tried.
    pub planned: &'a dyn Fn(&Snapshot, &Plan) -> Result<(), Failure>,
}

/// Looks, plans, looks a second time where something has been seen once only, and tries the plan in memory.
///
/// # Errors
/// Where the datastore cannot be read, or the plan would not do what it claims.
pub async fn plan(datastore: &Datastore, looks: &Looks<'_>, console: &Console) -> Result<Plan, Failure> {
    let first = sight(datastore, &looks.options, looks.settle, console).await?;
    let mut sightings = (looks.reported)(&first.snapshot)?;
    let mut plan = make(datastore, &first, looks, &sightings).await?;
    let mut last = first;
    let seen_once = plan.skipped.iter().filter(|s| s.reason == SkipReason::SeenOnce).count();
    if seen_once > 0 {
        let grace = calipam_check::grace(&last.snapshot, &looks.options);
        let again = format!("{} addresses were seen unused once", thousands(seen_once));
        sightings.push(Sightings::of_report(&last.report));
        if looks.for_real && datastore.is_live() {
            console.verbose(&format!("{again}; they are looked at again after {grace:#}"));
            drop(last);
            progress::wait(console, grace, "waiting to look a second time").await;
            last = sight(datastore, &looks.options, looks.settle, console).await?;
        } else {
            console.warn(&format!(
                "{again}; they are planned as if a second look, {grace:#} later, saw the same"
            ));
            if let Some(look) = sightings.last_mut() {
                look.at = look.at.saturating_sub(grace).unwrap_or(Timestamp::MIN);
            }
        }
        plan = make(datastore, &last, looks, &sightings).await?;
    }
    try_out(last, plan, looks)
}

async fn make(
    datastore: &Datastore,
    sight: &Sight,
    looks: &Looks<'_>,
    sightings: &[Sightings],
) -> Result<Plan, Failure> {
    let cooldown = cooldown(datastore, &sight.snapshot).await;
    (looks.planner)(&Basis::new(&sight.snapshot, &sight.report, &looks.options), sightings, cooldown)
}

/// Seconds for which the cluster lets released addresses cool down; 0 where its datastore does not keep the time.
async fn cooldown(datastore: &Datastore, snapshot: &Snapshot) -> i64 {
    let configured = snapshot.effective_ipam_config().map_or(0, |config| config.cooldown_seconds.max(0));
    if configured > 0 && datastore.keeps_cooldown().await { configured } else { 0 }
}

/// Makes the plan in memory, and compares what is found before and afterwards.
fn try_out(sight: Sight, plan: Plan, looks: &Looks<'_>) -> Result<Plan, Failure> {
    let Sight { snapshot, mut report, dropped } = sight;
    (looks.planned)(&snapshot, &plan)?;
    if plan.is_empty() {
        return Ok(plan);
    }
    let refused = |reason: String| Failure::Refused {
        message: format!("the plan was tried in memory and refused: {reason}"),
        hint: Some(
            "nothing was changed; run it again, and report it if it stays: this is a mistake in calipam"
                .into(),
        ),
    };
    let now = snapshot.taken_at;
    let after = simulate(snapshot, &plan, now).map_err(|error| refused(error.to_string()))?;
    let later = check(&after, &looks.options);
    std::mem::forget(after);
    // What had not settled is found in the simulated data, too, and is nothing new there.
    report.findings.extend(dropped);
    verify(&report, &plan, &later).map_err(|refusal| refused(refusal.to_string()))?;
    Ok(plan)
}
