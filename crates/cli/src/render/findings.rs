//! Findings in documents: each with the command that repairs it and, in a comparison, with what became of it.

use calipam_check::views::{AddressView, HandleView};
use calipam_check::{Change, Changes, EarlierFinding, Finding, Report};
use calipam_model::snapshot::Source;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::hints::remedy;

/// A document that ends in findings.
#[derive(Serialize)]
pub(super) struct WithFindings<'a, T> {
    #[serde(flatten)]
    content: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<ChangesOf<'a>>,
    findings: Findings<'a>,
    /// Whether only the objects around the subject were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
}

impl<'a> WithFindings<'a, Report> {
    pub(super) fn of_report(report: &'a Report, changes: Option<&'a Changes>) -> Self {
        let findings = Findings { findings: &report.findings, changes };
        let changes = changes.map(|changes| ChangesOf::new(changes, report));
        Self { content: report, changes, findings, partial: None }
    }
}

impl<'a> WithFindings<'a, AddressView> {
    pub(super) fn of_address(view: &'a AddressView) -> Self {
        let findings = Findings { findings: &view.findings, changes: None };
        Self { content: view, changes: None, findings, partial: Some(!view.partly_read.is_empty()) }
    }
}

impl<'a> WithFindings<'a, HandleView> {
    pub(super) fn of_handle(view: &'a HandleView) -> Self {
        let findings = Findings { findings: &view.findings, changes: None };
        Self { content: view, changes: None, findings, partial: Some(!view.partly_read.is_empty()) }
    }
}

/// What has changed since an earlier report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangesOf<'a> {
    since: Timestamp,
    new: usize,
    worse: usize,
    stay: usize,
    gone: &'a [EarlierFinding],
    not_checked: &'a [EarlierFinding],
    not_read_now: &'a [Source],
    not_read_then: &'a [Source],
}

impl<'a> ChangesOf<'a> {
    fn new(changes: &'a Changes, report: &Report) -> Self {
        let counts = changes.counts(report);
        Self {
            since: changes.since,
            new: counts[&Change::New],
            worse: counts[&Change::Worse],
            stay: counts[&Change::Stays],
            gone: &changes.gone,
            not_checked: &changes.not_checked,
            not_read_now: &changes.not_read_now,
            not_read_then: &changes.not_read_then,
        }
    }
}

struct Findings<'a> {
    findings: &'a [Finding],
    changes: Option<&'a Changes>,
}

impl Serialize for Findings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let element = |finding| Element::new(finding, self.changes.map(|changes| changes.of(finding)));
        serializer.collect_seq(self.findings.iter().map(element))
    }
}

/// A finding, the command that repairs it, if one does, and what became of it since the earlier report.
#[derive(Serialize)]
pub(super) struct Element<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    #[serde(flatten)]
    finding: &'a Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
}

impl<'a> Element<'a> {
    pub(super) fn new(finding: &'a Finding, change: Option<Change>) -> Self {
        Self { change, finding, repair: finding.remedy().as_ref().map(remedy::in_document) }
    }
}
