//! `undo`: from the journal of a run to what was restored.

use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::write::RECORDS;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;
use calipam_repair::journal::{Header, Recorded, later, resolve};
use calipam_repair::{LockState, StaleLock, UndoPlan, stale_lock, undo as execute};

use crate::error::Error;
use crate::operator::{Note, Operator, Pending, Proposal};
use crate::preflight::LeftLocks;
use crate::run::{Intent, Run, Writing, folder_of};
use crate::write::Executed;

/// What an undo came to.
pub struct Undone {
    /// The run that is undone.
    pub header: Header,
    pub plan: UndoPlan,
    /// The run came to its end by itself, so that its journal is whole.
    pub ended: bool,
    /// The limit, where a plan that was only printed restores more objects.
    pub exceeds: Option<usize>,
    /// `None` if nothing was to be written.
    pub run: Option<Executed>,
    pub locks: LeftLocks,
}

/// The kinds of objects that an undo writes.
fn sources(plan: &UndoPlan) -> Vec<Source> {
    let keys = || plan.steps().iter().flat_map(|step| &step.objects).map(|object| &object.key);
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

/// The lock that the run of this journal has left, if it can be restored.
async fn lock_of_run(run: &Run<'_>, journal: &Path, cluster: &str) -> Result<Option<StaleLock>, Error> {
    let Some(lock) = stale_lock(journal, cluster) else { return Ok(None) };
    let now = lock.recheck(run.datastore).await?;
    match now {
        LockState::AsItWas => run.operator.note(Note::LockOfRun(&lock)),
        LockState::Unclear => run.operator.note(Note::StaleLock(&lock, now)),
        LockState::Unlocked => {}
    }
    Ok((now == LockState::AsItWas).then_some(lock))
}

/// Plans the inverse of a run, shows it, asks, and restores what was there: last the lock that the run has left. `journals` is
/// the folder of all journals, where the environment names one.
pub fn undo<'a>(
    datastore: &'a Datastore,
    journal: &'a Path,
    recorded: Recorded,
    journals: Option<PathBuf>,
    intent: &'a Intent,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Undone, Error>> {
    Box::pin(async move {
        if !datastore.is_live() {
            return Err(Error::NotLive("an undo"));
        }
        let run = Run::new(datastore, intent, operator);
        let (header, ended) = (recorded.header.clone(), recorded.ended);
        if !ended {
            operator.note(Note::JournalWithoutEnd);
        }
        let recorded = resolve(recorded, datastore).await?.0;
        let mut plan = UndoPlan::new(&recorded)?.read(datastore).await?;
        if !plan.skipped().is_empty() {
            // Runs since may have changed it, and their undo brought it back.
            let mut folders: Vec<PathBuf> = journals.iter().cloned().chain(folder_of(journal)).collect();
            folders.dedup();
            plan = UndoPlan::new(&recorded)?.after(&later(&folders, &recorded)).read(datastore).await?;
        }
        let changes = plan.steps().iter().map(|step| step.objects.len()).sum();
        let lock = lock_of_run(&run, journal, plan.cluster()).await?;
        let Some(writing) = run.writing().filter(|_| !plan.steps().is_empty()) else {
            // A run that was killed before its first change has left a lock anyway.
            let locks = match (lock, run.writing()) {
                (Some(lock), Some(_)) => {
                    let consent = run.ask(run.question_of_lock(plan.cluster())).await?;
                    run.restore(&lock, consent).await?
                }
                (None, Some(writing)) => run.restore_stale_locks(writing, plan.cluster()).await?,
                (_, None) => LeftLocks::Gone,
            };
            return Ok(Undone { header, plan, ended, exceeds: run.exceeds(changes), run: None, locks });
        };

        operator.show(Proposal::Undo(&header, &plan)).map_err(Error::showing)?;
        let mut locks = LeftLocks::Gone;
        let (cluster, sources) = (plan.cluster(), sources(&plan));
        match &lock {
            // No one else can have left it, too.
            Some(_) => {
                run.check(&Writing { lock: true, ..writing.clone() }, cluster, &sources, changes).await?
            }
            None => locks = run.preflight(writing, cluster, &sources, changes).await?.locks,
        }
        let mut question = plan.question(&datastore.location());
        question.others += usize::from(lock.is_some());
        let consent = run.ask(question).await?;

        let agreed = consent.clone();
        let work = async |options| execute(datastore, &plan, consent, &options).await;
        // It is locked already where the run has left it so.
        let writing = Writing { lock: writing.lock && lock.is_none(), ..writing.clone() };
        let executed = run.execute(&writing, cluster, work).await?;
        if let Some(lock) = lock {
            locks = run.restore(&lock, agreed).await?;
        }
        Ok(Undone { header, plan, ended, exceeds: None, run: Some(executed), locks })
    })
}
