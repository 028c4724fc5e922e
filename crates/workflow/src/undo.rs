//! `undo`: restores what a run changed, using its journal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use calipam_check::{Context, Options};
use calipam_datastore::RECORDS;
use calipam_datastore::write::ProposedChange;
use calipam_files::regular;
use calipam_model::hint::Hint;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Source;
use calipam_model::words::{quoted, thousands};
use calipam_plan::migrate;
use calipam_repair::journal::{Header, Recorded, later, resolve};
use calipam_repair::{LockState, StaleLock, UndoPlan, UndoStep, stale_lock, undo as execute};

use crate::failure::{Failure, Result};
use crate::operator::{Access, Event, Operator, Proposal};
use crate::read::read;
use crate::run::{Intent, Run, Writing};
use crate::write::Executed;

/// The result of an undo.
pub struct Undone {
    /// The run that is undone.
    pub header: Header,
    pub plan: UndoPlan,
    /// True if the run finished, so its journal is complete.
    pub ended: bool,
    /// The maximum number of changes, if a plan that was only printed exceeds it.
    pub exceeds: Option<usize>,
    /// `None` if the undo was only planned, or had no objects to restore.
    pub run: Option<Executed>,
    /// True if a lock that a killed run left behind is still in place.
    pub stays_locked: bool,
}

impl Undone {
    /// True if something is not restored even after all planned steps: the journal of the run is incomplete, the plan has
    /// too many changes or skips objects, or the lock of a killed run is still in place.
    pub fn leaves_something(&self) -> bool {
        let is_limited = self.exceeds.is_some();
        let skips_objects = !self.plan.skipped().is_empty();
        !self.ended || is_limited || skips_objects || self.stays_locked
    }
}

/// The kinds of objects that an undo writes.
fn sources(plan: &UndoPlan) -> Vec<Source> {
    let mut has_records = false;
    let mut has_pools = false;
    let mut has_config = false;
    for object in plan.written() {
        match object.key {
            Key::Block(_) | Key::Handle(_) | Key::Affinity(_) => has_records = true,
            Key::Pool(_) => has_pools = true,
            Key::IpamConfig => has_config = true,
            _ => {}
        }
    }

    let mut sources = Vec::new();
    if has_records {
        sources.extend(RECORDS);
    }
    if has_pools {
        sources.push(Source::Pools);
    }
    if has_config {
        sources.push(Source::IpamConfig);
    }
    sources
}

/// Returns the lock that this journal's run left behind, if an undo can remove it. Warns if the datastore is locked.
async fn lock_of_run(run: &Run<'_>, journal: &Path, cluster: &str) -> Result<Option<StaleLock>> {
    let Some(lock) = stale_lock(journal, cluster) else {
        return Ok(None);
    };
    match lock.recheck(run.access.datastore).await? {
        LockState::AsItWas => {
            run.access.operator.warn(format!(
                "the run did not finish and left the datastore locked: no pod starts or stops; undoing it restores \
                 `datastoreReady` (journal {})",
                quoted(&lock.journal)
            ));
            Ok(Some(lock))
        }
        LockState::Unclear => {
            run.warn_of_unclear(&lock);
            Ok(None)
        }
        LockState::Unlocked => Ok(None),
    }
}

/// Warns of objects that a late write of the run may still create.
fn warn_of_late_writes(plan: &UndoPlan, operator: &dyn Operator) {
    let [first, others @ ..] = plan.late() else {
        return;
    };
    let mut objects = first.named().to_string();
    if !others.is_empty() {
        objects = format!("{objects} and {} more", thousands(others.len()));
    }
    operator.warn(format!(
        "that run got no answer to its request to create {objects}, which can still take effect: undo the run again \
         a minute later"
    ));
}

