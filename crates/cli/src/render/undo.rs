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
            None => tables(self, out),
        }
    }
}

impl<'a> UndoDocument<'a> {
    /// Shows a plan and, once it was carried out, its result.
    pub(crate) fn new(header: &'a Header, plan: &UndoPlan, execution: Option<&'a Executed>) -> Self {
        let kinds = [
            DatastoreKind::Etcd,
            DatastoreKind::EtcdV2,
            DatastoreKind::Kubernetes,
        ];
        let datastore = kinds
            .into_iter()
            .find(|kind| kind.to_string() == header.datastore)
            .unwrap_or_default();
        let row = |step: &UndoStep, object: &UndoObject, action| Restored {
            object: object_in(datastore, &object.key),
            kind: kind(&object.key),
            action,
            reason: step.reason.clone(),
        };

        let mut restored = Vec::new();
        for step in plan.steps() {
            for object in &step.fences {
                restored.push(row(step, object, KEEP));
            }
            for object in &step.objects {
                let action = match (&object.before, &object.left) {
                    (None, _) => "delete",
                    (Some(_), None) => "create",
                    (Some(_), Some(_)) => "restore",
                };
                restored.push(row(step, object, action));
            }
        }
        let skipped = plan.skipped().iter().map(|skipped| NotRestored {
            objects: skipped.keys.iter().map(|key| object_in(datastore, key)).collect(),
            reason: skipped.reason.clone(),
        });
        Self {
            command: &header.command,
            started_at: &header.started_at,
            cluster: &header.cluster,
            location: &header.location,
            restored,
            skipped: skipped.collect(),
            already: plan.already(),
            execution,
        }
    }

    /// True if the short form of the plan shows everything.
    pub(crate) fn fits(&self) -> bool {
        self.restored.len().max(self.skipped.len()) <= FEW
    }
}

/// Writes the plan: the objects to restore, the steps that are skipped, and their numbers.
fn tables(shown: &UndoDocument<'_>, text: &mut Text) {
    text.line(format!(
        "Undoing `{}` of {}",
        shown.command,
        to_seconds(shown.started_at)
    ));
    text.blank();
    text.section(restored(shown, text.page.wide));
    text.section(skipped(shown, text.page.wide));
    if shown.restored.is_empty() && shown.skipped.is_empty() {
        return text.line("Nothing to restore: everything is as it was before that run");
    }

    if shown.already > 0 {
        text.line(format!(
            "{} already restored",
            count(shown.already, "object is", "objects are")
        ));
    }
    let kept = shown
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

    let objects = count(shown.restored.len() - kept, "object", "objects");
    text.line(match shown.skipped.len() {
        0 => format!("{objects} to restore"),
        skipped => format!(
            "{objects} to restore; {} skipped",
            count(skipped, "step", "steps")
        ),
    });
}

/// Creates the table of restored objects; in the short form, with a row for each kind.
fn restored(shown: &UndoDocument<'_>, wide: bool) -> Grid {
    let columns = vec![
        left("ACTION", |object: &Restored| {
            format!("{}-{}", object.action, object.kind)
        })
        .in_both_forms(),
        left("OBJECT", |object: &Restored| &object.object),
        left("WAS WRITTEN FOR", |object: &Restored| &object.reason),
    ];
    let example = |object: &Restored| format!("{} {}", object.object, object.reason);
    Grid::short(
        wide,
        FEW,
        &shown.restored,
        columns,
        |object| (object.action, object.kind),
        example,
    )
}

/// Creates the table of objects that are not restored; in the short form, with a row for each reason.
fn skipped(shown: &UndoDocument<'_>, wide: bool) -> Grid {
    let objects = |skipped: &NotRestored| skipped.objects.join(", ");
    let reason = left("REASON", |skipped: &NotRestored| &skipped.reason).in_both_forms();
    let columns = vec![left("OBJECT", objects), reason];
    Grid::short(
        wide,
        FEW,
        &shown.skipped,
        columns,
        |skipped| &skipped.reason,
        objects,
    )
}

/// The kind of an object in one word.
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
