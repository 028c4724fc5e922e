//! What `undo` prints.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_model::key::Key;
use calipam_repair::UndoPlan;
use calipam_repair::journal::Header;
use calipam_workflow::Executed;
use serde::Serialize;

use super::document::{Detail, Document};
use super::plan::{FEW, ShownExecution};
use super::table::{Grid, Page};
use super::text::{count, escape, thousands};

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
    #[serde(skip)]
    kind: &'static str,
    action: &'static str,
    reason: String,
}

/// Objects that stay as they are.
#[derive(Debug, Serialize)]
struct NotRestored {
    objects: Vec<String>,
    reason: String,
}

/// What is undone or, if it was carried out, what became of it.
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
            kind: kind(&object.key),
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
        restored(shown, detail, page).write(out)?;
        writeln!(out)?;
    }
    if !shown.skipped.is_empty() {
        skipped(shown, detail, page).write(out)?;
        writeln!(out)?;
    }
    if shown.restored.is_empty() && shown.skipped.is_empty() {
        return writeln!(out, "Nothing to restore: everything is as it was before that run");
    }
    if shown.already > 0 {
        writeln!(out, "{} already as before that run", count(shown.already, "object is", "objects are"))?;
    }
    let objects = count(shown.restored.len(), "object", "objects");
    match shown.skipped.len() {
        0 => writeln!(out, "{objects} to restore"),
        skipped => writeln!(out, "{objects} to restore; {} skipped", count(skipped, "step", "steps")),
    }
}

fn restored(shown: &Shown, detail: Detail, page: Page) -> Grid {
    if detail == Detail::Full || shown.restored.len() <= FEW {
        let mut grid = Grid::new(page, detail, "ACTION  OBJECT  WAS WRITTEN FOR");
        for object in &shown.restored {
            grid.row([object.action, &object.object, &object.reason]);
        }
        return grid;
    }
    let mut grid = Grid::new(page, detail, "ACTION  >COUNT  FOR EXAMPLE");
    let mut kinds: BTreeMap<(&str, &str), (usize, &Restored)> = BTreeMap::new();
    for object in &shown.restored {
        kinds.entry((object.action, object.kind)).or_insert((0, object)).0 += 1;
    }
    for ((action, kind), (number, example)) in kinds {
        let example = format!("{} {}", example.object, example.reason);
        grid.row([format!("{action}-{kind}"), thousands(number), example]);
    }
    grid
}

fn skipped(shown: &Shown, detail: Detail, page: Page) -> Grid {
    if detail == Detail::Full || shown.skipped.len() <= FEW {
        let mut grid = Grid::new(page, detail, "OBJECT  REASON");
        for skipped in &shown.skipped {
            grid.row([skipped.objects.join(", "), skipped.reason.clone()]);
        }
        return grid;
    }
    let mut grid = Grid::new(page, detail, "REASON  >COUNT  FOR EXAMPLE");
    let mut reasons: BTreeMap<&str, (usize, &NotRestored)> = BTreeMap::new();
    for skipped in &shown.skipped {
        reasons.entry(&skipped.reason).or_insert((0, skipped)).0 += 1;
    }
    for (reason, (number, example)) in reasons {
        grid.row([reason.to_owned(), thousands(number), example.objects.join(", ")]);
    }
    grid
}

/// True if the short form shows everything.
pub(crate) fn fits(plan: &UndoPlan) -> bool {
    let objects = plan.steps().iter().map(|step| step.objects.len()).sum::<usize>();
    objects.max(plan.skipped().len()) <= FEW
}

fn kind(key: &Key) -> &'static str {
    match key {
        Key::Block(_) => "block",
        Key::Affinity(_) => "affinity",
        Key::Handle(_) => "handle",
        Key::Pool(_) => "pool",
        Key::IpamConfig => "configuration",
        _ => "object",
    }
}
