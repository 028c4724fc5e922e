//! `undo`: from the journal of a run to what was restored.

use calipam_datastore::Datastore;
use calipam_datastore::write::RECORDS;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;
use calipam_repair::journal::{Header, Recorded, resolve};
use calipam_repair::{UndoPlan, undo as execute};

use crate::error::Error;
use crate::operator::{Note, Operator, Proposal};
use crate::write::{Run, Writing, ask, check_limit, restore_stale_locks, run};

/// What an undo came to.
pub struct Undone {
    /// The run that is undone.
    pub header: Header,
    pub plan: UndoPlan,
    /// The run came to its end by itself, so that its journal is whole.
    pub ended: bool,
    /// `None` where nothing was to be written.
    pub run: Option<Run>,
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

/// Plans the inverse of a run, shows it, asks, and restores what was there. Without `writing` it only plans.
///
/// # Errors
/// Where the datastore cannot be read or written, or the operator does not agree.
pub async fn undo(
    datastore: &Datastore,
    recorded: Recorded,
    writing: Option<&Writing>,
    operator: &impl Operator,
) -> Result<Undone, Error> {
    if !datastore.is_live() {
        return Err(Error::NotLive);
    }
    let (header, ended) = (recorded.header.clone(), recorded.ended);
    if !ended {
        operator.note(Note::JournalWithoutEnd);
    }
    let plan = UndoPlan::new(&resolve(recorded, datastore).await?.0)?.look(datastore).await?;
    let Some(writing) = writing.filter(|_| !plan.steps().is_empty()) else {
        return Ok(Undone { header, plan, ended, run: None });
    };

    operator.show(Proposal::Undo(&header, &plan)).map_err(Error::showing)?;
    check_limit(plan.steps().iter().map(|step| step.objects.len()).sum(), writing)?;
    datastore.may_write(&sources(&plan), writing.lock).await?;
    restore_stale_locks(datastore, plan.cluster(), writing, operator).await?;
    let consent = ask(plan.question(&datastore.location()), operator).await?;

    let run = run(plan.cluster(), writing, operator, async |options| {
        execute(datastore, &plan, consent, &options).await
    })
    .await?;
    Ok(Undone { header, plan, ended, run: Some(run) })
}
