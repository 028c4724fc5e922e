//! `undo`.

use calipam_repair::UndoPlan;
use calipam_repair::journal::{Recorded, settle};

use super::repair::{agree, brake, carry_out_undo, outcome, restore_left_lock, will_ask};
use crate::args::{Global, UndoArgs};
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::{connect, render};

/// Reads a journal, shows what it brings back, asks, and brings it back.
///
/// # Errors
/// Where the journal or the datastore cannot be read or written, or nobody agrees.
pub fn run(args: &UndoArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let recorded = Recorded::read(&args.run)?;
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        if !datastore.is_live() {
            return Err(Failure::usage("a file is never written; `undo` needs the datastore itself"));
        }
        let header = recorded.header.clone();
        let plan = UndoPlan::new(&settle(recorded, &datastore).await?.0)?;
        let skipped = !plan.skipped().is_empty();
        let left = if skipped { Outcome::Refused } else { Outcome::Clean };
        if args.dry_run || plan.steps().is_empty() {
            render::undo::print(&header, &plan, None, console)?;
            return Ok(left);
        }
        render::undo::preview(&header, &plan, will_ask(&args.writing), console)?;
        brake(plan.steps().iter().map(|step| step.objects.len()).sum(), &args.writing)?;
        datastore.may_write(args.writing.lock).await?;
        restore_left_lock(&datastore, plan.cluster(), &args.writing, console).await?;
        let consent = agree(plan.question(&datastore.location()), &args.writing, console).await?;
        let done = carry_out_undo(&datastore, &plan, consent, &args.writing, console).await?;
        render::undo::print(&header, &plan, Some(&done), console)?;
        outcome(done, skipped, console)
    })
}
