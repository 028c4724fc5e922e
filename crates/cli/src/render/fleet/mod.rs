//! The report of a check of many clusters, in every format that the report of one has.

mod diff;
mod history;
mod page;
mod pools;
mod schema;
mod text;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::fleet::Cluster;
use calipam_check::{Change, Changes, Finding, Severity};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub(crate) use self::diff::{DiffOfCluster, FleetDiff};
pub(crate) use self::history::{FleetHistory, HistoryOfCluster};
pub(crate) use self::pools::{FleetPools, PoolsOfCluster};
use super::document::{Detail, Document, unsupported};
use super::report::{junit, prometheus};
use super::table::Page;
use super::text::escape;
use crate::format::Format;
use crate::ignore;

/// Something of a cluster, for programs.
#[derive(Serialize)]
struct InCluster<'a, T> {
    cluster: &'a str,
    #[serde(flatten)]
    it: T,
}

/// A check of several clusters that came to an end.
pub(crate) struct FleetReport {
    /// When the clusters were checked.
    pub taken_at: Timestamp,
    /// Those with the worst findings first.
    pub clusters: Vec<Cluster>,
    /// What has changed in each of them, if there is an earlier report to compare with.
    pub changes: Option<Vec<Changes>>,
    pub notes: Vec<String>,
    pub took: Duration,
    /// With which the program will end.
    pub exit_code: u8,
}

impl FleetReport {
    pub(crate) fn new(
        taken_at: Timestamp,
        clusters: Vec<Cluster>,
        changes: Option<Vec<Changes>>,
        notes: Vec<String>,
    ) -> Self {
        Self { taken_at, clusters, changes, notes, took: Duration::ZERO, exit_code: 0 }
    }

    /// Puts those with the worst findings first.
    pub(crate) fn sort(&mut self) {
        let key = |cluster: &Cluster| {
            let worst = cluster.report.worst();
            let number = worst.and_then(|worst| cluster.report.counts.findings.get(&worst)).copied();
            (worst.is_none(), worst, std::cmp::Reverse(number), cluster.name.clone())
        };
        let clusters = std::mem::take(&mut self.clusters).into_iter();
        match self.changes.take() {
            None => {
                self.clusters = clusters.collect();
                self.clusters.sort_by_cached_key(key);
            }
            Some(changes) => {
                let mut both: Vec<(Cluster, Changes)> = clusters.zip(changes).collect();
                both.sort_by_cached_key(|(cluster, _)| key(cluster));
                let (clusters, changes) = both.into_iter().unzip();
                (self.clusters, self.changes) = (clusters, Some(changes));
            }
        }
    }

    /// The clusters, each with what has changed in it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Cluster, Option<&Changes>)> {
        let changes = self.changes.iter().flatten().map(Some).chain(std::iter::repeat(None));
        self.clusters.iter().zip(changes)
    }

    pub(crate) fn number_of_findings(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.report.findings.len()).sum()
    }

    /// All findings with their clusters, by severity, code and cluster.
    fn findings(&self) -> Vec<OfCluster<'_>> {
        let mut findings: Vec<OfCluster<'_>> = Vec::with_capacity(self.number_of_findings());
        for (cluster, changes) in self.each() {
            let change = |finding| changes.map(|changes| changes.of(finding));
            let all = cluster.report.findings.iter();
            findings.extend(all.map(|finding| OfCluster { cluster, finding, change: change(finding) }));
        }
        // Within a cluster they are in order already.
        findings.sort_by_key(|of| (of.finding.severity, of.finding.code));
        findings
    }

    /// Findings of all clusters by severity.
    fn counts(&self) -> BTreeMap<Severity, usize> {
        let mut counts: BTreeMap<Severity, usize> = Severity::ALL.map(|severity| (severity, 0)).into();
        for (severity, number) in self.clusters.iter().flat_map(|cluster| &cluster.report.counts.findings) {
            *counts.entry(*severity).or_default() += number;
        }
        counts
    }

    /// How old the data of a cluster is; `None` if there is none.
    fn age(&self, cluster: &Cluster) -> Option<SignedDuration> {
        let taken_at = cluster.report.cluster.taken_at;
        cluster.is_read.then(|| self.taken_at.duration_since(taken_at).max(SignedDuration::ZERO))
    }
}

/// A finding with its cluster.
struct OfCluster<'a> {
    cluster: &'a Cluster,
    finding: &'a Finding,
    change: Option<Change>,
}

impl Document for FleetReport {
    fn kind(&self) -> &'static str {
        "FleetReport"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        text::write(self, detail, page, out)
    }

    fn schema(&self) -> impl Serialize {
        schema::Written::new(self)
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => names(self, out),
            Format::Prometheus => prometheus::write_fleet(self, out),
            Format::Junit => junit::write_fleet(self, out),
            Format::Html => page::write(self, out),
            Format::Ignore => self
                .findings()
                .iter()
                .try_for_each(|of| writeln!(out, "{}", ignore::line_in(of.finding, Some(&of.cluster.name)))),
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}

/// Cluster and subject, each once, in the order of the findings.
fn names(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let mut written = std::collections::HashSet::new();
    for OfCluster { cluster, finding, .. } in report.findings() {
        let name = format!("{}/{}/{}", cluster.name, finding.subject.kind(), finding.subject);
        if !written.contains(&name) {
            writeln!(out, "{}", escape(&name))?;
            written.insert(name);
        }
    }
    Ok(())
}
