//! What `release` and `rebuild` print: the plan, and what became of it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::ClusterIdentity;
use calipam_plan::{Change, Plan, PlanKind, Skipped, Totals, Verb};
use calipam_repair::Execution;
use serde::Serialize;

use super::table::{Align, Grid};
use super::text::{count, escape, thousands};
use super::{document, header};
use crate::args::Format;
use crate::commands::Done;
use crate::exit::Failure;
use crate::output::Console;

/// So many rows are shown one by one; more are shown as one row for each kind.
const FEW: usize = 25;

/// A plan as it is printed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    #[serde(skip)]
    kind: PlanKind,
    cluster: ClusterIdentity,
    totals: Totals,
    changes: Vec<Change>,
    skipped: Vec<Skipped>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<ShownExecution>,
}

/// What became of a plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownExecution {
    steps: usize,
    written: usize,
    already_done: usize,
    not_begun: usize,
    conflicts: Vec<ShownConflict>,
    interrupted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_off: Option<String>,
    journal: String,
}

/// A step that was not made because something had changed.
#[derive(Clone, Debug, Serialize)]
struct ShownConflict {
    what: String,
    reason: String,
}

impl ShownExecution {
    /// What a run did.
    pub fn of(done: &Done) -> Self {
        let Execution { steps, written, already, conflicts, not_begun, broken_off, interrupted } =
            &done.execution;
        let conflict =
            |c: &calipam_repair::Conflict| ShownConflict { what: c.what.clone(), reason: c.reason.clone() };
        Self {
            steps: *steps,
            written: *written,
            already_done: *already,
            not_begun: *not_begun,
            conflicts: conflicts.iter().map(conflict).collect(),
            interrupted: *interrupted,
            broken_off: broken_off.as_ref().map(ToString::to_string),
            journal: done.journal.display().to_string(),
        }
    }

    /// `Done: 4 of 5 steps; 1 was given up because something had changed`.
    pub fn summary(&self) -> String {
        let done = self.written + self.already_done;
        let mut line = format!("Done: {} of {}", thousands(done), count(self.steps, "step", "steps"));
        if !self.conflicts.is_empty() {
            let given_up = count(self.conflicts.len(), "was", "were");
            line.push_str(&format!("; {given_up} given up because something had changed"));
        }
        if self.not_begun > 0 {
            line.push_str(&format!("; {} not begun", count(self.not_begun, "was", "were")));
        }
        line
    }
}

impl Shown {
    /// What is to be shown of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            kind: plan.kind,
            cluster: plan.cluster.clone(),
            totals: plan.totals(),
            changes: plan.changes().cloned().collect(),
            skipped: plan.skipped.clone(),
            warnings: plan.warnings.clone(),
            execution: None,
        }
    }

    fn document(&self) -> &'static str {
        match self.kind {
            PlanKind::Release => "ReleasePlan",
            PlanKind::Rebuild => "RebuildPlan",
        }
    }

    /// `Plan: 12 addresses in 3 blocks, 12 handles, 1 affinity; 2 skipped`.
    fn summary(&self) -> String {
        if self.changes.is_empty() {
            let skipped = if self.skipped.is_empty() { String::new() } else { self.skipped_text() };
            return format!("Nothing to do{skipped}");
        }
        let Totals { addresses, blocks, handles, affinities, .. } = self.totals;
        let parts = [
            (addresses, count(addresses, "address", "addresses")),
            (blocks, count(blocks, "block", "blocks")),
            (handles, count(handles, "handle", "handles")),
            (affinities, count(affinities, "affinity", "affinities")),
        ];
        let parts: Vec<String> =
            parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
        format!("Plan: {}{}", parts.join(", "), self.skipped_text())
    }

    fn skipped_text(&self) -> String {
        if self.skipped.is_empty() {
            String::new()
        } else {
            format!("; {} skipped", thousands(self.skipped.len()))
        }
    }
}

