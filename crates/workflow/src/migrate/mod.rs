//! `migrate`: from one pool to another, one phase in a run.

mod evict;
mod moving;

use calipam_check::Subject;
use calipam_datastore::Datastore;
use calipam_datastore::write::Question;
use calipam_model::document::Document;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_plan::migrate::{self, MigrateRefusal, Migration, Phase, Survey, Target, UserKind};
use calipam_plan::{Plan, PlanKind, SkipReason, Skipped};

pub use self::evict::{EvictError, Eviction};
pub use self::moving::{Group, Moving, Pin};
use crate::error::Error;
use crate::operator::{Note, Operator, Pending, Proposal};
use crate::planning::{cooldown, try_plan};
use crate::read::{CheckResult, Criteria, read_and_check};
use crate::run::{Intent, Run};
use crate::scope::unknown_pool;
use crate::second_read::{Planned, plan_after_grace, warn_of_short_grace};
use crate::write::Repaired;

/// Which pool to leave, for which, and how.
#[derive(Clone, Debug)]
pub struct MigrateRequest {
    /// The old pool, by name or CIDR; otherwise the disabled pool that has blocks, where there is one.
    pub from: Option<String>,
    pub target: Target,
    /// Go on although the allocator does not find addresses for all users.
    pub force: bool,
    /// Evict pods, where users are to move.
    pub eviction: Option<Eviction>,
    pub criteria: Criteria,
    /// With writing, the next phase is carried out.
    pub intent: Intent,
}

/// Where a migration stands, as far as it was surveyed.
#[derive(Clone, Debug)]
pub struct Surveyed {
    pub survey: Survey,
    /// What brings the pods back, and what ties them to the pool; `None` where Kubernetes was not asked.
    pub moving: Option<Moving>,
}

/// What a run came to.
pub struct Migrated {
    /// As it was when the phase was planned.
    pub surveyed: Surveyed,
    pub repaired: Repaired,
}

/// Reads, surveys the migration, shows it and the plan of the next phase, asks, and carries that out.
///
/// # Errors
/// Where something cannot be read or written, the migration is refused, or the operator does not agree.
pub fn migrate<'a>(
    datastore: &'a Datastore,
    request: &'a MigrateRequest,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Migrated, Error>> {
    Box::pin(async move {
        datastore.require_calico_3("migrate a pool")?;
        if !datastore.is_live() {
            return Err(Error::NotLive("a migration"));
        }
        let run = Run { datastore, intent: &request.intent, operator };
        let criteria = &request.criteria;
        let (mut seen, mut surveyed, stored) = survey(datastore, request, operator).await?;
        if surveyed.survey.phase == Phase::Move
            && let (Some(eviction), true) = (&request.eviction, run.writing().is_some())
        {
            evict(&run, &surveyed, eviction).await?;
            (seen, surveyed, _) = survey(datastore, request, operator).await?;
            // What comes next is a phase of its own, and was not shown.
            let plan = Plan::nothing(PlanKind::Migrate, &seen.snapshot);
            return Ok(Migrated { surveyed, repaired: run.write(plan, None).await? });
        }

        let survey = &surveyed.survey;
        if run.writing().is_some() {
            operator.show(Proposal::Migration(&surveyed)).map_err(Error::showing)?;
            has_room(survey, request.force)?;
        }
        let repaired = match survey.phase {
            Phase::CleanUp => {
                warn_of_short_grace(&seen.snapshot, criteria, operator);
                let plan = async |seen: &CheckResult, observations: &[_]| {
                    let cooldown = cooldown(datastore, &seen.snapshot).await;
                    migrate::clean_up(&seen.basis(criteria), &survey.migration, observations, cooldown)
                };
                let Planned { seen, plan, passed } =
                    plan_after_grace(&run, criteria, seen, Vec::new(), plan).await?;
                let plan = try_plan(seen, plan, criteria)?;
                run.write(plan, passed).await?
            }
            phase => {
                let plan = match migrate::plan_pools(&seen.snapshot, &survey.migration, &stored, phase) {
                    // Where nothing will be written, the rest of what was asked for is still shown.
                    Err(refusal) if run.writing().is_none() => {
                        let subject = Subject::Pool(survey.migration.old.cidr);
                        let refused = Skipped::new(subject, SkipReason::NeedsDecision, refusal.to_string());
                        Plan { skipped: vec![refused], ..Plan::nothing(PlanKind::Migrate, &seen.snapshot) }
                    }
                    plan => plan?,
                };
                run.write(plan, None).await?
            }
        };
        Ok(Migrated { surveyed, repaired })
    })
}

