//! The output of `check`.

use std::collections::BTreeMap;

use calipam_check::{Changes, Code, EarlierFinding, Report, Severity, views};
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use clap::builder::styling::AnsiColor;

use super::advice;
use super::column::{left, right};
use super::findings::Found;
use super::header;
use super::output::Text;
use super::report::changes;
use super::show::use_of_pools;
use super::sources::unread;
use super::table::Grid;
use super::text::{count, dash, joined, thousands};

/// Writes a report as text.
pub(crate) fn text(report: &Report, advice: &Advice, snapshot: &Snapshot, text: &mut Text) {
    let wide = text.page.wide;
    text.line(header::cluster(&report.cluster));
    text.line(header::counts(report));
    text.lines(&report.notes);
    text.blank();
    advice::text(advice, text);
    if wide {
        text.aside(use_of_pools(&views::pools(snapshot), text.page));
    }
    let mut rows = table(
        Found::all_of(report, 0, "").collect(),
        report.changes.is_some(),
        wide,
    );
    if let (true, Some(changes)) = (wide, &report.changes) {
        rows.extend(earlier(changes));
    }
    text.section(rows);
    text.line(summary_of(report));
    text.lines(changes::lines(report));
}

/// Creates a table with a row for each finding or, in the short form, for each combination of severity, code and
/// cluster. The worst findings come first, and new findings are preferred as examples.
pub(super) fn table(mut findings: Vec<Found<'_>>, is_compared: bool, wide: bool) -> Grid {
    let of_fleet = findings.first().is_some_and(|of| !of.cluster.is_empty());
    let mut news: BTreeMap<(Severity, Code, usize), usize> = BTreeMap::new();
    findings
        .iter()
        .filter(|of| of.is_new_or_worse())
        .for_each(|of| *news.entry(of.kind()).or_default() += 1);
    if !wide {
        findings.sort_by_key(|of| !of.is_new_or_worse());
    }
    let change = |of: Found<'_>| of.change.map(|change| change.to_string()).unwrap_or_default();
    let color = |of: Found<'_>| color(of.finding.severity);
    let cluster = left("CLUSTER", |of: Found<'_>| of.cluster)
        .colored(color)
        .of_kind();
    let severity = left("SEVERITY", |of: Found<'_>| of.finding.severity).of_kind();
    let mut columns = if of_fleet {
        vec![cluster, severity]
    } else {
        vec![severity.colored(color)]
    };
    columns.push(left("CODE", |of: Found<'_>| of.finding.code).of_kind());
    let new = |of: Found<'_>| thousands(news.get(&of.kind()).copied().unwrap_or_default());
    if is_compared {
        columns.extend([left("CHANGE", change), right("NEW", new).only_of_kinds()]);
    }
    columns.push(left("SUBJECT", |of: Found<'_>| &of.finding.subject));
    columns.push(left("FINDING", |of: Found<'_>| of.finding.message()));
    Grid::short(wide, 0, findings, columns, Found::kind, |of| of.finding.message())
}

/// Returns the table of the findings that only the earlier report has.
fn earlier(changes: &Changes) -> Grid {
    type Row<'a> = (&'a EarlierFinding, &'static str);
    let columns = vec![
        left("SEVERITY", |(finding, _): Row<'_>| dash(finding.severity)),
        left("CODE", |(finding, _): Row<'_>| &finding.code),
        left("CHANGE", |(_, change): Row<'_>| change),
        left("SUBJECT", |(finding, _): Row<'_>| &finding.subject.name),
        left("FINDING", |(finding, _): Row<'_>| &finding.message),
    ];
    let gone = changes.gone.iter().map(|finding| (finding, "gone"));
    let not_checked = changes.not_checked.iter().map(|finding| (finding, "not checked"));
    Grid::new(true, gone.chain(not_checked), columns)
}

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

/// Formats `1,714 findings: 2 critical, 1,300 error, 412 warning`, for the findings of all reports.
pub(super) fn summary<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> String {
    let numbers = Severity::ALL.into_iter().filter_map(|severity| {
        let of_each = reports
            .clone()
            .filter_map(|report| report.counts.findings.get(&severity));
        Some(of_each.sum())
            .filter(|number| *number > 0)
            .map(|number: usize| format!("{} {severity}", thousands(number)))
    });
    match (joined(numbers, ", ").as_str(), verdict(reports.clone())) {
        ("", verdict) => verdict.replacen('n', "N", 1),
        (parts, verdict) => format!("{verdict}: {parts}"),
    }
}

/// Formats `34 findings`, `no findings`, or `no new findings` if known findings are left out.
pub(super) fn verdict<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> String {
    let is_removed = |report: &Report| report.changes.as_ref().is_some_and(|changes| changes.removed > 0);
    match reports.clone().map(|report| report.findings.len()).sum() {
        0 if reports.clone().any(is_removed) => "no new findings".to_owned(),
        0 => "no findings".to_owned(),
        number => count(number, "finding", "findings"),
    }
}
