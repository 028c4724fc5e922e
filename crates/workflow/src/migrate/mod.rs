//! `migrate`: replaces a pool with another one, with one phase per run.

mod estimate;
mod evict;
mod eviction;
mod moving;

use calipam_check::Subject;
use calipam_datastore::write::{Consent, ProposedChange};
use calipam_model::document::Document;
use calipam_model::edit::Precondition;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_model::writable::Object;
use calipam_plan::migrate::{self, Migration, Phase, StoredPools, Survey, Target};
use calipam_plan::{Basis, Plan, PlanKind, Refused, SkipReason, Skipped};

use jiff::SignedDuration;

pub use self::estimate::Estimate;
pub use self::eviction::Eviction;
use self::eviction::Moves;
pub use self::moving::{Group, Moving, Pin, Surveyed};
use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::{Failure, Result};
use crate::operator::{Access, Activity, Proposal};
use crate::preflight::Passed;
use crate::read::{guid, wait};
use crate::run::{Intent, Run};
use crate::scope::unknown_pool;
use crate::second_read::{Planned, plan_after_grace, warn_of_short_grace};
use crate::write::{Repaired, sources};

/// A request to migrate.
#[derive(Clone, Debug)]
pub struct MigrateRequest {
    /// The old pool, by name or CIDR. If it is `None`, exactly one pool must qualify: a disabled pool that has blocks or
    /// affinities, or a pool to which a temporary pool or the name of a new pool refers.
    pub from: Option<String>,
    pub target: Target,
    /// True to continue even if the allocator does not find addresses for all users.
    pub force: bool,
    /// The eviction of pods in the phase in which users move; `None` to evict no pods.
    pub eviction: Option<Eviction>,
    pub criteria: Criteria,
    /// The intent to only plan the next phase, or to execute it.
    pub intent: Intent,
}

/// The result of a run.
pub struct Migrated {
    /// The state when the phase was planned.
    pub surveyed: Surveyed,
    pub repaired: Repaired,
    /// True if an earlier state was shown before the operator agreed to evict pods.
    pub was_shown: bool,
}

/// Reads the cluster, surveys the migration, shows the survey and the plan of the next phase, asks the operator, and
/// executes the phase.
///
/// # Errors
/// If an object cannot be read or written, the migration is refused, or the operator does not agree.
pub async fn migrate(access: Access<'_>, request: &MigrateRequest) -> Result<Migrated> {
    let run = Run::on_live(access, &request.intent, ["migrate a pool", "a migration"])?;
    let (seen, surveyed, stored) = survey_all(access, request).await?;
    if let Some(eviction) = &request.eviction
        && surveyed.survey.phase == Phase::Move
        && run.writing().is_some()
    {
        return evict_and_survey(&run, request, &surveyed, eviction).await;
    }

    // The journal's command names the phase, so that the list of journals shows it.
    let survey = &surveyed.survey;
    let mut intent = request.intent.clone();
    if let Some(writing) = &mut intent.writing {
        let pool = &survey.migration.old.name;
        writing.command = format!("{}: {} {pool}", writing.command, survey.phase);
    }
    let mut run = Run {
        intent: &intent,
        ..run
    };

    if run.writing().is_some() && survey.phase != Phase::Move {
        access.operator.show(Proposal::Migration(&surveyed))?;
    }
    let repaired = if survey.phase == Phase::CleanUp {
        clean_up(&run, request, seen, &survey.migration).await?
    } else {
        let plan = plan_or_skip_pools(&mut run, request, &seen, survey, &stored)?;
        let passed = match survey.phase {
            Phase::Delete => wait_for_grace(&run, request, &seen, &plan).await?,
            _ => None,
        };
        let check_again = async |_: &Consent| check_phase_again(&run, request, survey).await;
        run.write_if(plan, passed, check_again).await?
    };
    Ok(Migrated {
        surveyed,
        repaired,
        was_shown: false,
    })
}

/// Evicts pods of the old pool, and surveys the migration again. Does not begin the next phase, which needs another
/// run because the operator has not seen its plan.
async fn evict_and_survey(
    run: &Run<'_>,
    request: &MigrateRequest,
    surveyed: &Surveyed,
    eviction: &Eviction,
) -> Result<Migrated> {
    evict(run, surveyed, eviction).await?;
    let (seen, surveyed, _) = survey_all(run.access, request).await?;

    let empty_plan = Plan::new(PlanKind::Migrate, &seen.snapshot, Vec::new());
    let passed = None;
    Ok(Migrated {
        surveyed,
        repaired: run.write(empty_plan, passed).await?,
        was_shown: true,
    })
}

