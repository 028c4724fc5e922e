//! What `check` prints.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem::discriminant;

use calipam_check::{Code, Finding, Remedy, Report, Severity};
use calipam_model::snapshot::{Coverage, DatastoreKind, Source};
use clap::builder::styling::AnsiColor;

use super::document::Detail;
use super::header;
use super::table::{Align, Grid, Page};
use super::text::{count, escape, join, thousands};
use super::wrap::on_page;
use crate::hints;
use crate::output::Console;

/// What people read of a report.
pub fn text(report: &Report, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", on_page(&header::cluster(&report.cluster), 0, page))?;
    writeln!(out, "{}", on_page(&header::counts(report), 0, page))?;
    for note in &report.notes {
        writeln!(out, "{}", on_page(&escape(note), 0, page))?;
    }
    writeln!(out)?;
    if !report.findings.is_empty() {
        match detail {
            Detail::Short => summary_table(report, page).write(out)?,
            Detail::Full => full_table(report, page).write(out)?,
        }
        writeln!(out)?;
    }
    writeln!(out, "{}", on_page(&summary(report), 0, page))
}

/// One row for each severity and code, the worst first.
fn summary_table(report: &Report, page: Page) -> Grid {
    let columns = [
        ("SEVERITY", Align::Left),
        ("CODE", Align::Left),
        ("COUNT", Align::Right),
        ("FOR EXAMPLE", Align::Left),
    ];
    let mut grid = Grid::new(page, Detail::Short, &columns);
    let mut kinds: BTreeMap<(Severity, Code), (usize, &Finding)> = BTreeMap::new();
    for finding in &report.findings {
        kinds.entry((finding.severity, finding.code)).or_insert((0, finding)).0 += 1;
    }
    for ((severity, code), (number, example)) in kinds {
        let cells = [severity.to_string(), code.to_string(), thousands(number), example.message.clone()];
        grid.colored_row(color(severity), cells);
    }
    grid
}

/// One row for each finding.
fn full_table(report: &Report, page: Page) -> Grid {
    let columns = [
        ("SEVERITY", Align::Left),
        ("CODE", Align::Left),
        ("SUBJECT", Align::Left),
        ("FINDING", Align::Left),
    ];
    let mut grid = Grid::new(page, Detail::Full, &columns);
    for finding in &report.findings {
        let cells = [
            finding.severity.to_string(),
            finding.code.to_string(),
            finding.subject.to_string(),
            finding.message.clone(),
        ];
        grid.colored_row(color(finding.severity), cells);
    }
    grid
}

fn color(severity: Severity) -> Option<AnsiColor> {
    match severity {
        Severity::Critical => Some(AnsiColor::Magenta),
        Severity::Error => Some(AnsiColor::Red),
        Severity::Warning => Some(AnsiColor::Yellow),
        Severity::Info => None,
    }
}

/// `1,714 findings: 2 critical, 1,300 error, 412 warning (not read: …)`.
fn summary(report: &Report) -> String {
    let by_severity: Vec<String> = Severity::ALL
        .into_iter()
        .filter_map(|severity| Some((severity, *report.counts.findings.get(&severity)?)))
        .filter(|(_, number)| *number > 0)
        .map(|(severity, number)| format!("{} {severity}", thousands(number)))
        .collect();
    let mut line = match by_severity.as_slice() {
        [] => "No findings".to_owned(),
        parts => format!("{}: {}", count(report.findings.len(), "finding", "findings"), parts.join(", ")),
    };
    if let Some(unread) = unread(report) {
        line.push_str(&format!(" ({})", escape(&unread)));
    }
    line
}

/// What was not read, and why.
pub fn unread(report: &Report) -> Option<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // With the Kubernetes datastore there are no endpoints to be read: pods stand for them.
    let nothing_to_read =
        |source| source == Source::Endpoints && report.cluster.datastore == DatastoreKind::Kubernetes;
    for (source, coverage) in report.coverage.iter().filter(|(source, _)| !nothing_to_read(**source)) {
        let reason = match coverage {
            Coverage::Read => continue,
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
fn words(source: Source) -> String {
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

/// Next steps that are suggested, at most.
const STEPS: usize = 3;

/// Says what to do next, the most severe first.
pub fn hints(report: &Report, detail: Detail, console: &Console) {
    let Some(worst) = report.findings.first() else { return };
    let explain = hints::command_elsewhere(&["explain", worst.code.name()]);
    let mut steps = vec![match detail {
        Detail::Short => {
            let every = hints::again(&["-o", "wide"], &["output"]);
            format!("what it means: {explain}; every finding: {every}")
        }
        Detail::Full => format!("what it means and what to do: {explain}"),
    }];
    steps.extend(remedies(report).iter().map(hints::remedy::hint));
    steps.iter().take(STEPS).for_each(|step| console.hint(step));
    if !report.settled && !report.findings.iter().all(|finding| finding.depends_on.is_empty()) {
        console.note("this is a single look: a change that Calico was just making can be among the findings");
    }
}

/// What repairs the findings, each once, the most severe first. Where several blocks are to be rebuilt, that is a
/// rebuild of all; of several nodes or addresses the first stands for the others.
fn remedies(report: &Report) -> Vec<Remedy> {
    let mut shown: Vec<Remedy> = Vec::new();
    for remedy in report.findings.iter().filter_map(Finding::remedy) {
        match shown.iter_mut().find(|other| same_command(other, &remedy)) {
            Some(other) if *other != remedy && is_rebuild(&remedy) => *other = Remedy::Rebuild,
            Some(_) => {}
            None => shown.push(remedy),
        }
    }
    shown
}

fn same_command(a: &Remedy, b: &Remedy) -> bool {
    discriminant(a) == discriminant(b) || (is_rebuild(a) && is_rebuild(b))
}

fn is_rebuild(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::RebuildBlock(_) | Remedy::Rebuild)
}