/// Prints the plan before the operator is asked. YAML and JSON are printed once, at the end: where somebody is
/// `asked`, the plan is a table on stderr meanwhile.
///
/// # Errors
/// Where stdout cannot be written.
pub fn preview(shown: &Shown, asked: bool, console: &Console) -> Result<(), Failure> {
    if console.format.is_table() {
        return print(shown, None, console);
    }
    if asked {
        shown.warnings.iter().for_each(|warning| console.warn(warning));
        let failed = |error| Failure::Io { doing: "show the plan".into(), error };
        let table = Console { format: Format::Table, color: false, ..console.clone() };
        write(shown, &table, &mut io::stderr().lock()).map_err(failed)?;
    }
    Ok(())
}

/// Prints the plan or, where it was carried out, what became of it.
///
/// # Errors
/// Where stdout cannot be written.
pub fn print(shown: &Shown, done: Option<&Done>, console: &Console) -> Result<(), Failure> {
    let execution = done.map(ShownExecution::of);
    if !console.format.is_table() {
        let shown = Shown { execution, ..shown.clone() };
        return console.data(|out| document::write(console.format, shown.document(), &shown, out));
    }
    match execution {
        Some(execution) => console.data(|out| writeln!(out, "{}", execution.summary())),
        None => {
            shown.warnings.iter().for_each(|warning| console.warn(warning));
            console.data(|out| write(shown, console, out))
        }
    }
}

fn write(shown: &Shown, console: &Console, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", header::cluster(&shown.cluster))?;
    if !shown.changes.is_empty() {
        changes(shown, console).write(out)?;
        writeln!(out)?;
    }
    if !shown.skipped.is_empty() {
        skipped(shown, console).write(out)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", escape(&shown.summary()))
}

fn changes(shown: &Shown, console: &Console) -> Grid {
    if console.format == Format::Wide || shown.changes.len() <= FEW {
        let columns = [("ACTION", Align::Left), ("SUBJECT", Align::Left), ("WHY", Align::Left)];
        let mut grid = Grid::new(console, &columns);
        for change in &shown.changes {
            grid.row([change.action.to_string(), change.subject.to_string(), change.detail.clone()]);
        }
        return grid;
    }
    let columns = [("ACTION", Align::Left), ("COUNT", Align::Right), ("FOR EXAMPLE", Align::Left)];
    let mut grid = Grid::new(console, &columns);
    let mut kinds: BTreeMap<Verb, (usize, &Change)> = BTreeMap::new();
    shown.changes.iter().for_each(|change| kinds.entry(change.action).or_insert((0, change)).0 += 1);
    for (action, (number, example)) in kinds {
        let example = format!("{} {}", example.subject, example.detail);
        grid.row([action.to_string(), thousands(number), example]);
    }
    grid
}

fn skipped(shown: &Shown, console: &Console) -> Grid {
    if console.format == Format::Wide || shown.skipped.len() <= FEW {
        let columns = [("SKIPPED", Align::Left), ("REASON", Align::Left), ("DETAIL", Align::Left)];
        let mut grid = Grid::new(console, &columns);
        for skipped in &shown.skipped {
            grid.row([skipped.subject.to_string(), skipped.reason.to_string(), skipped.detail.clone()]);
        }
        return grid;
    }
    let columns = [("SKIPPED BECAUSE", Align::Left), ("COUNT", Align::Right), ("FOR EXAMPLE", Align::Left)];
    let mut grid = Grid::new(console, &columns);
    let mut kinds = BTreeMap::new();
    for skipped in &shown.skipped {
        kinds.entry((skipped.reason, skipped.code)).or_insert((0, skipped)).0 += 1;
    }
    for ((reason, _), (number, example)) in kinds {
        grid.row([reason.to_string(), thousands(number), example.detail.clone()]);
    }
    grid
}

/// Says why a plan was only printed, and what to do next.
pub fn why_not_written(shown: &Shown, asked_for: bool, is_live: bool, console: &Console) {
    if shown.changes.len().max(shown.skipped.len()) > FEW && console.format == Format::Table {
        console.hint("`-o wide` lists everything");
    }
    if shown.changes.is_empty() {
        return;
    }
    if !is_live {
        console.warn(
            "a file is never written: this is what would be done to the cluster that it was taken from",
        );
    } else if asked_for {
        let option = match shown.kind {
            PlanKind::Release => "without `--dry-run` it is carried out",
            PlanKind::Rebuild => "with `--apply` it is carried out",
        };
        console.hint(&format!("nothing was changed; {option}"));
    }
}
