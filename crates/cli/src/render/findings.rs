//! Findings in documents. Each finding comes with the command that repairs it and, in a comparison, with its change.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use calipam_check::{Change, Code, EarlierFinding, Finding, Report, Severity};
use calipam_model::snapshot::Source;
use calipam_plan::advice::Advice;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::advice::ShownAdvice;
use super::table::by_kind;
use super::text::escape;
use crate::hints::{for_cluster, remedy};
use crate::ignore;

/// The content of a document, with its findings.
#[derive(Serialize)]
pub(super) struct WithFindings<'a, T> {
    #[serde(flatten)]
    pub content: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<ChangesOf<'a>>,
    #[serde(flatten)]
    advice: Option<ShownAdvice<'a>>,
    findings: Vec<Found<'a>>,
    /// True if only the objects around an address or handle were read, not everything. `None` for a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
}

impl<'a> WithFindings<'a, Report> {
    /// Shows the report of one cluster.
    pub(super) fn of_report(report: &'a Report, advice: &'a Advice) -> Self {
        let mut shown_changes = ChangesOf::sum(std::iter::once(report));
        if let Some(shown) = &mut shown_changes
            && let Some(changes) = &report.changes
        {
            shown.not_read = Some(NotRead {
                not_read_now: &changes.not_read_now,
                not_read_then: &changes.not_read_then,
            });
        }
        Self {
            content: report,
            changes: shown_changes,
            advice: Some(ShownAdvice::new(advice)),
            findings: Found::of_report(report).collect(),
            partial: None,
        }
    }
}

impl<'a, T> WithFindings<'a, T> {
    /// Combines a view with its findings. The sources in `partly_read` were read only in part.
    pub(super) fn new(content: &'a T, findings: &'a [Finding], partly_read: &[Source]) -> Self {
        // A view is of one cluster, which needs no name.
        let found = |finding| Found {
            place: 0,
            cluster: "",
            finding,
            change: None,
        };
        let findings = findings.iter().map(found).collect();
        Self {
            content,
            changes: None,
            advice: None,
            findings,
            partial: Some(!partly_read.is_empty()),
        }
    }

    /// Adds findings between clusters, such as an address that two of them use, each with the other cluster's name.
    pub(super) fn and_between(mut self, between: &'a [(&'a str, &'a Finding)]) -> Self {
        let found = |&(cluster, finding): &(&'a str, &'a Finding)| Found {
            place: 0,
            cluster,
            finding,
            change: None,
        };
        self.findings.extend(between.iter().map(found));
        self
    }
}

/// The changes since an earlier report, for one cluster or for several together.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangesOf<'a> {
    pub since: Timestamp,
    pub new: usize,
    pub worse: usize,
    pub stay: usize,
    pub gone: Vec<&'a EarlierFinding>,
    pub not_checked: Vec<&'a EarlierFinding>,
    /// The sources that were not read; `None` for several clusters.
    #[serde(flatten)]
    not_read: Option<NotRead<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotRead<'a> {
    not_read_now: &'a [Source],
    not_read_then: &'a [Source],
}

impl<'a> ChangesOf<'a> {
    /// Adds up the changes in reports; `None` if no report was compared with an earlier one.
    pub(super) fn sum(reports: impl Iterator<Item = &'a Report>) -> Option<Self> {
        let mut times: Vec<Timestamp> = Vec::new();
        let mut counts: BTreeMap<Change, usize> = BTreeMap::new();
        let mut gone: Vec<&EarlierFinding> = Vec::new();
        let mut not_checked: Vec<&EarlierFinding> = Vec::new();
        for report in reports {
            let Some(changes) = &report.changes else {
                continue;
            };
            times.push(changes.since);
            for (change, number) in changes.counts(&report.findings) {
                *counts.entry(change).or_default() += number;
            }
            gone.extend(&changes.gone);
            not_checked.extend(&changes.not_checked);
        }

        let number = |change| counts.get(&change).copied().unwrap_or_default();
        Some(Self {
            // Of reports from several times, the earliest one tells since when all are compared.
            since: times.into_iter().min()?,
            new: number(Change::New),
            worse: number(Change::Worse),
            stay: number(Change::Stays),
            gone,
            not_checked,
            not_read: None,
        })
    }
}

/// A finding. It comes with its cluster if there are several clusters, and with its change if there is an earlier
/// report.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    /// The position of the cluster in the report.
    pub place: usize,
    /// The name of the cluster; empty if there is only one.
    pub cluster: &'a str,
    pub finding: &'a Finding,
    pub change: Option<Change>,
}

impl<'a> Found<'a> {
    /// Returns the findings of the only cluster.
    pub(super) fn of_report(report: &'a Report) -> impl Iterator<Item = Self> + Clone {
        let place = 0;
        let no_name = "";
        Self::of_cluster(report, place, no_name)
    }

    /// Returns the findings of a cluster. `place` is the position of the cluster in the report.
    pub(super) fn of_cluster(
        report: &'a Report,
        place: usize,
        cluster: &'a str,
    ) -> impl Iterator<Item = Self> + Clone {
        let change = |finding| report.changes.as_ref().map(|changes| changes.of(finding));
        report.findings.iter().map(move |finding| Self {
            place,
            cluster,
            finding,
            change: change(finding),
        })
    }

    pub(super) fn is_new_or_worse(self) -> bool {
        self.change.is_some_and(Change::is_new_or_worse)
    }

    /// Groups findings by severity and code, the worst first. In each group, new findings come first.
    pub(super) fn kinds(findings: &[Self]) -> Vec<Vec<Self>> {
        let mut findings = findings.to_vec();
        findings.sort_by_key(|found| !found.is_new_or_worse());
        by_kind(findings, |found| (found.finding.severity, found.finding.code))
    }

    pub(super) fn kind(self) -> (Severity, Code, usize) {
        (self.finding.severity, self.finding.code, self.place)
    }
}

/// A finding in YAML and JSON, with the command that repairs it if there is one.
#[derive(Serialize)]
struct Element<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
    #[serde(flatten)]
    finding: &'a Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
}

impl Serialize for Found<'_> {
    /// Writes a finding with its cluster, its change and its repair.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            cluster,
            finding,
            change,
            ..
        } = *self;
        let repair = finding
            .remedy()
            .map(|remedy| for_cluster(cluster, || remedy::in_document(&remedy)));
        Element {
            cluster,
            change,
            finding,
            repair,
        }
        .serialize(serializer)
    }
}

/// Writes each subject once, in the order of the findings. Control characters are escaped, so that each subject stays
/// on one line.
pub(super) fn write_names(findings: &[Found<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut written = HashSet::new();
    for Found { cluster, finding, .. } in findings {
        if written.insert((cluster, &finding.subject)) {
            let mut name = format!("{}/{}", finding.subject.kind(), finding.subject);
            if !cluster.is_empty() {
                name = format!("{cluster}/{name}");
            }
            writeln!(out, "{}", escape(&name))?;
        }
    }
    Ok(())
}

/// Writes the lines of an `--ignore` file that accepts the findings.
pub(super) fn write_ignore_file(findings: &[Found<'_>], out: &mut dyn Write) -> io::Result<()> {
    for Found { finding, cluster, .. } in findings {
        writeln!(out, "{}", ignore::line(finding, cluster))?;
    }
    Ok(())
}
