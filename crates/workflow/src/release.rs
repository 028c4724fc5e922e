//! `release`: from a request to what was released.

use std::path::PathBuf;

use calipam_datastore::Datastore;
use calipam_plan::Plan;
use calipam_plan::release::{self, Observations, Request};

use crate::error::Error;
use crate::look::{Judging, Look, look};
use crate::operator::{Operator, Pending};
use crate::planning::{Planned, cooldown, plan_after_grace, try_plan, warn_of_short_grace};
use crate::reports;
use crate::run::{Intent, Run};
use crate::write::Repaired;

/// What to release, and how.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    pub targets: Request,
    /// Files with reports of earlier checks, whose observations count as earlier looks.
    pub reports: Vec<PathBuf>,
    pub judging: Judging,
    pub intent: Intent,
    /// The datastore is locked while this runs, as calicoctl requires for its reports.
    pub lock: bool,
}

/// Looks, plans, shows the plan, asks, and releases.
pub fn release<'a>(
    datastore: &'a Datastore,
    request: &'a ReleaseRequest,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Repaired, Error>> {
    Box::pin(async move {
        let judging = &request.judging;
        let run = Run { datastore, intent: &request.intent, operator };
        let seen = look(datastore, judging, operator).await?;
        if request.targets.leaked || request.targets.orphan_handles {
            warn_of_short_grace(&seen.snapshot, judging, operator);
        }
        let observations = reports::read(request, &seen.snapshot, operator)?;
        let plan = async |seen: &Look, observations: &[Observations]| {
            plan(datastore, seen, request, observations).await
        };
        let Planned { seen, plan, passed } =
            plan_after_grace(&run, judging, seen, observations, plan).await?;

        let plan = try_plan(seen, plan, judging)?;
        run.write(plan, passed).await
    })
}

async fn plan(
    datastore: &Datastore,
    seen: &Look,
    request: &ReleaseRequest,
    observations: &[Observations],
) -> Plan {
    let cooldown = cooldown(datastore, &seen.snapshot).await;
    release::plan(&seen.basis(&request.judging), &request.targets, observations, cooldown)
}
