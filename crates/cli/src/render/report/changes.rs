//! Changes since an earlier report, in words.

use std::collections::BTreeMap;

use calipam_check::{Change, EarlierFinding, Report};
use calipam_model::snapshot::Source;

use crate::render::sources::words;
use crate::render::text::{escape, join, thousands, utc};

/// Returns the lines below a report: the numbers of new, worse, gone and unchanged findings, and the findings that
/// could not be compared.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let Some(changes) = &report.changes else {
        return Vec::new();
    };
    // Few findings become more severe, so this number is shown only if it is not 0.
    let counts = changes.counts(&report.findings);
    let since = utc(changes.since);
    let mut parts = vec![format!("{} new", thousands(counts[&Change::New]))];
    if counts[&Change::Worse] > 0 {
        parts.push(format!("{} more severe", thousands(counts[&Change::Worse])));
    }
    parts.push(format!("{} gone", thousands(changes.gone.len())));
    parts.push(format!("{} unchanged", thousands(counts[&Change::Stays])));
    let mut lines = vec![format!("Since {since}: {}", parts.join(", "))];

    if !changes.gone.is_empty() {
        lines.push(format!("Gone: {}", by_code(&changes.gone)));
    }
    if !changes.not_checked.is_empty() {
        let reason = match sources(&changes.not_read_now) {
            Some(unread) => format!("{unread} were not read this time"),
            None => "their objects were changing, or this version has no such rule".to_owned(),
        };
        lines.push(format!(
            "Not checked: {} ({reason})",
            by_code(&changes.not_checked)
        ));
    }
    if let Some(unread) = sources(&changes.not_read_then) {
        lines.push(format!(
            "{unread} were not read for the earlier report: new findings could be older"
        ));
    }
    lines
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