/// Plans the removal of what is left in the old pool, reads it a second time after the grace period, and removes it.
async fn clean_up(
    run: &Run<'_>,
    request: &MigrateRequest,
    seen: CheckResult,
    migration: &Migration,
) -> Result<Repaired> {
    let criteria = &request.criteria;
    warn_of_short_grace(&seen.snapshot, criteria, run.access.operator);

    let plan = |basis: &Basis<'_>| migrate::clean_up(basis, migration);
    let reports = Vec::new();
    let Planned { seen, plan, passed } = plan_after_grace(run, criteria, seen, reports, plan).await?;
    run.write(seen.try_plan(plan, criteria)?, passed).await
}

/// Plans a phase that writes a pool. If the run only plans, a refusal becomes part of the plan, so that the survey is
/// still shown.
fn plan_or_skip_pools(
    run: &mut Run<'_>,
    request: &MigrateRequest,
    seen: &CheckResult,
    survey: &Survey,
    stored: &StoredPools,
) -> Result<Plan> {
    let refusal = match allowed_plan(request, seen, survey, stored) {
        Ok(plan) => return Ok(plan),
        Err(refusal) => refusal,
    };
    let subject = Subject::Pool(survey.migration.old.cidr);
    let skipped = Skipped::new(subject, SkipReason::NeedsDecision, refusal.to_string());
    run.refuse(refusal)?;
    Ok(Plan {
        skipped: vec![skipped],
        ..Plan::new(PlanKind::Migrate, &seen.snapshot, Vec::new())
    })
}

/// Plans a phase that writes a pool, if all users find addresses afterwards or the operator insists.
fn allowed_plan(
    request: &MigrateRequest,
    seen: &CheckResult,
    survey: &Survey,
    stored: &StoredPools,
) -> Result<Plan, Refused> {
    if !request.force {
        survey.require_room()?;
    }
    migrate::plan_pools(&seen.snapshot, &survey.migration, stored, survey.phase)
}

/// A time that is longer than a CNI plugin takes to assign an address: Calico's plugin gives up after 90 seconds.
const LONGEST_ADD: SignedDuration = SignedDuration::from_mins(2);

/// Performs the preflight, and waits for the grace period, but at most [`LONGEST_ADD`], before the pool is deleted: a
/// plugin that read the pool while it was enabled may claim a block there a moment later. Returns `None` if nothing is
/// written.
async fn wait_for_grace(
    run: &Run<'_>,
    request: &MigrateRequest,
    seen: &CheckResult,
    plan: &Plan,
) -> Result<Option<Passed>> {
    let Some(writing) = run.writing() else {
        return Ok(None);
    };
    let cluster = plan.cluster.guid.clone();
    let passed = run
        .preflight(writing, &cluster, sources(PlanKind::Migrate), plan.actions.len())
        .await?;
    let grace = calipam_check::grace(&seen.snapshot, &request.criteria.options);
    let pause = grace.min(LONGEST_ADD);
    if pause.is_positive() {
        run.access.operator.info(format!(
            "checking the pool again in {pause:#}, before it is deleted: a pod that was starting when it was disabled can \
             still get a block in it"
        ));
        wait(pause, Activity::WaitingForSecondRead, run.access.operator).await;
    }
    Ok(Some(passed))
}

/// The failure if another program or person has changed pools, blocks or addresses since the plan was shown.
fn refusal_of_changed_phase(before: &Survey, now: Phase) -> Failure {
    let pool = &before.migration.old.name;
    let message = match (before.phase, now) {
        (Phase::Delete, Phase::Move | Phase::CleanUp) => format!("the pool {pool} is no longer empty"),
        (phase, now) => {
            format!("{pool} has changed in the meantime: the next phase is {now}, not {phase}")
        }
    };
    let hint = Hint::new(
        "{} shows what it contains now",
        [Call::to(["migrate", "--from", pool])],
    );
    Failure::refused(message).hint(hint)
}

