//! Findings that are new, and findings that are gone.

use std::collections::HashSet;

use calipam_check::{Code, Finding, Report, Scope, Severity, Subject};
use serde::Serialize;

/// A finding that is in only one of the two reports, without its evidence. A check of that report's snapshot shows the
/// evidence.
#[derive(Clone, Debug, Serialize)]
pub struct FindingSummary {
    pub code: Code,
    pub severity: Severity,
    pub subject: Subject,
    pub message: String,
}

impl FindingSummary {
    /// Summarizes a finding.
    fn of(finding: &Finding) -> Self {
        let code = finding.code;
        let severity = finding.severity;
        let subject = finding.subject.clone();
        Self {
            code,
            severity,
            subject,
            message: finding.message(),
        }
    }
}

/// The findings that are in only one of the two reports, in the order of that report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FindingChanges {
    pub new: Vec<FindingSummary>,
    pub gone: Vec<FindingSummary>,
}

/// Compares the findings in scope by code and subject, since messages may differ.
pub(crate) fn changes(old: &Report, new: &Report, scope: &Scope) -> FindingChanges {
    FindingChanges {
        new: only_in(new, old, scope),
        gone: only_in(old, new, scope),
    }
}

/// Returns the findings in scope that the other report does not have.
fn only_in(report: &Report, other: &Report, scope: &Scope) -> Vec<FindingSummary> {
    let keys_of_other: HashSet<(Code, &Subject)> =
        other.findings.iter().map(|finding| finding.key_ref()).collect();
    let mut summaries = Vec::new();
    for finding in &report.findings {
        if !keys_of_other.contains(&finding.key_ref()) && scope.has(finding) {
            summaries.push(FindingSummary::of(finding));
        }
    }
    summaries
}
