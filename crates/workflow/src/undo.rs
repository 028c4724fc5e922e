//! `undo`: restores what a run changed, using its journal.

use std::path::{Path, PathBuf};

use calipam_check::{Context, Options};
use calipam_datastore::RECORDS;
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
use crate::operator::{Access, Event, Proposal};
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
    let keys = || plan.written().map(|object| &object.key);
    let has = |wanted: fn(&Key) -> bool| keys().any(wanted);
    let mut sources = Vec::new();
    if has(|key| matches!(key, Key::Block(_) | Key::Handle(_) | Key::Affinity(_))) {
        sources.extend(RECORDS);
    }

    if has(|key| matches!(key, Key::Pool(_))) {
        sources.push(Source::Pools);
    }
    if has(|key| matches!(key, Key::IpamConfig)) {
        sources.push(Source::IpamConfig);
    }

    sources
}

/// Returns the lock that this journal's run left behind, if an undo can remove it. Warns if the datastore is locked.
async fn lock_of_run(run: &Run<'_>, journal: &Path, cluster: &str) -> Result<Option<StaleLock>> {
    let Some(lock) = stale_lock(journal, cluster) else {
        return Ok(None);
    };
    let now = lock.recheck(run.access.datastore).await?;
    match now {
        LockState::AsItWas => run.access.operator.warn(format!(
            "the run did not finish and left the datastore locked: no pod starts or stops; undoing it restores \
             `datastoreReady` (journal {})",
            quoted(&lock.journal)
        )),
        LockState::Unclear => run.warn_of_unclear(&lock),
        LockState::Unlocked => {}
    }
    Ok((now == LockState::AsItWas).then_some(lock))
}

/// Names the objects that a late write of the run may still create.
fn late(plan: &UndoPlan) -> Option<String> {
    let [first, others @ ..] = plan.late() else {
        return None;
    };
    let objects = match others.len() {
        0 => first.named().to_string(),
        more => format!("{} and {} more", first.named(), thousands(more)),
    };
    Some(format!(
        "that run got no answer to its request to create {objects}, which can still take effect: undo the run again \
         a minute later"
    ))
}

/// The maximum number of pools that an undo requires to be unchanged.
const MOST_COMPARED: usize = 32;

/// Excludes the pools from the undo if `migrate` would refuse the result: a family without an enabled pool, too few
/// addresses for the users, or a block size that does not fit existing blocks.
async fn check_pools(access: Access<'_>, mut plan: UndoPlan) -> Result<UndoPlan> {
    if !plan.steps().iter().any(UndoStep::writes_pools) {
        return Ok(plan);
    }
    let mut seen = read(access).await?;
    let before: Vec<Pool> = seen.pools.iter().map(|pool| pool.value.clone()).collect();
    let after = plan.pools_after(before.clone());
    if let Err(refusal) = migrate::may_become(&seen, &after) {
        plan.keep_pools(&refusal.to_string());
        return Ok(plan);
    }

    // Only the users of a pool that is enabled now need other addresses.
    let is_enabled_after = |pool: &Pool| {
        let mut after = after.iter();
        after.any(|other| other.name == pool.name && other.is_enabled())
    };
    let mut enabled = before.iter().filter(|pool| pool.is_enabled());
    let Some(first_disabled) = enabled.find(|pool| !is_enabled_after(pool)) else {
        return Ok(plan);
    };
    let users = migrate::leaving(&Context::new(&seen, &Options::default()).index, &after);
    let capacity = migrate::capacity_in(&mut seen, after.clone(), &users);
    if let Err(refusal) = migrate::has_room(&first_disabled.name, &capacity) {
        plan.keep_pools(&refusal.to_string());
        return Ok(plan);
    }

    // The undo depends on the pools that stay as they are.
    let mut keys: Vec<Key> = Vec::new();
    for pool in &before {
        if pool.is_enabled() && after.contains(pool) && keys.len() < MOST_COMPARED {
            keys.push(Key::Pool(pool.name.clone()));
        }
    }
    let stored = access.datastore.stored(&keys).await?;
    let mut others = Vec::new();
    for (key, stored) in keys.into_iter().zip(stored) {
        if let Some(stored) = stored {
            others.push((key, stored));
        }
    }
    plan.depend_on(&others);
    Ok(plan)
}