/// Excludes the pools from the undo if `migrate` would refuse the result: a family without an enabled pool, too few
/// addresses for the users, or a block size that does not fit existing blocks.
async fn check_pools(access: Access<'_>, mut plan: UndoPlan) -> Result<UndoPlan> {
    if !plan.steps().iter().any(UndoStep::writes_pools) {
        return Ok(plan);
    }
    let mut seen = read(access).await?;
    let before: Vec<Pool> = seen.pools.iter().map(|pool| pool.value.clone()).collect();
    let after = plan.pools_after(before.clone());
    if let Err(refusal) = migrate::check_pools(&seen, &after) {
        plan.keep_pools(&refusal.to_string());
        return Ok(plan);
    }

    // Only the users of a pool that is enabled now need other addresses.
    let Some(first_disabled) = pool_disabled_by_undo(&before, &after) else {
        return Ok(plan);
    };
    let users = migrate::leaving(&Context::new(&seen, &Options::default()).index, &after);
    let capacity = migrate::capacity_in(&mut seen, after.clone(), &users);
    if let Err(refusal) = migrate::require_room(&first_disabled.name, &capacity) {
        plan.keep_pools(&refusal.to_string());
        return Ok(plan);
    }

    // The undo depends on the pools that stay as they are.
    let stay = before
        .iter()
        .filter(|pool| pool.is_enabled() && after.contains(pool));
    let keys = stay.map(|pool| Key::Pool(pool.name.clone()));
    let keys: Vec<Key> = keys.take(migrate::MOST_COMPARED).collect();
    let stored = access.datastore.stored(&keys).await?;
    let mut unchanged = Vec::new();
    for (key, stored) in keys.into_iter().zip(stored) {
        if let Some(stored) = stored {
            unchanged.push((key, stored));
        }
    }
    plan.depend_on(&unchanged);
    Ok(plan)
}

/// Returns the first enabled pool that is not enabled afterwards.
fn pool_disabled_by_undo<'p>(before: &'p [Pool], after: &[Pool]) -> Option<&'p Pool> {
    let enabled = after.iter().filter(|pool| pool.is_enabled());
    let enabled_after: BTreeSet<&str> = enabled.map(|pool| pool.name.as_str()).collect();
    let mut pools = before.iter();
    pools.find(|pool| pool.is_enabled() && !enabled_after.contains(pool.name.as_str()))
}

/// True if pools may remain as the run wrote them: the pools of a split overlap until the split is undone. `run` is the
/// execution of the undo; `None` if the plan has no steps.
fn leaves_pools(plan: &UndoPlan, run: Option<&Executed>) -> bool {
    let is_pool = |key: &Key| matches!(key, Key::Pool(_));
    let mut skipped = plan.skipped().iter().flat_map(|skipped| &skipped.keys);
    if skipped.any(is_pool) {
        return true;
    }
    if run.is_none_or(|run| run.execution.is_complete()) {
        return false;
    }
    // A run that stopped half-way may have left any of its steps.
    let mut objects = plan.steps().iter().flat_map(|step| &step.objects);
    objects.any(|object| is_pool(&object.key))
}

/// Warns that the datastore stays locked, because no pod may start while pools overlap.
fn warn_that_lock_stays(lock: &StaleLock, operator: &dyn Operator) {
    operator.warn(
        "the datastore stays locked: that run's changes of pools are not undone, so pools can overlap".into(),
    );
    let Hint { text, calls } = lock.hint();
    operator.tell(Event::Hint(Hint::new(
        format!("once the reason is gone: {text}"),
        calls,
    )));
}

/// Plans the inverse of a run from its journal. If some objects have changed since, takes later runs into account.
async fn plan_inverse(
    access: Access<'_>,
    journal: &Path,
    recorded: &Recorded,
    journals: Option<PathBuf>,
) -> Result<UndoPlan> {
    let mut plan = UndoPlan::new(recorded)?.read(access.datastore).await?;
    if !plan.skipped().is_empty() {
        // Later runs may have changed the objects, and later undos may have restored them.
        let mut folders = Vec::new();
        folders.extend(journals);
        folders.push(regular::folder_of(journal).to_owned());
        folders.dedup();
        plan = UndoPlan::new(recorded)?
            .after(&later(&folders, recorded))
            .read(access.datastore)
            .await?;
    }
    check_pools(access, plan).await
}

