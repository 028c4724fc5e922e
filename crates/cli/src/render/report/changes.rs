//! Changes since an earlier report, in words.

use std::collections::BTreeMap;

use calipam_check::{Change, Changes, EarlierFinding, Report};
use calipam_model::snapshot::Source;

use crate::render::sources::words;
use crate::render::text::{escape, join, thousands, utc};

/// Returns the lines below a report: the numbers of new, worse, gone and unchanged findings, and the findings that
/// could not be compared.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let Some(changes) = &report.changes else {
        return Vec::new();
    };
    let mut lines = vec![line_of_numbers(changes, report)];
    if !changes.gone.is_empty() {
        lines.push(format!("Gone: {}", by_code(&changes.gone)));
    }
    if !changes.not_checked.is_empty() {
        lines.push(line_of_not_checked(changes));
    }
    if let Some(unread) = sources(&changes.not_read_then) {
        lines.push(format!(
            "{unread} were not read for the earlier report: new findings could be older"
        ));
    }
    lines
}

/// Formats `Since 2026-11-20 03:12:30 UTC: 12 new, 3 gone, 40 unchanged`.
fn line_of_numbers(changes: &Changes, report: &Report) -> String {
    let counts = changes.counts(&report.findings);
    let mut parts = vec![format!("{} new", thousands(counts[&Change::New]))];
    // Few findings become more severe, so this number is shown only if it is not 0.
    if counts[&Change::Worse] > 0 {
        parts.push(format!("{} more severe", thousands(counts[&Change::Worse])));
    }
    parts.push(format!("{} gone", thousands(changes.gone.len())));
    parts.push(format!("{} unchanged", thousands(counts[&Change::Stays])));
    format!("Since {}: {}", utc(changes.since), parts.join(", "))
}

/// Formats the earlier findings that could not be checked, with the reason.
fn line_of_not_checked(changes: &Changes) -> String {
    let findings = by_code(&changes.not_checked);
    match sources(&changes.not_read_now) {
        Some(unread) => format!("Not checked: {findings} ({unread} were not read this time)"),
        None => {
            format!("Not checked: {findings} (their objects were changing, or this version has no such rule)")
        }
    }
}

/// Formats `12 leaked-address, 1 orphan-handle`. The codes are strings because they can come from another version of
/// calipam.
fn by_code(findings: &[EarlierFinding]) -> String {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in findings.iter() {
        *numbers.entry(&finding.code).or_default() += 1;
    }
    let mut parts = Vec::new();
    for (code, number) in &numbers {
        parts.push(format!("{} {}", thousands(number), escape(code)));
    }
    parts.join(", ")
}

/// Formats a list of sources; `None` if it is empty.
fn sources(sources: &[Source]) -> Option<String> {
    if sources.is_empty() {
        return None;
    }
    let words: Vec<String> = sources.iter().map(|source| words(*source)).collect();
    Some(join(&words))
}
