//! `release`: from a request to what was released.

use std::path::PathBuf;

use calipam_datastore::Datastore;
use calipam_plan::Plan;
use calipam_plan::release::{self, Request, Sightings};

use crate::error::Error;
use crate::look::{Judging, Look, look};
use crate::operator::Operator;
use crate::planning::{cooldown, plan_on_two_looks, try_plan, warn_of_short_grace};
use crate::reports;
use crate::write::{Intent, Repaired, Writing, write};

/// What to release, and how.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    pub targets: Request,
    /// Files with reports of earlier checks, whose sightings count as earlier looks.
    pub reports: Vec<PathBuf>,
    /// Pass over the objections to a report that can be passed over.
    pub force_reports: bool,
    pub judging: Judging,
    /// `None` to plan only.
    pub writing: Option<Writing>,
    /// Write nothing where the plan makes more changes.
    pub max_changes: Option<usize>,
    /// The datastore is locked while this runs, as calicoctl requires for its reports.
    pub lock: bool,
}

/// Looks, plans, shows the plan, asks, and releases.
pub async fn release(
    datastore: &Datastore,
    request: &ReleaseRequest,
    operator: &impl Operator,
) -> Result<Repaired, Error> {
    let judging = &request.judging;
    let intent = Intent { writing: request.writing.as_ref(), max_changes: request.max_changes };
    let seen = look(datastore, judging, operator).await?;
    if request.targets.leaked || request.targets.orphan_handles {
        warn_of_short_grace(&seen.snapshot, judging, operator);
    }
    let sightings = reports::read(request, &seen.snapshot, operator)?;
    let planned =
        plan_on_two_looks(datastore, seen, sightings, judging, intent, operator, async |seen, sightings| {
            plan(datastore, seen, request, sightings).await
        })
        .await?;

    let plan = try_plan(planned.seen, planned.plan, judging)?;
    write(datastore, plan, intent, planned.may_begin, operator).await
}

async fn plan(datastore: &Datastore, seen: &Look, request: &ReleaseRequest, sightings: &[Sightings]) -> Plan {
    let cooldown = cooldown(datastore, &seen.snapshot).await;
    release::plan(&seen.basis(&request.judging), &request.targets, sightings, cooldown)
}