/// Ends an undo that has nothing to restore: even a run that was killed before its first change leaves a lock, which is
/// removed if the operator agrees. Returns true if a lock that a killed run left behind stays.
async fn undo_nothing(run: &Run<'_>, plan: &UndoPlan, lock: Option<StaleLock>) -> Result<bool> {
    let operator = run.access.operator;
    let Some(lock) = lock else {
        return run.restore_stale_locks(plan.cluster()).await;
    };
    let not_executed = None;
    if leaves_pools(plan, not_executed) {
        warn_that_lock_stays(&lock, operator);
        return Ok(true);
    }

    let consent = run.ask(plan.cluster(), ProposedChange::Unlock).await?;
    let is_unlocked = run.remove_lock(&lock, consent).await?;
    if plan.skipped().is_empty() {
        operator.tell(Event::Said("That run changed nothing else."));
    }
    Ok(!is_unlocked)
}

/// Plans the inverse of a run, shows the plan, asks the operator, and restores the earlier objects. Finally, removes
/// the lock that the run left. `journals` is the folder of all journals, if the environment names one.
pub async fn undo(
    access: Access<'_>,
    journal: &Path,
    recorded: Recorded,
    journals: Option<PathBuf>,
    intent: &Intent,
) -> Result<Undone> {
    if !access.datastore.is_live() {
        return Err(Failure::not_live("an undo"));
    }
    let mut run = Run::new(access, intent);
    let header = recorded.header.clone();
    let ended = recorded.ended;
    if !ended {
        access.operator.warn(
                "the run of this journal did not finish: anything it did after the last line of the journal is not undone".into(),
            );
    }
    let (recorded, _) = resolve(recorded, access.datastore).await?;
    let plan = plan_inverse(access, journal, &recorded, journals).await?;
    warn_of_late_writes(&plan, access.operator);
    let changes = plan.written().count();
    let lock = if recorded.lock.is_some() {
        lock_of_run(&run, journal, plan.cluster()).await?
    } else {
        run.without_lock = Some(journal.to_owned());
        None
    };

    let has_steps = !plan.steps().is_empty();
    let Some(writing) = run.writing().filter(|_| has_steps) else {
        let mut stays_locked = false;
        if run.writing().is_some() {
            stays_locked = undo_nothing(&run, &plan, lock).await?;
        }
        return Ok(Undone {
            header,
            plan,
            ended,
            exceeds: run.exceeds(changes),
            run: None,
            stays_locked,
        });
    };

    access.operator.show(Proposal::Undo(&header, &plan))?;
    let (executed, stays_locked) = restore_objects(&run, writing, &plan, lock).await?;
    Ok(Undone {
        header,
        plan,
        ended,
        exceeds: None,
        run: Some(executed),
        stays_locked,
    })
}

/// Asks the operator, restores the objects of a plan, and removes the lock that the undone run left. Returns true as
/// well if a lock that a killed run left behind stays.
async fn restore_objects(
    run: &Run<'_>,
    writing: &Writing,
    plan: &UndoPlan,
    lock: Option<StaleLock>,
) -> Result<(Executed, bool)> {
    let access = run.access;
    let cluster = plan.cluster();
    let sources = sources(plan);
    let changes = plan.written().count();
    let mut stays_locked = false;
    if lock.is_some() {
        // A datastore has only one lock, so no other run can have left one.
        let locking = Writing {
            lock: true,
            ..writing.clone()
        };
        run.check(&locking, cluster, &sources, changes).await?;
    } else {
        let passed = run.preflight(writing, cluster, &sources, changes).await?;
        stays_locked = passed.stays_locked;
    }

    let mut counts = plan.counts();
    if lock.is_some() {
        counts.others += 1;
    }
    let consent = run.ask(cluster, ProposedChange::Objects(counts)).await?;
    let consent_to_unlock = consent.clone();

    let work = async |options| execute(access.datastore, plan, consent, &options).await;
    // The datastore is already locked if the run left it locked.
    let writing = Writing {
        lock: writing.lock && lock.is_none(),
        ..writing.clone()
    };
    let executed = run.execute(&writing, cluster, work).await?;

    if let Some(lock) = lock {
        if leaves_pools(plan, Some(&executed)) {
            warn_that_lock_stays(&lock, access.operator);
            stays_locked = true;
        } else {
            stays_locked = !run.remove_lock(&lock, consent_to_unlock).await?;
        }
    }
    Ok((executed, stays_locked))
}
