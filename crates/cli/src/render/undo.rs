//! What `undo` prints.

use std::io::{self, Write};

use calipam_repair::UndoPlan;
use calipam_repair::journal::Header;
use calipam_workflow::Executed;
use serde::Serialize;

use super::document::{Detail, Document};
use super::plan::ShownExecution;
use super::table::{Align, Grid, Page};
use super::text::{count, escape};

/// An undo as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    /// The run that is undone.
    command: String,
    started_at: String,
    cluster: String,
    location: String,
    restored: Vec<Restored>,
    skipped: Vec<NotRestored>,
    /// Objects that are as they were before the run.
    already: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<ShownExecution>,
}

/// An object that is restored.
#[derive(Debug, Serialize)]
struct Restored {
    object: String,
    action: &'static str,
    reason: String,
}

/// Objects that stay as they are.
#[derive(Debug, Serialize)]
struct NotRestored {
    objects: Vec<String>,
    reason: String,
}

/// What is undone or, where it was carried out, what became of it.
pub(crate) struct UndoDocument<'a> {
    pub header: &'a Header,
    pub plan: &'a UndoPlan,
    pub run: Option<&'a Executed>,
}

impl Document for UndoDocument<'_> {
    fn kind(&self) -> &'static str {
        "UndoPlan"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        match self.run {
            Some(run) => writeln!(out, "{}", ShownExecution::new(run).summary()),
            None => tables(&shown(self), detail, page, out),
        }
    }

    fn schema(&self) -> impl Serialize {
        shown(self)
    }
}

fn shown(undo: &UndoDocument<'_>) -> Shown {
    let UndoDocument { header, plan, run } = undo;
    let restored = plan.steps().iter().flat_map(|step| {
        step.objects.iter().map(|object| Restored {
            object: object.key.to_string(),
            action: match (&object.before, &object.left) {
                (None, _) => "delete",
                (Some(_), None) => "create",
                (Some(_), Some(_)) => "restore",
            },
            reason: step.reason.clone(),
        })
    });
    let skipped = plan.skipped().iter().map(|skipped| NotRestored {
        objects: skipped.keys.iter().map(ToString::to_string).collect(),
        reason: skipped.reason.clone(),
    });
    Shown {
        command: header.command.clone(),
        started_at: header.started_at.clone(),
        cluster: header.cluster.clone(),
        location: header.location.clone(),
        restored: restored.collect(),
        skipped: skipped.collect(),
        already: plan.already(),
        execution: run.map(ShownExecution::new),
    }
}

fn tables(shown: &Shown, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", escape(&format!("Undoing `{}` of {}", shown.command, shown.started_at)))?;
    if !shown.restored.is_empty() {
        let columns = [("ACTION", Align::Left), ("OBJECT", Align::Left), ("WAS WRITTEN FOR", Align::Left)];
        let mut grid = Grid::new(page, detail, &columns);
        for object in &shown.restored {
            grid.row([object.action, &object.object, &object.reason]);
        }
        grid.write(out)?;
        writeln!(out)?;
    }
    if !shown.skipped.is_empty() {
        let mut grid = Grid::new(page, detail, &[("OBJECT", Align::Left), ("REASON", Align::Left)]);
        for skipped in &shown.skipped {
            grid.row([skipped.objects.join(", "), skipped.reason.clone()]);
        }
        grid.write(out)?;
        writeln!(out)?;
    }
    if shown.restored.is_empty() && shown.skipped.is_empty() {
        return writeln!(out, "Nothing to restore: everything is as it was before that run");
    }
    if shown.already > 0 {
        writeln!(out, "{} as before that run already", count(shown.already, "object is", "objects are"))?;
    }
    let objects = count(shown.restored.len(), "object", "objects");
    match shown.skipped.len() {
        0 => writeln!(out, "{objects} to restore"),
        skipped => writeln!(out, "{objects} to restore; {} skipped", count(skipped, "step", "steps")),
    }
}
