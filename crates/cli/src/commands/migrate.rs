//! The `migrate` command.

use calipam_plan::migrate::{Detour, Leg, Migration, Phase};
use calipam_workflow::{MigrateRequest, Migrated};

use super::repair;
use crate::args::{Global, MigrateArgs};
use crate::console::Console;
use crate::exit::{Outcome, Result};
use crate::operator::Person;
use crate::render::migrate::MigrationDocument;
use crate::{connect, hints};

pub(super) fn run(args: &MigrateArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let request = MigrateRequest {
        from: args.from.clone(),
        target: args.target(),
        force: args.force,
        eviction: args.eviction(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent(args.apply.then(|| "migrate --apply".into())),
    };
    connect::with_person(global, &Person::new(console, args.writing.yes), async |access| {
        let Migrated { surveyed, repaired } = calipam_workflow::migrate(access, &request).await?;
        let (phase, migration) = (surveyed.survey.phase, &surveyed.survey.migration);
        let run = repaired.run.as_ref();
        let document = MigrationDocument::new(&surveyed, &repaired.plan, run);
        repair::print(&repaired.plan, run.is_none(), &document, console)?;

        let is_complete = run.is_some_and(|run| run.execution.is_complete());
        let outcome = repair::ended(repaired, !args.apply, true, console)?;
        Ok(next(phase, migration, args.apply, is_complete, outcome, console))
    })
}

/// Prints the next step of the migration. Returns `outcome`, or `Refused` if `--apply` was used in the phase in which
/// the users of addresses move.
fn next(
    phase: Phase,
    migration: &Migration,
    applies: bool,
    is_complete: bool,
    outcome: Outcome,
    console: &Console,
) -> Outcome {
    let old = migration.old.name.as_str();
    let apply = |from: &str| hints::command(&["migrate", "--apply", "--from", from]);
    match phase {
        Phase::Delete
            if is_complete && let Some(Detour { leg: Leg::There, temporary, .. }) = migration.detour() =>
        {
            console.hint(&format!("to move back: {}", apply(&temporary.name)));
        }
        Phase::Delete if is_complete => console.info("the migration is complete"),
        Phase::Move => {
            console.hint(&format!(
                "restart what uses the pool, or evict its pods with {}; {} shows what is left",
                hints::command(&["migrate", "--apply", "--from", old, "--evict"]),
                hints::command(&["migrate", "--from", old])
            ));
            return if applies { Outcome::Refused } else { outcome };
        }
        _ if is_complete => console.hint(&format!("the next phase: {}", apply(old))),
        _ => {}
    }
    outcome
}
