//! How the commands that write end.

use calipam_workflow::{Repaired, Run};

use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::render::text::{count, quoted};
use crate::{hints, render};

/// Prints what a release or rebuild came to. `planned_only`: the call asked for no more.
pub fn finish(
    repaired: Repaired,
    planned_only: bool,
    is_live: bool,
    console: &Console,
) -> Result<Outcome, Failure> {
    render::plan::print(&repaired, console)?;
    if repaired.run.is_none() {
        render::plan::why_not_written(&repaired.plan, planned_only, is_live, console);
    }
    outcome(repaired.run, !repaired.plan.skipped.is_empty(), console)
}

/// Says what had changed and what was not done. `skipped`: the plan left something as it is.
///
/// # Errors
/// Where the run broke off or was interrupted.
pub fn outcome(run: Option<Run>, skipped: bool, console: &Console) -> Result<Outcome, Failure> {
    let as_planned = if skipped { Outcome::Refused } else { Outcome::Clean };
    let Some(Run { execution, journal }) = run else { return Ok(as_planned) };
    // While the datastore is locked no pod starts or stops: nothing is more urgent.
    if let Some(error) = &execution.lock_left {
        console.warn(&error.to_string());
        hints::repair(error).into_iter().for_each(|hint| console.hint(&hint));
    }
    for (journal, reason) in &execution.passed_over {
        console.warn(&format!(
            "{} is the journal of a run that was killed, and was passed over: {reason}",
            quoted(journal)
        ));
    }
    for conflict in &execution.conflicts {
        console.warn(&format!("not done: {}: {}", conflict.what, conflict.reason));
    }
    if execution.not_begun > 0 {
        console.warn(&format!("{} not begun", count(execution.not_begun, "step was", "steps were")));
    }
    if execution.intents > 0 {
        let undo = hints::command(&["undo", &journal.to_string_lossy()]);
        console.hint(&format!("to restore what was there: {undo}"));
    }

    let complete = execution.is_complete();
    if let Some(error) = execution.broken_off.or(execution.lock_left) {
        return Err(calipam_workflow::Error::from(error).into());
    }
    if execution.interrupted && execution.not_begun > 0 {
        return Err(Failure::Interrupted);
    }
    Ok(if complete { as_planned } else { Outcome::Refused })
}
