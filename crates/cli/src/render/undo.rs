//! The output of `undo`.

use calipam_model::key::Key;
use calipam_repair::UndoPlan;
use calipam_repair::journal::Header;
use calipam_workflow::Executed;
use serde::Serialize;

use super::column::{Kind, example, left, number_of_kind};
use super::document::Document;
use super::page::Text;
use super::plan::ShownExecution;
use super::table::{FEW, Grid};
use super::text::count;

/// An undo for YAML and JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UndoJson {
    /// The command of the run that is undone.
    command: String,
    started_at: String,
    cluster: String,
    location: String,
    restored: Vec<Restored>,
    skipped: Vec<NotRestored>,
    /// The number of objects that are already as they were before the run.
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

/// Objects that stay unchanged.
#[derive(Debug, Serialize)]
struct NotRestored {
    objects: Vec<String>,
    reason: String,
}

/// An undo or, if it was executed, its result.
pub(crate) struct UndoDocument<'a> {
    pub header: &'a Header,
    pub plan: &'a UndoPlan,
    pub run: Option<&'a Executed>,
}

impl Document for UndoDocument<'_> {
    fn kind(&self) -> &'static str {
        "UndoPlan"
    }

    fn text(&self, text: &mut Text) {
        match self.run {
            Some(run) => text.lines(ShownExecution::new(run).summary().lines()),
            None => tables(&shown(self), text),
        }
    }

    fn schema(&self) -> impl Serialize {
        shown(self)
    }
}

fn shown(undo: &UndoDocument<'_>) -> UndoJson {
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
    UndoJson {
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

fn tables(shown: &UndoJson, text: &mut Text) {
    text.line(format!("Undoing `{}` of {}", shown.command, shown.started_at));
    text.blank();
    text.section(restored(shown, text.page.wide));
    text.section(skipped(shown, text.page.wide));
    if shown.restored.is_empty() && shown.skipped.is_empty() {
        return text.line("Nothing to restore: everything is as it was before that run");
    }
    if shown.already > 0 {
        text.line(format!("{} already restored", count(shown.already, "object is", "objects are")));
    }
    let objects = count(shown.restored.len(), "object", "objects");
    text.line(match shown.skipped.len() {
        0 => format!("{objects} to restore"),
        skipped => format!("{objects} to restore; {} skipped", count(skipped, "step", "steps")),
    });
}

fn restored(shown: &UndoJson, wide: bool) -> Grid {
    let columns = vec![
        left("ACTION", |object: &Restored| object.action),
        left("OBJECT", |object: &Restored| &object.object),
        left("WAS WRITTEN FOR", |object: &Restored| &object.reason),
    ];
    let of_kinds = vec![
        left("ACTION", |of: Kind<&Restored>| format!("{}-{}", of.example.action, of.example.kind)),
        number_of_kind(),
        example(|object: &Restored| format!("{} {}", object.object, object.reason)),
    ];
    Grid::short(wide, FEW, &shown.restored, columns, |object| (object.action, object.kind), of_kinds)
}

fn skipped(shown: &UndoJson, wide: bool) -> Grid {
    let objects = |skipped: &NotRestored| skipped.objects.join(", ");
    let columns = vec![left("OBJECT", objects), left("REASON", |skipped: &NotRestored| &skipped.reason)];
    let of_kinds = vec![
        left("REASON", |kind: Kind<&NotRestored>| kind.example.reason.as_str()),
        number_of_kind(),
        example(objects),
    ];
    Grid::short(wide, FEW, &shown.skipped, columns, |skipped| &skipped.reason, of_kinds)
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
