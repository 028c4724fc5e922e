//! The code that all commands that write have in common.

use calipam_model::hint::{Call, Hint};
use calipam_plan::{PlanKind, PlanSummary, Refused};
use calipam_repair::RepairError;
use calipam_workflow::{Access, Executed, Repaired};

use crate::args::{Global, WritingArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{self, Failure, Outcome, Result};
use crate::format::Format;
use crate::operator::Person;
use crate::render::document::Document;
use crate::render::plan::{PlanDocument, fits};
use crate::render::table::FEW;
use crate::render::text::{count, quoted, thousands};
use crate::{hints, rerun};

/// The number of subjects that warnings name if there are more than [`FEW`], so that the warnings are not as long as
/// the document.
const NAMED_OF_MANY: usize = 3;

/// Connects, runs `work` and prints its result. `dry_run` is true if only the plan was requested. `refusal_of_file`
/// is the failure to return, before `work`, if the datastore is a file and not only the plan was requested; `None` if a
/// plan for a file is useful even then.
pub(super) fn run(
    writing: &WritingArgs,
    dry_run: bool,
    refusal_of_file: Option<Failure>,
    call: (&Global, &Console),
    work: impl AsyncFnOnce(Access<'_>) -> Result<Repaired>,
) -> Result<Outcome> {
    let (global, console) = call;
    connect::with_person(global, &Person::new(console, writing.yes), async |access| {
        let is_live = access.datastore.is_live();
        if let Some(refusal) = refusal_of_file
            && !is_live
            && !dry_run
        {
            return Err(refusal);
        }
        print_repaired(work(access).await?, dry_run, is_live, console)
    })
}

/// Creates the failure for a write to a file, with a hint to make only a plan from that file.
pub(super) fn not_live(what: &str) -> Failure {
    Failure::not_live(what).hint(Hint::new("plan on it with {}", [Call::DryRun]))
}

/// Prints the result of a command that writes. `dry_run` is true if only the plan was requested.
fn print_repaired(repaired: Repaired, dry_run: bool, is_live: bool, console: &Console) -> Result<Outcome> {
    let Repaired { plan, run, .. } = &repaired;
    let is_plan_empty = plan.changes.is_empty() && plan.skipped.is_empty();
    if !is_plan_empty || console.prints_empty_results() {
        let document = PlanDocument::new(plan, run.as_ref());
        print(plan, run.is_some(), &document, console)?;
    }
    print_outcome(repaired, dry_run, is_live, console)
}

/// Prints the messages that follow the document, and returns the outcome. `dry_run` is true if only the plan was
/// requested.
pub(super) fn print_outcome(
    repaired: Repaired,
    dry_run: bool,
    is_live: bool,
    console: &Console,
) -> Result<Outcome> {
    let is_refused = repaired.exceeds.is_some() || repaired.refusal.is_some();
    if repaired.run.is_none() {
        print_why_not_written(&repaired.plan, dry_run, is_refused, is_live, console);
    }
    if let Some(limit) = repaired.exceeds {
        warn_of_limit(limit, console);
    }
    if let Some(refusal) = &repaired.refusal {
        warn_of_refusal(refusal, repaired.plan.kind, console);
    }
    // Not all was done that was asked for, even if every step of the plan was.
    let is_partial = is_refused || !repaired.plan.skipped.is_empty() || repaired.stays_locked;
    print_run(repaired.run, is_partial, console)
}

/// Prints a plan's document. Before it, prints the plan's warnings if `was_run` is false. A run shows them itself
/// before it writes.
pub(super) fn print(
    plan: &PlanSummary,
    was_run: bool,
    document: &impl Document,
    console: &Console,
) -> Result<()> {
    if !was_run && console.format.is_for_people() {
        for warning in &plan.warnings {
            console.warn(&hints::text(warning));
        }
    }
    console.print(document)
}

/// Prints the reason why a plan was not carried out, and the next step. `is_refused` is true if the plan would be
/// refused, for which the caller prints the reason.
fn print_why_not_written(
    plan: &PlanSummary,
    dry_run: bool,
    is_refused: bool,
    is_live: bool,
    console: &Console,
) {
    if !fits(plan) && console.format == Format::Table {
        console.hint(&format!("{} lists everything", rerun::in_wide_form()));
    }
    // Without changes, there is nothing to carry out.
    if plan.changes.is_empty() {
        return;
    }
    if !is_live {
        console.warn(
            "a file is never changed: this is what would be done to the cluster that its data came from",
        );
    } else if dry_run {
        console.info("dry run: nothing was changed");
        if !is_refused {
            console.hint(&format!("{} carries it out", writing_call(plan.kind)));
        }
    }
}

/// Formats this call, a dry run, as one that writes.
fn writing_call(kind: PlanKind) -> String {
    if needs_apply(kind) {
        rerun::replacing("dry_run", &["--apply"])
    } else {
        rerun::without("dry_run")
    }
}

/// True for the commands that only plan without `--apply`.
fn needs_apply(kind: PlanKind) -> bool {
    matches!(kind, PlanKind::Rebuild | PlanKind::Migrate)
}

/// Warns that a printed plan would be refused, with the sentence and hint of the refusal.
fn warn_of_refusal(refusal: &Refused, kind: PlanKind, console: &Console) {
    let refused = if needs_apply(kind) {
        "`--apply`"
    } else {
        "the plan"
    };
    console.warn(&format!("{refused} would be refused: {refusal}"));
    if let Some(hint) = &refusal.hint {
        console.hint(&hints::text(hint));
    }
}

/// Warns that a printed plan would be refused.
pub(crate) fn warn_of_limit(limit: usize, console: &Console) {
    console.warn(&format!(
        "the plan makes more changes than --max-changes {limit}: it would be refused"
    ));
}

/// Warns of each subject that was left as it is, such as `not done: …`. If there are many, names only the first of
/// them, and the number of the others.
pub(crate) fn warn_of_each(problem: &str, subjects: Vec<String>, console: &Console) {
    let number = subjects.len();
    let is_short = number <= FEW;
    let named = if is_short { number } else { NAMED_OF_MANY };
    for subject in &subjects[..named] {
        console.warn(&format!("{problem}: {subject}"));
    }
    if !is_short {
        let others = thousands(number - named);
        console.warn(&format!(
            "{problem}: {others} more, which the output of `-o json` lists"
        ));
    }
}

/// Prints the warnings of a run, and returns its outcome or failure. `is_partial` is true if something is left to do
/// even after a complete run.
pub(crate) fn print_run(run: Option<Executed>, is_partial: bool, console: &Console) -> Result<Outcome> {
    let as_planned = if is_partial {
        Outcome::Refused
    } else {
        Outcome::Clean
    };
    let Some(Executed { execution, journal }) = run else {
        return Ok(as_planned);
    };

    // This comes first because no pod starts or stops while the datastore is locked.
    if let Some(error) = &execution.lock_left {
        console.warn(&error.to_string());
        if let Some(hint) = error.hint() {
            console.hint(&hints::text(&hint));
        }
    }
    for (journal, reason) in &execution.passed_over {
        console.warn(&format!(
            "the journal {} was skipped, although its run did not finish: {reason}",
            quoted(journal)
        ));
    }

    let mut not_done = Vec::new();
    for conflict in &execution.conflicts {
        not_done.push(format!("{}: {}", conflict.what, conflict.reason));
    }
    warn_of_each("not done", not_done, console);
    if execution.not_started > 0 {
        console.warn(&format!(
            "{} not started",
            count(execution.not_started, "step was", "steps were")
        ));
    }
    if execution.open_intents > 0 {
        let writes = count(execution.open_intents as usize, "write was", "writes were");
        console.warn(&format!(
            "{writes} not answered and may have been made; the journal shows which"
        ));
    }

    let is_unanswered = execution.failure.as_ref().is_some_and(RepairError::is_unanswered);
    // After an interrupt, the run gives up on a server that does not answer at once, so the server may well answer.
    if execution.was_stopped() || execution.interrupted && is_unanswered {
        console.hint("to go on, run the command again");
    } else if is_unanswered {
        console.hint("to go on, run the command again once the datastore answers");
    }
    if execution.may_have_written() {
        // An undo needs the journal, so its path is printed even with `--quiet`.
        if console.quiet {
            console.say(&format!("journal: {}", quoted(&journal)));
        }
        let undo = hints::command(&["undo", &journal.to_string_lossy()]);
        console.hint(&format!("to restore what was there: {undo}"));
    }

    let is_complete = execution.is_complete();
    let was_stopped = execution.was_stopped();
    if execution.interrupted && is_unanswered {
        return Err(exit::interrupted());
    }
    if let Some(error) = execution.failure.or(execution.lock_left) {
        return Err(error.into());
    }
    if was_stopped {
        return Err(exit::interrupted());
    }
    Ok(if is_complete { as_planned } else { Outcome::Refused })
}
