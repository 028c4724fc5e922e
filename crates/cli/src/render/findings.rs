//! Findings in documents: each with the command that repairs it.

use calipam_check::views::{AddressView, HandleView};
use calipam_check::{Finding, Report};
use serde::{Serialize, Serializer};

use crate::hints::remedy;

/// A document that ends in findings.
#[derive(Serialize)]
pub struct WithFindings<'a, T> {
    #[serde(flatten)]
    content: &'a T,
    #[serde(serialize_with = "with_repair")]
    findings: &'a [Finding],
    /// Whether only the objects around the subject were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
}

impl<'a> WithFindings<'a, Report> {
    pub fn of_report(report: &'a Report) -> Self {
        Self { content: report, findings: &report.findings, partial: None }
    }
}

impl<'a> WithFindings<'a, AddressView> {
    pub fn of_address(view: &'a AddressView) -> Self {
        Self { content: view, findings: &view.findings, partial: Some(view.partial) }
    }
}

impl<'a> WithFindings<'a, HandleView> {
    pub fn of_handle(view: &'a HandleView) -> Self {
        Self { content: view, findings: &view.findings, partial: Some(view.partial) }
    }
}

/// A finding and the command that repairs it, where one does.
#[derive(Serialize)]
struct Repairable<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
}

fn with_repair<S: Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    let repair = |finding: &Finding| finding.remedy().as_ref().map(remedy::in_document);
    serializer.collect_seq(findings.iter().map(|finding| Repairable { finding, repair: repair(finding) }))
}
