//! `undo`.

use calipam_repair::journal::Recorded;

use super::repair;
use crate::args::{Global, UndoArgs};
use crate::connect;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;
use crate::render::undo::UndoDocument;

pub fn run(args: &UndoArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let recorded = Recorded::read(&args.run).map_err(calipam_workflow::Error::from)?;
    let writing = (!args.dry_run).then(|| args.writing.writing("undo".into()));
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let person = Person { console, agrees: args.writing.yes };
        let undone = calipam_workflow::undo(&datastore, recorded, writing.as_ref(), &person).await?;
        let document = UndoDocument { header: &undone.header, plan: &undone.plan, run: undone.run.as_ref() };
        console.print(&document)?;
        if args.dry_run {
            console.tell("dry run: nothing was changed");
        }
        if undone.run.is_some() {
            for skipped in undone.plan.skipped() {
                let keys: Vec<String> = skipped.keys.iter().map(ToString::to_string).collect();
                console.warn(&format!("not undone: {}: {}", keys.join(", "), skipped.reason));
            }
        }
        let is_partial = !undone.ended || !undone.plan.skipped().is_empty();
        repair::outcome(undone.run, is_partial, console)
    })
}
