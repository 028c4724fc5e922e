//! The output of `undo`.

use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use calipam_repair::journal::Header;
use calipam_repair::{UndoObject, UndoPlan, UndoStep};
use calipam_workflow::Executed;
use serde::Serialize;

use super::column::left;
use super::document::Document;
use super::output::Text;
use super::plan::result;
use super::table::{FEW, Grid};
use super::text::{count, object_in, to_seconds};

/// An undo plan or, if it was executed, its result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UndoDocument<'a> {
    /// The command of the run that is undone.
    command: &'a str,
    started_at: &'a str,
    cluster: &'a str,
    location: &'a str,
    restored: Vec<Restored>,
    skipped: Vec<NotRestored>,
    /// The number of objects that are already as they were before the run.
    already: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<&'a Executed>,
}

/// The action for an object that is written again as it is.
const KEEP: &str = "keep";

/// An object that is restored or kept.
#[derive(Debug, Serialize)]
struct Restored {
    object: String,
    #[serde(skip)]
    kind: &'static str,
    action: &'static str,
    reason: String,
}

/// Objects that are not restored, and the reason.
#[derive(Debug, Serialize)]
struct NotRestored {
    objects: Vec<String>,
    reason: String,
}

impl Document for UndoDocument<'_> {
    const KIND: &'static str = "UndoPlan";

    fn text(&self, out: &mut Text) {
        match self.execution {
            Some(run) => out.lines(result(run)),
            None => write_plan(self, out),
        }
    }
}

impl<'a> UndoDocument<'a> {
    /// Shows a plan and, once it was carried out, its result.
    pub(crate) fn new(header: &'a Header, plan: &UndoPlan, execution: Option<&'a Executed>) -> Self {
        Self {
            command: &header.command,
            started_at: &header.started_at,
            cluster: &header.cluster,
            location: &header.location,
            restored: restored(plan, header.datastore),
            skipped: not_restored(plan, header.datastore),
            already: plan.already(),
            execution,
        }
    }

    /// True if the short form of the plan shows everything.
    pub(crate) fn fits(&self) -> bool {
        self.restored.len().max(self.skipped.len()) <= FEW
    }
}

/// Lists the objects that a plan restores or keeps, in the order in which they are written.
fn restored(plan: &UndoPlan, datastore: DatastoreKind) -> Vec<Restored> {
    let row = |step: &UndoStep, object: &UndoObject, action| Restored {
        object: object_in(datastore, &object.key),
        kind: kind(&object.key),
        action,
        reason: step.reason.clone(),
    };
    let mut rows = Vec::new();
    for step in plan.steps() {
        // Fences are written only to stop late writes of the run.
        for fence in &step.fences {
            rows.push(row(step, fence, KEEP));
        }
        for object in &step.objects {
            rows.push(row(step, object, action_on(object)));
        }
    }
    rows
}

/// Returns the action that gives an object the state from before the run.
fn action_on(object: &UndoObject) -> &'static str {
    if object.before.is_none() {
        // The run created it.
        "delete"
    } else if object.left.is_none() {
        // The run deleted it.
        "create"
    } else {
        "restore"
    }
}

/// Lists the objects that a plan does not restore, those of each step together.
fn not_restored(plan: &UndoPlan, datastore: DatastoreKind) -> Vec<NotRestored> {
    let mut rows = Vec::new();
    for skipped in plan.skipped() {
        rows.push(NotRestored {
            objects: skipped.keys.iter().map(|key| object_in(datastore, key)).collect(),
            reason: skipped.reason.clone(),
        });
    }
    rows
}

/// Writes the plan: the objects to restore, the steps that are skipped, and their numbers.
fn write_plan(document: &UndoDocument<'_>, text: &mut Text) {
    text.line(format!(
        "Undoing `{}` of {}",
        document.command,
        to_seconds(document.started_at)
    ));
    text.blank();
    text.section(restored_table(&document.restored, text.page.wide));
    text.section(skipped_table(&document.skipped, text.page.wide));
    if document.restored.is_empty() && document.skipped.is_empty() {
        text.line("Nothing to restore: everything is as it was before that run");
    } else {
        write_numbers(document, text);
    }
}

/// Writes the numbers of objects that are already restored, that are kept and to restore, and of skipped steps.
fn write_numbers(document: &UndoDocument<'_>, text: &mut Text) {
    if document.already > 0 {
        text.line(format!(
            "{} already restored",
            count(document.already, "object is", "objects are")
        ));
    }
    // Objects that are kept are written, but not restored.
    let kept = document
        .restored
        .iter()
        .filter(|object| object.action == KEEP)
        .count();
    if kept > 0 {
        let objects = count(kept, "object is", "objects are");
        text.line(format!(
            "{objects} written again unchanged, so that no late write of that run can change them"
        ));
    }

    let objects = count(document.restored.len() - kept, "object", "objects");
    let mut summary = format!("{objects} to restore");
    if !document.skipped.is_empty() {
        let steps = count(document.skipped.len(), "step", "steps");
        summary.push_str(&format!("; {steps} skipped"));
    }
    text.line(summary);
}

/// Creates the table of restored objects; in the short form, with a row for each kind.
fn restored_table(restored: &[Restored], wide: bool) -> Grid {
    let columns = vec![
        left("ACTION", |object: &Restored| {
            format!("{}-{}", object.action, object.kind)
        })
        .in_both_forms(),
        left("OBJECT", |object: &Restored| &object.object),
        left("WAS WRITTEN FOR", |object: &Restored| &object.reason),
    ];
    let kind_of_row = |object: &Restored| (object.action, object.kind);
    let example = |object: &Restored| format!("{} {}", object.object, object.reason);
    Grid::short(wide, FEW, restored, columns, kind_of_row, example)
}

/// Creates the table of objects that are not restored. A list of more than [`FEW`] rows is shown in the short form,
/// with a row for each reason.
fn skipped_table(skipped: &[NotRestored], wide: bool) -> Grid {
    fn objects(step: &NotRestored) -> String {
        step.objects.join(", ")
    }
    fn reason(step: &NotRestored) -> &str {
        &step.reason
    }
    let columns = vec![left("OBJECT", objects), left("REASON", reason).in_both_forms()];
    let kind_of_row = reason;
    let example = objects;
    Grid::short(wide, FEW, skipped, columns, kind_of_row, example)
}

/// Returns the kind of an object in one word.
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
