//! The output of `check`.

use std::collections::BTreeMap;

use calipam_check::{Changes, Code, EarlierFinding, Report, Severity, views};
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use clap::builder::styling::AnsiColor;

use super::advice;
use super::column::{Column, left, right};
use super::findings::Found;
use super::header;
use super::output::Text;
use super::report::changes;
use super::show::use_of_pools;
use super::sources::unread;
use super::table::{Grid, NONE_SINGLY};
use super::text::{count, dash, thousands};

/// Writes a report as text: the cluster, what helps, in the wide form the use of the pools, and the findings.
pub(crate) fn text(report: &Report, advice: &Advice, snapshot: &Snapshot, text: &mut Text) {
    text.line(header::cluster(&report.cluster));
    text.line(header::counts(report));
    text.lines(&report.notes);
    text.blank();

    advice::text(advice, text);
    let is_wide = text.page.wide;
    if is_wide {
        text.aside(use_of_pools(&views::pools(snapshot), text.page));
    }

    let findings = Found::of_report(report).collect();
    let mut rows = table(findings, report.changes.is_some(), is_wide);
    if let Some(changes) = &report.changes
        && is_wide
    {
        rows.extend(earlier_findings(changes));
    }
    text.section(rows);

    text.line(summary_of(report));
    text.lines(changes::lines(report));
}

/// Creates a table with a row for each finding or, in the short form, for each combination of severity, code and
/// cluster. The worst findings come first, and new findings are preferred as examples.
pub(super) fn table(mut findings: Vec<Found<'_>>, is_compared: bool, wide: bool) -> Grid {
    let new_of_kind = numbers_of_new(&findings);
    // The first finding of a kind is its example. The sort is stable, so the worst ones stay first otherwise.
    if !wide {
        findings.sort_by_key(|found| !found.is_new_or_worse());
    }

    let is_fleet = findings.first().is_some_and(|found| !found.cluster.is_empty());
    let mut columns = columns_of_severity(is_fleet);
    columns.push(left("CODE", |found: Found<'_>| found.finding.code).in_both_forms());
    if is_compared {
        let change = |found: Found<'_>| found.change.map(|change| change.to_string()).unwrap_or_default();
        let new = |found: Found<'_>| thousands(new_of_kind.get(&found.kind()).copied().unwrap_or_default());
        columns.push(left("CHANGE", change));
        columns.push(right("NEW", new).only_in_short_form());
    }
    columns.push(left("SUBJECT", |found: Found<'_>| &found.finding.subject));
    columns.push(left("FINDING", |found: Found<'_>| found.finding.message()));
    let example = |found: Found<'_>| found.finding.message();
    Grid::short(wide, NONE_SINGLY, findings, columns, Found::kind, example)
}

/// Counts the new findings of each kind. Findings that became worse count as new.
fn numbers_of_new(findings: &[Found<'_>]) -> BTreeMap<(Severity, Code, usize), usize> {
    let mut numbers: BTreeMap<(Severity, Code, usize), usize> = BTreeMap::new();
    for found in findings {
        if found.is_new_or_worse() {
            *numbers.entry(found.kind()).or_default() += 1;
        }
    }
    numbers
}

/// Returns the first columns of a table of findings: the severity, in a fleet with the cluster before it. The first
/// column is colored by severity.
fn columns_of_severity<'a>(is_fleet: bool) -> Vec<Column<'a, Found<'a>>> {
    let color = |found: Found<'_>| color(found.finding.severity);
    let severity = left("SEVERITY", |found: Found<'_>| found.finding.severity).in_both_forms();
    if !is_fleet {
        return vec![severity.colored(color)];
    }
    let cluster = left("CLUSTER", |found: Found<'_>| found.cluster).in_both_forms();
    vec![cluster.colored(color), severity]
}

/// Returns the table of the findings that only the earlier report has.
fn earlier_findings(changes: &Changes) -> Grid {
    type Row<'a> = (&'a EarlierFinding, &'static str);
    let columns = vec![
        left("SEVERITY", |(finding, _): Row<'_>| dash(finding.severity)),
        left("CODE", |(finding, _): Row<'_>| &finding.code),
        left("CHANGE", |(_, change): Row<'_>| change),
        left("SUBJECT", |(finding, _): Row<'_>| &finding.subject.name),
        left("FINDING", |(finding, _): Row<'_>| &finding.message),
    ];
    let mut rows: Vec<Row<'_>> = Vec::new();
    for finding in &changes.gone {
        rows.push((finding, "gone"));
    }
    for finding in &changes.not_checked {
        rows.push((finding, "not checked"));
    }
    // Only the wide form lists them.
    let is_wide = true;
    Grid::new(is_wide, rows, columns)
}

/// Returns the color of a severity; `None` for the least one.
pub(super) fn color(severity: Severity) -> Option<AnsiColor> {
    match severity {
        Severity::Critical => Some(AnsiColor::Magenta),
        Severity::Error => Some(AnsiColor::Red),
        Severity::Warning => Some(AnsiColor::Yellow),
        Severity::Info => None,
    }
}

/// Formats `1,714 findings: 2 critical, 1,300 error, 412 warning; not read: …`.
fn summary_of(report: &Report) -> String {
    let mut line = summary([report].into_iter());
    if let Some(unread) = unread(&report.coverage, report.cluster.datastore) {
        line.push_str(&format!("; not read: {unread}"));
    }
    line
}

/// Formats `1,714 findings: 2 critical, 1,300 error, 412 warning`, or `No findings`, for all reports together.
pub(super) fn summary<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> String {
    let mut by_severity = Vec::new();
    for severity in Severity::ALL {
        let mut number = 0;
        for report in reports.clone() {
            number += report.counts.findings.get(&severity).copied().unwrap_or_default();
        }
        if number > 0 {
            by_severity.push(format!("{} {severity}", thousands(number)));
        }
    }

    // `no findings` begins the line.
    let verdict = verdict(reports);
    if by_severity.is_empty() {
        return verdict.replacen('n', "N", 1);
    }
    format!("{verdict}: {}", by_severity.join(", "))
}

/// Formats `34 findings`, `no findings`, or `no new findings` if known findings are left out.
pub(super) fn verdict<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> String {
    let number: usize = reports.clone().map(|report| report.findings.len()).sum();
    if number > 0 {
        return count(number, "finding", "findings");
    }
    if reports.clone().any(leaves_out_known) {
        return "no new findings".to_owned();
    }
    "no findings".to_owned()
}

/// True if the report lacks findings that the earlier report has as well.
pub(super) fn leaves_out_known(report: &Report) -> bool {
    match &report.changes {
        Some(changes) => changes.removed > 0,
        None => false,
    }
}
