//! Carrying out what was agreed to.

use std::path::PathBuf;
use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question};
use calipam_plan::Plan;
use calipam_repair::{Event, EventFn, Execution, Interrupt, Options, UndoPlan, execute, undo};

use super::journal::{place, restore_left_lock};
use crate::args::WritingArgs;
use crate::connect::Writing;
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::progress::Steps;
use crate::render::text::{count, quoted};

/// A run that came to its end.
pub struct Done {
    /// What it did.
    pub execution: Execution,
    /// Its journal.
    pub journal: PathBuf,
}

/// Asks, and carries out a plan.
///
/// # Errors
/// Where the operator does not agree, or the run cannot begin.
pub async fn carry_out(
    datastore: &Datastore,
    plan: Plan,
    command: &str,
    args: &WritingArgs,
    console: &Console,
) -> Result<Done, Failure> {
    brake(plan.changes().count(), args)?;
    datastore.may_write(args.lock).await?;
    let cluster = plan.cluster.guid.clone();
    restore_left_lock(datastore, &cluster, args, console).await?;
    let totals = plan.totals();
    let question = Question {
        cluster: cluster.clone(),
        location: datastore.location(),
        addresses: totals.addresses,
        blocks: totals.blocks,
        handles: totals.handles,
        others: totals.affinities,
    };
    let consent = super::agree(question, args, console).await?;
    let steps = plan.into_steps();
    run(&cluster, command, args, console, async |options| {
        execute(datastore, &cluster, steps, consent, &options).await
    })
    .await
}

/// Undoes a run.
///
/// # Errors
/// Where the run cannot begin.
pub async fn carry_out_undo(
    datastore: &Datastore,
    plan: &UndoPlan,
    consent: Consent,
    args: &WritingArgs,
    console: &Console,
) -> Result<Done, Failure> {
    run(plan.cluster(), "undo", args, console, async |options| undo(datastore, plan, consent, &options).await)
        .await
}

/// `--max-changes`.
pub fn brake(changes: usize, args: &WritingArgs) -> Result<(), Failure> {
    match args.max_changes {
        Some(most) if changes > most => Err(Failure::Refused {
            message: format!(
                "the plan makes {changes} changes, more than --max-changes {most}; nothing was changed"
            ),
            hint: Some("look at the plan with `--dry-run`".into()),
        }),
        _ => Ok(()),
    }
}

async fn run(
    cluster: &str,
    command: &str,
    args: &WritingArgs,
    console: &Console,
    work: impl AsyncFnOnce(Options) -> Result<Execution, calipam_repair::RepairError>,
) -> Result<Done, Failure> {
    let journal = place(args, cluster)?;
    let writing = Writing::begin();
    let interrupt =
        Interrupt::on_signals().map_err(|error| Failure::Io { doing: "wait for signals".into(), error })?;
    let steps = Arc::new(Steps::start(console, "writing"));
    let shown = Arc::clone(&steps);
    let events: EventFn = Arc::new(move |event| {
        if let Event::Ended { ended, of } = event {
            shown.set(*ended, *of);
        }
    });
    let options =
        Options { command: command.to_owned(), journal: journal.clone(), lock: args.lock, events, interrupt };
    let execution = work(options).await;
    steps.end();
    drop(writing);
    Ok(Done { execution: execution?, journal })
}

/// Says what had changed and what was not done, and how the command ends. `skipped`: the plan left something.
///
/// # Errors
/// Where the run broke off or was interrupted.
pub fn outcome(done: Done, skipped: bool, console: &Console) -> Result<Outcome, Failure> {
    let Done { execution, journal } = done;
    for conflict in &execution.conflicts {
        console.warn(&format!("not done: {}: {}", conflict.what, conflict.reason));
    }
    if execution.not_begun > 0 {
        console.warn(&format!("{} not begun", count(execution.not_begun, "step was", "steps were")));
    }
    if execution.written > 0 {
        console.hint(&format!("to bring back what was there: `calipam undo {}`", quoted(&journal)));
    }
    let complete = execution.is_complete();
    if let Some(error) = execution.broken_off {
        return Err(error.into());
    }
    if execution.interrupted && execution.not_begun > 0 {
        return Err(Failure::Interrupted);
    }
    Ok(if complete && !skipped { Outcome::Clean } else { Outcome::Refused })
}
