//! `undo`: from the journal of a run to what was restored.

use calipam_datastore::Datastore;
use calipam_datastore::write::RECORDS;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;
use calipam_repair::journal::{Header, Recorded, resolve};
use calipam_repair::{UndoPlan, undo as execute};

use crate::error::Error;
use crate::operator::{Note, Operator, Pending, Proposal};
use crate::run::{Intent, Run};
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
    /// `None` where nothing was to be written.
    pub run: Option<Executed>,
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

/// Plans the inverse of a run, shows it, asks, and restores what was there.
pub fn undo<'a>(
    datastore: &'a Datastore,
    recorded: Recorded,
    intent: &'a Intent,
    operator: &'a dyn Operator,
) -> Pending<'a, Result<Undone, Error>> {
    Box::pin(async move {
        if !datastore.is_live() {
            return Err(Error::NotLive("an undo"));
        }
        let run = Run { datastore, intent, operator };
        let (header, ended) = (recorded.header.clone(), recorded.ended);
        if !ended {
            operator.note(Note::JournalWithoutEnd);
        }
        let plan = UndoPlan::new(&resolve(recorded, datastore).await?.0)?.look(datastore).await?;
        let changes = plan.steps().iter().map(|step| step.objects.len()).sum();
        let Some(writing) = run.writing().filter(|_| !plan.steps().is_empty()) else {
            // A run that was killed before its first change has left a lock all the same.
            if let Some(writing) = run.writing() {
                run.restore_stale_locks(writing, plan.cluster()).await?;
            }
            return Ok(Undone { header, plan, ended, exceeds: run.exceeds(changes), run: None });
        };

        operator.show(Proposal::Undo(&header, &plan)).map_err(Error::showing)?;
        run.preflight(writing, plan.cluster(), &sources(&plan), changes).await?;
        let consent = run.ask(plan.question(&datastore.location())).await?;

        let work = async |options| execute(datastore, &plan, consent, &options).await;
        let executed = run.execute(writing, plan.cluster(), work).await?;
        Ok(Undone { header, plan, ended, exceeds: None, run: Some(executed) })
    })
}