/// Reads, and says where the migration stands. Gives the old pool as it is stored, too.
async fn survey(
    datastore: &Datastore,
    request: &MigrateRequest,
    operator: &dyn Operator,
) -> Result<(CheckResult, Surveyed, Document), Error> {
    let criteria = &request.criteria;
    let mut seen = read_and_check(datastore, criteria, operator).await?;
    let old = old_pool(&seen.snapshot, request.from.as_deref())?;
    let migration = Migration::of(&seen.snapshot, old, &request.target)?;
    let mut survey = migrate::survey(&seen.basis(criteria), migration);
    survey.capacity = migrate::capacity(&mut seen.snapshot, &survey.migration, &survey.users);

    let pool = async |name: &str| -> Result<Document, Error> {
        let stored = datastore.stored(&[Key::Pool(name.to_owned())]).await?.pop().flatten();
        match stored.and_then(|stored| stored.object) {
            Some(Object::Pool(pool)) => Ok(pool),
            // It is gone since it was listed.
            _ => Err(Error::UnknownPool(unknown_pool(&seen.snapshot, name))),
        }
    };
    let stored = pool(&survey.migration.old.name).await?;
    if let Some(new) = survey.migration.new.as_ref().filter(|_| !survey.migration.creates) {
        survey.differences = migrate::differences(&stored, &pool(&new.name).await?);
    }

    let moving = match datastore.workloads() {
        Some(workloads) => Some(Moving::read(&workloads, &survey).await),
        None => None,
    };
    Ok((seen, Surveyed { survey, moving }, stored))
}

/// The pool that is left: the one that is named, or the one disabled pool that has blocks.
fn old_pool<'s>(snapshot: &'s Snapshot, name: Option<&str>) -> Result<&'s Pool, Error> {
    let mut pools = snapshot.pools.iter().map(|pool| &pool.value);
    if let Some(name) = name {
        let cidr = name.parse().ok();
        let found = pools.find(|pool| pool.name == name || Some(pool.cidr) == cidr);
        return found.ok_or_else(|| Error::UnknownPool(unknown_pool(snapshot, name)));
    }

    let has_blocks = |pool: &&Pool| {
        let mut keys = snapshot.blocks.iter().map(|block| block.value.key);
        pool.disabled && keys.any(|block| pool.cidr.contains(&block))
    };
    let begun: Vec<&Pool> = pools.filter(has_blocks).collect();
    match begun.as_slice() {
        [pool] => Ok(pool),
        [] => Err(MigrateRefusal::NoneBegun.into()),
        several => {
            Err(MigrateRefusal::SeveralBegun(several.iter().map(|pool| pool.name.clone()).collect()).into())
        }
    }
}

/// While the old pool still serves, all of its users have to find an address without it.
fn has_room(survey: &Survey, force: bool) -> Result<(), MigrateRefusal> {
    let serves = matches!(survey.phase, Phase::Create | Phase::Disable);
    let sum = |of: fn(&migrate::NodeCapacity) -> u32| survey.capacity.iter().map(of).sum::<u32>();
    let (needed, missing) = (sum(|node| node.needed), sum(|node| node.needed.saturating_sub(node.found)));
    let first = survey.capacity.iter().find(|node| node.found < node.needed);
    match first.filter(|_| serves && !force) {
        Some(node) => Err(MigrateRefusal::NoRoom {
            pool: survey.migration.old.name.clone(),
            missing,
            needed,
            node: node.node.clone(),
            reason: node.reason.clone().unwrap_or_default(),
        }),
        None => Ok(()),
    }
}

/// Evicts the pods of the old pool, once the operator agrees.
async fn evict(run: &Run<'_>, surveyed: &Surveyed, eviction: &Eviction) -> Result<(), Error> {
    let Some(workloads) = run.datastore.workloads() else { return Err(EvictError::NoKubernetes.into()) };
    run.operator.show(Proposal::Migration(surveyed)).map_err(Error::showing)?;
    let pods = surveyed.survey.users.iter().filter(|user| user.kind == UserKind::Pod).count();
    let cluster = crate::scope::guid(run.datastore).await?;
    let question = Question { pods, others: 0, ..run.question_of_lock(&cluster) };
    run.ask(question).await?;

    let evicted = eviction.run(&workloads, surveyed.survey.migration.old.cidr, run.operator).await?;
    run.operator.note(Note::Evicted(evicted));
    Ok(())
}