/// Checks again, just before a phase is written, that it is still the next one and may be written. Returns the
/// preconditions that the write itself has to check: etcd deletes the pool only if no block was created in it since
/// this read.
async fn check_phase_again(
    run: &Run<'_>,
    request: &MigrateRequest,
    before: &Survey,
) -> Result<Vec<(Key, Precondition)>> {
    let (seen, after, stored) = survey(run.access, request).await?;
    if before.phase != after.phase {
        return Err(refusal_of_changed_phase(before, after.phase));
    }
    allowed_plan(request, &seen, &after, &stored)?;

    let mut preconditions = Vec::new();
    if after.phase == Phase::Delete
        && seen.snapshot.datastore == DatastoreKind::Etcd
        && let Ok(revision) = seen.snapshot.revision.parse()
    {
        let pool = Key::Block(after.migration.old.cidr);
        preconditions.push((pool, Precondition::NoBlockSince(revision)));
    }
    Ok(preconditions)
}

/// Reads and surveys the migration. Also returns the pools as they are stored.
async fn survey(access: Access<'_>, request: &MigrateRequest) -> Result<(CheckResult, Survey, StoredPools)> {
    let criteria = &request.criteria;
    let mut seen = read_and_check(access, criteria).await?;
    let requested = request.from.as_deref();
    let Some((old, target)) = migrate::find(&seen.snapshot, requested, &request.target)? else {
        return Err(unknown_pool(&[&seen.snapshot], requested.unwrap_or_default()));
    };
    let migration = Migration::of(&seen.snapshot, old, &target)?;

    let old = stored_pool(access, &seen.snapshot, &migration.old.name).await?;
    let new = match &migration.new {
        Some(new) if !migration.creates => Some(stored_pool(access, &seen.snapshot, &new.name).await?),
        _ => None,
    };
    let stored = StoredPools { old, new };

    let mut survey = migrate::survey(&seen.basis(criteria), migration);
    if let Some(new) = &stored.new {
        survey.differences = migrate::differences(&stored.old, new);
    }
    let users = survey.movers();
    survey.capacity = migrate::capacity(&mut seen.snapshot, &survey.migration, &users);
    if matches!(survey.phase, Phase::Create | Phase::Disable) {
        survey.capacity_back = migrate::capacity_back(&mut seen.snapshot, &survey.migration, &users);
    }

    Ok((seen, survey, stored))
}

/// Reads a pool of the snapshot as it is stored.
async fn stored_pool(access: Access<'_>, snapshot: &Snapshot, name: &str) -> Result<Document> {
    let stored = access.datastore.stored_object(Key::Pool(name.to_owned())).await?;
    match stored.and_then(|stored| stored.object) {
        Some(Object::Pool(pool)) => Ok(pool),
        // The pool was deleted after it was listed.
        _ => Err(unknown_pool(&[snapshot], name)),
    }
}

/// Surveys the migration, and adds Kubernetes data about the users that move.
async fn survey_all(
    access: Access<'_>,
    request: &MigrateRequest,
) -> Result<(CheckResult, Surveyed, StoredPools)> {
    let (seen, survey, stored) = survey(access, request).await?;
    let moving = match access.datastore.workloads() {
        Some(workloads) => {
            let live_migration_moves = seen.snapshot.knows_machines() == Some(false);
            let eviction = request.eviction.as_ref();
            Some(
                Moving::read(
                    &workloads,
                    &seen.snapshot,
                    &survey,
                    eviction,
                    live_migration_moves,
                )
                .await,
            )
        }
        None => None,
    };
    Ok((seen, Surveyed { survey, moving }, stored))
}

/// Evicts the pods of the old pool, once the operator agrees.
async fn evict(run: &Run<'_>, surveyed: &Surveyed, eviction: &Eviction) -> Result<()> {
    let workloads = run.access.datastore.workloads().ok_or_else(|| {
        Failure::refused("pods are evicted through Kubernetes, but no kubeconfig was given").hint(Hint::new(
            "pass a kubeconfig: {}",
            [Call::connected(["--kubeconfig", "FILE"])],
        ))
    })?;
    run.access.operator.show(Proposal::Migration(surveyed))?;

    let mut pods = 0;
    let mut moves = Moves { machines: false };
    if let Some(moving) = &surveyed.moving {
        pods = moving.evictable;
        moves.machines = moving.live_migration_moves;
    }
    let cluster = guid(run.access.datastore).await?;
    run.ask(&cluster, ProposedChange::Eviction { pods }).await?;

    let old = &surveyed.survey.migration.old;
    eviction
        .run(&workloads, old, moves, pods, run.access.operator)
        .await
}