/// True if pools may remain as the run wrote them: the pools of a split overlap until the split is undone.
fn leaves_pools(plan: &UndoPlan, run: Option<&Executed>) -> bool {
    let is_pool = |key: &Key| matches!(key, Key::Pool(_));
    let mut skipped = plan.skipped().iter().flat_map(|skipped| &skipped.keys);
    if skipped.any(is_pool) {
        return true;
    }
    let is_complete = run.is_none_or(|run| run.execution.is_complete());
    let mut objects = plan.steps().iter().flat_map(|step| &step.objects);
    !is_complete && objects.any(|object| is_pool(&object.key))
}

/// Leaves the datastore locked, since no pod may start while pools overlap.
fn stays_locked(run: &Run<'_>, lock: &StaleLock) -> bool {
    run.access.operator.warn(
        "the datastore stays locked: that run's changes of pools are not undone, so pools can overlap".into(),
    );
    let Hint { text, calls } = lock.hint();
    run.access.operator.tell(Event::Hint(Hint::new(
        format!("once the reason is gone: {text}"),
        calls,
    )));
    true
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
    let recorded = resolve(recorded, access.datastore).await?.0;
    let mut plan = UndoPlan::new(&recorded)?.read(access.datastore).await?;
    if !plan.skipped().is_empty() {
        // Later runs may have changed the objects, and later undos may have restored them.
        let own = regular::folder_of(journal).to_owned();
        let mut folders: Vec<PathBuf> = journals.iter().cloned().chain([own]).collect();
        folders.dedup();
        plan = UndoPlan::new(&recorded)?
            .after(&later(&folders, &recorded))
            .read(access.datastore)
            .await?;
    }
    let plan = check_pools(access, plan).await?;
    if let Some(late) = late(&plan) {
        access.operator.warn(late);
    }
    let changes = plan.written().count();
    let lock = match recorded.lock {
        Some(_) => lock_of_run(&run, journal, plan.cluster()).await?,
        None => {
            run.without_lock = Some(journal.to_owned());
            None
        }
    };
    let Some(writing) = run.writing().filter(|_| !plan.steps().is_empty()) else {
        // Even a run that was killed before its first change leaves a lock.
        let stays_locked = match (lock, run.writing()) {
            (Some(lock), Some(_)) if leaves_pools(&plan, None) => stays_locked(&run, &lock),
            (Some(lock), Some(_)) => {
                let consent = run.ask(run.question_of_lock(plan.cluster())).await?;
                let stays_locked = run.restore(&lock, consent).await?;
                if plan.skipped().is_empty() {
                    access
                        .operator
                        .tell(Event::Said("That run changed nothing else."));
                }
                stays_locked
            }
            (None, Some(_)) => run.restore_stale_locks(plan.cluster()).await?,
            (_, None) => false,
        };
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
    let mut locked = false;
    let cluster = plan.cluster();
    let sources = sources(&plan);
    match &lock {
        // A datastore has only one lock, so no other one can be left.
        Some(_) => {
            run.check(
                &Writing {
                    lock: true,
                    ..writing.clone()
                },
                cluster,
                &sources,
                changes,
            )
            .await?
        }
        None => {
            locked = run
                .preflight(writing, cluster, &sources, changes)
                .await?
                .stays_locked
        }
    }
    let mut question = plan.question(&access.datastore.location());
    question.others += usize::from(lock.is_some());
    let consent = run.ask(question).await?;

    let agreed = consent.clone();
    let work = async |options| execute(access.datastore, &plan, consent, &options).await;
    // The datastore is already locked if the run left it locked.
    let writing = Writing {
        lock: writing.lock && lock.is_none(),
        ..writing.clone()
    };
    let executed = run.execute(&writing, cluster, work).await?;
    match lock {
        Some(lock) if leaves_pools(&plan, Some(&executed)) => locked = stays_locked(&run, &lock),
        Some(lock) => locked = run.restore(&lock, agreed).await?,
        None => {}
    }
    Ok(Undone {
        header,
        plan,
        ended,
        exceeds: None,
        run: Some(executed),
        stays_locked: locked,
    })
}
