//! The output of commands that make a plan: the plan or its result.

use calipam_check::{ClusterIdentity, Code, Subject};
use calipam_plan::{Change, PlanKind, PlanSummary, SkipReason, Skipped, Totals};
use calipam_workflow::Executed;
use serde::Serialize;

use super::column::left;
use super::document::Document;
use super::header;
use super::output::Text;
use super::show::cool_down;
use super::table::{FEW, Grid};
use super::text::{count, dash, thousands};
use crate::hints::{self, Reader};

/// A plan or, if it was executed, its result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanDocument<'a> {
    #[serde(skip)]
    plan: &'a PlanSummary,
    pub(super) cluster: &'a ClusterIdentity,
    totals: Totals,
    changes: &'a [Change],
    skipped: Vec<ShownSkipped<'a>>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) execution: Option<&'a Executed>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownSkipped<'a> {
    subject: &'a Subject,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    reason: SkipReason,
    detail: String,
}

impl<'a> ShownSkipped<'a> {
    /// Shows an object that the plan skips, with the reason.
    pub(crate) fn new(skipped: &'a Skipped) -> Self {
        let Skipped {
            subject,
            code,
            reason,
            ..
        } = skipped;
        Self {
            subject,
            code: *code,
            reason: *reason,
            detail: hints::plan::skipped(skipped, Reader::Document),
        }
    }
}

/// Returns the texts whose numbers are not 0.
fn texts_of_nonzero<const N: usize>(parts: [(usize, String); N]) -> Vec<String> {
    let mut texts = Vec::new();
    for (number, text) in parts {
        if number > 0 {
            texts.push(text);
        }
    }
    texts
}

/// Formats the result of a run: `Done: 4 of 5 steps; 1 step aborted (conflict)`, and if there are any, a line about
/// addresses that are cooling down.
pub(super) fn result(Executed { execution, .. }: &Executed) -> Vec<String> {
    // Steps that were already done by someone else count as done.
    let steps = |number| count(number, "step", "steps");
    let kept = count(execution.kept_addresses, "address", "addresses");
    let done = thousands(execution.written + execution.already);
    let mut parts = vec![format!("Done: {done} of {}", steps(execution.steps))];
    parts.extend(texts_of_nonzero([
        (
            execution.aborted,
            format!("{} aborted (conflict)", steps(execution.aborted)),
        ),
        (execution.kept_addresses, format!("{kept} unchanged")),
        (
            execution.partly,
            format!("{} partly written", steps(execution.partly)),
        ),
        (
            execution.not_started,
            format!("{} not started", steps(execution.not_started)),
        ),
    ]));

    let mut lines = vec![parts.join("; ")];
    lines.extend(execution.cooling.as_ref().map(cool_down));
    lines
}

/// Formats the size of a plan: `Plan: 12 addresses, 3 blocks, 12 handles, 1 affinity; 2 skipped`.
fn summary(plan: &PlanSummary) -> String {
    let skipped = match plan.skipped.len() {
        0 => String::new(),
        number => format!("; {} skipped", thousands(number)),
    };
    if plan.changes.is_empty() {
        return format!("Nothing to do{skipped}");
    }
    let Totals {
        addresses,
        blocks,
        handles,
        affinities,
        pools,
        configurations,
        ..
    } = plan.totals;
    let parts = texts_of_nonzero([
        (addresses, count(addresses, "address", "addresses")),
        (blocks, count(blocks, "block", "blocks")),
        (handles, count(handles, "handle", "handles")),
        (affinities, count(affinities, "affinity", "affinities")),
        (pools, count(pools, "pool", "pools")),
        (configurations, "the allocator's configuration".to_owned()),
    ]);
    format!("Plan: {}{skipped}", parts.join(", "))
}

impl Document for PlanDocument<'_> {
    const KIND: &'static str = "Plan";

    /// The kind of the document.
    fn kind(&self) -> &'static str {
        match self.plan.kind {
            PlanKind::Release => "ReleasePlan",
            PlanKind::Rebuild => "RebuildPlan",
            PlanKind::Split => "SplitPlan",
            PlanKind::Configure => "ConfigurePlan",
            PlanKind::Assign => "AssignPlan",
            PlanKind::Migrate => "MigrationPlan",
        }
    }

    /// Writes the plan, or the result of its run.
    fn text(&self, out: &mut Text) {
        if let Some(run) = self.execution {
            return out.lines(result(run));
        }
        out.line(header::cluster(self.cluster));
        out.blank();
        self.body(out);
    }
}

impl<'a> PlanDocument<'a> {
    /// Shows a plan, with its run if it was carried out.
    pub(crate) fn new(plan: &'a PlanSummary, execution: Option<&'a Executed>) -> Self {
        Self {
            plan,
            cluster: &plan.cluster,
            totals: plan.totals,
            changes: &plan.changes,
            skipped: plan.skipped.iter().map(ShownSkipped::new).collect(),
            warnings: plan.warnings.iter().map(hints::text).collect(),
            execution,
        }
    }

    /// Writes the plan without the line about the cluster.
    pub(super) fn body(&self, text: &mut Text) {
        text.section(changes(self.plan, text.page.wide));
        text.section(skipped(self.plan, text.page.wide));
        text.line(summary(self.plan));
    }
}

/// Creates the table of changes; in the short form, with a row for each kind.
fn changes(plan: &PlanSummary, wide: bool) -> Grid {
    let columns = vec![
        left("ACTION", |change: &Change| change.action).in_both_forms(),
        left("SUBJECT", |change: &Change| &change.subject),
        left("WHY", |change: &Change| &change.detail),
    ];
    let example = |change: &Change| format!("{} {}", change.subject, change.detail);
    Grid::short(wide, FEW, &plan.changes, columns, |change| change.action, example)
}

/// Creates the table of skipped objects; in the short form, with a row for each reason.
fn skipped(plan: &PlanSummary, wide: bool) -> Grid {
    let why = |skipped: &Skipped| hints::plan::skipped(skipped, Reader::Operator);
    let columns = vec![
        left("SUBJECT", |skipped: &Skipped| &skipped.subject),
        left("CODE", |skipped: &Skipped| dash(skipped.code)).in_both_forms(),
        left("SKIPPED BECAUSE", |skipped: &Skipped| skipped.reason)
            .in_both_forms()
            .hidden(1),
        left("WHY", why),
    ];
    Grid::short(
        wide,
        FEW,
        &plan.skipped,
        columns,
        |skipped| (skipped.reason, skipped.code),
        why,
    )
}

/// True if the short form of the plan shows everything.
pub(crate) fn fits(plan: &PlanSummary) -> bool {
    plan.changes.len().max(plan.skipped.len()) <= FEW
}
