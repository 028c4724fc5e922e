//! What `check` prints.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::{Changes, Code, EarlierFinding, Finding, Report, Severity, views};
use calipam_model::snapshot::{Coverage, DatastoreKind, Source, WhySkipped};
use clap::builder::styling::AnsiColor;

use super::document::Detail;
use super::header;
use super::report::{Checked, changes};
use super::show::pools_with_bars;
use super::table::{Grid, Page};
use super::text::{count, escape, join, thousands};
use super::wrap::on_page;

/// What people read of a report.
pub(crate) fn text(checked: &Checked<'_>, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let Checked { report, snapshot, changes, .. } = *checked;
    let findings = |out: &mut dyn Write| match detail {
        Detail::Short => summary_table(report, changes, page).write(out),
        Detail::Full => full_table(report, changes, page).write(out),
    };
    if page.rows_only {
        return findings(out);
    }
    writeln!(out, "{}", on_page(&header::cluster(&report.cluster), 0, page))?;
    writeln!(out, "{}", on_page(&header::counts(report), 0, page))?;
    for note in &report.notes {
        writeln!(out, "{}", on_page(&escape(note), 0, page))?;
    }
    writeln!(out)?;
    if detail == Detail::Full && !snapshot.pools.is_empty() {
        pools_with_bars(&views::pools(snapshot), Page { sort_by: None, ..page }).write(out)?;
        writeln!(out)?;
    }
    let lists_absent =
        changes.is_some_and(|changes| !changes.gone.is_empty() || !changes.not_checked.is_empty());
    if !report.findings.is_empty() || lists_absent && detail == Detail::Full {
        findings(out)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", on_page(&summary_of(report), 0, page))?;
    let lines = changes.map(|changes| changes::lines(changes, report)).unwrap_or_default();
    lines.iter().try_for_each(|line| writeln!(out, "{}", on_page(line, 0, page)))
}

/// One row for each severity and code, the worst first. In a comparison what is new is the example.
fn summary_table(report: &Report, changes: Option<&Changes>, page: Page) -> Grid {
    let mut grid = Grid::new(page, Detail::Short, "SEVERITY  CODE  >COUNT");
    if changes.is_some() {
        grid.columns(">NEW");
    }
    grid.columns("FOR EXAMPLE");
    let is_news = |finding: &Finding| changes.is_some_and(|changes| changes.of(finding).is_news());
    let mut kinds: BTreeMap<(Severity, Code), (usize, usize, &Finding)> = BTreeMap::new();
    for finding in &report.findings {
        let kind = kinds.entry((finding.severity, finding.code)).or_insert((0, 0, finding));
        kind.0 += 1;
        if is_news(finding) {
            kind.1 += 1;
            kind.2 = if kind.1 == 1 { finding } else { kind.2 };
        }
    }
    for ((severity, code), (number, news, example)) in kinds {
        let mut cells = vec![severity.to_string(), code.to_string(), thousands(number)];
        if changes.is_some() {
            cells.push(thousands(news));
        }
        cells.push(example.message());
        grid.colored_row(color(severity), cells);
    }
    grid
}

/// One row for each finding; in a comparison, after them, those that are gone or were not checked.
fn full_table(report: &Report, changes: Option<&Changes>, page: Page) -> Grid {
    let mut grid = Grid::new(page, Detail::Full, "SEVERITY  CODE");
    if changes.is_some() {
        grid.columns("CHANGE");
    }
    grid.columns("SUBJECT  FINDING");
    for finding in &report.findings {
        let mut cells = vec![finding.severity.to_string(), finding.code.to_string()];
        cells.extend(changes.map(|changes| changes.of(finding).to_string()));
        cells.extend([finding.subject.to_string(), finding.message()]);
        grid.colored_row(color(finding.severity), cells);
    }
    let Some(changes) = changes else { return grid };
    for (change, findings) in [("gone", &changes.gone), ("not checked", &changes.not_checked)] {
        for finding in findings {
            let severity = finding.severity.map_or_else(|| "-".to_owned(), |severity| severity.to_string());
            let EarlierFinding { code, subject, message, .. } = finding;
            grid.row([&severity, code, change, &subject.name, message]);
        }
    }
    grid
}

pub(super) fn color(severity: Severity) -> Option<AnsiColor> {
    match severity {
        Severity::Critical => Some(AnsiColor::Magenta),
        Severity::Error => Some(AnsiColor::Red),
        Severity::Warning => Some(AnsiColor::Yellow),
        Severity::Info => None,
    }
}

/// `1,714 findings: 2 critical, 1,300 error, 412 warning (not read: …)`.
fn summary_of(report: &Report) -> String {
    let mut line = summary(report.findings.len(), &report.counts.findings);
    if let Some(unread) = unread(&report.coverage, report.cluster.datastore) {
        line.push_str(&format!(" ({})", escape(&unread)));
    }
    line
}

/// `1,714 findings: 2 critical, 1,300 error, 412 warning`.
pub(super) fn summary(number: usize, by_severity: &BTreeMap<Severity, usize>) -> String {
    let by_severity: Vec<String> = Severity::ALL
        .into_iter()
        .filter_map(|severity| Some((severity, *by_severity.get(&severity)?)))
        .filter(|(_, number)| *number > 0)
        .map(|(severity, number)| format!("{} {severity}", thousands(number)))
        .collect();
    match by_severity.as_slice() {
        [] => "No findings".to_owned(),
        parts => format!("{}: {}", count(number, "finding", "findings"), parts.join(", ")),
    }
}

/// What was not read although there may be some of it, and why.
pub(crate) fn unread(coverage: &BTreeMap<Source, Coverage>, datastore: DatastoreKind) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, coverage) in coverage {
        let reason = match coverage {
            Coverage::Read => continue,
            // With the Kubernetes datastore there are no endpoints: pods stand for them.
            _ if *source == Source::Endpoints && datastore == DatastoreKind::Kubernetes => continue,
            Coverage::Skipped(WhySkipped::NotInCalico2) => continue,
            Coverage::Skipped(WhySkipped::NotInstalled(_)) if *source == Source::Machines => continue,
            Coverage::Partial => "partly read".to_owned(),
            Coverage::Skipped(reason) => reason.to_string(),
        };
        by_reason.entry(reason).or_default().push(words(*source));
    }
    let parts: Vec<String> = by_reason
        .into_iter()
        .map(|(reason, sources)| {
            let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
            format!("{}, {reason}", join(&sources))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("not read: {}", parts.join("; ")))
}

/// The name of a source in words.
pub(crate) fn words(source: Source) -> String {
    match source {
        Source::Pods => "pods".into(),
        Source::Services => "services".into(),
        Source::Machines => "virtual machines".into(),
        other => {
            let mut words = String::new();
            for c in other.to_string().chars() {
                if c.is_uppercase() {
                    words.push(' ');
                }
                words.extend(c.to_lowercase());
            }
            words
        }
    }
}
