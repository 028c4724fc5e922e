//! The report on many clusters, in every format that the report on one cluster has.

mod diff;
mod history;
mod list;
mod page;
mod schema;
mod text;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::fleet::Cluster;
use calipam_check::{Changes, Code, Severity};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub(crate) use self::diff::{DiffOfCluster, FleetDiff};
pub(crate) use self::history::{FleetHistory, HistoryOfCluster};
pub(crate) use self::list::{FleetList, ListOfCluster};
use super::document::{Document, unsupported};
use super::findings::{ChangesOf, Found, write_ignore_file, write_names};
use super::page::Text;
use super::report::{junit, prometheus};
use crate::format::Format;

/// A finished check of several clusters.
pub(crate) struct FleetReport {
    /// The time of the check.
    pub taken_at: Timestamp,
    /// The clusters; after [`Self::sort`], those with the worst findings come first.
    pub clusters: Vec<Cluster>,
    /// The changes in each cluster, if there is an earlier report to compare with.
    pub changes: Option<Vec<Changes>>,
    pub notes: Vec<String>,
    pub took: Duration,
    /// The exit code of the program.
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

    /// Sorts the clusters, those with the worst findings first.
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

    /// The clusters, each with its changes.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Cluster, Option<&Changes>)> + Clone {
        let changes = self.changes.iter().flatten().map(Some).chain(std::iter::repeat(None));
        self.clusters.iter().zip(changes)
    }

    /// The changes in all clusters, if there is an earlier report.
    fn changed(&self) -> Option<ChangesOf<'_>> {
        let each = self.each().filter_map(|(cluster, changes)| Some((changes?, &cluster.report)));
        self.changes.as_ref().map(|_| ChangesOf::of(each))
    }

    pub(crate) fn number_of_findings(&self) -> usize {
        self.clusters.iter().map(|cluster| cluster.report.findings.len()).sum()
    }

    /// All findings with their clusters, by severity, code and cluster.
    fn findings(&self) -> Vec<Found<'_>> {
        let mut findings: Vec<Found<'_>> = Vec::with_capacity(self.number_of_findings());
        for (place, (cluster, changes)) in self.each().enumerate() {
            let change = |finding| changes.map(|changes| changes.of(finding));
            let all = cluster.report.findings.iter();
            let found = |finding| Found { place, cluster: &cluster.name, finding, change: change(finding) };
            findings.extend(all.map(found));
        }
        // The findings of a cluster are sorted already.
        findings.sort_by_key(|of| (of.finding.severity, of.finding.code));
        findings
    }

    /// The numbers of findings of all clusters by severity.
    fn counts(&self) -> BTreeMap<Severity, usize> {
        let mut counts: BTreeMap<Severity, usize> = Severity::ALL.map(|severity| (severity, 0)).into();
        for (severity, number) in self.clusters.iter().flat_map(|cluster| &cluster.report.counts.findings) {
            *counts.entry(*severity).or_default() += number;
        }
        counts
    }

    /// The age of a cluster's data; `None` if there is no data.
    fn age(&self, cluster: &Cluster) -> Option<SignedDuration> {
        let taken_at = cluster.report.cluster.taken_at;
        cluster.is_read.then(|| self.taken_at.duration_since(taken_at).max(SignedDuration::ZERO))
    }
}

impl Document for FleetReport {
    fn kind(&self) -> &'static str {
        "FleetReport"
    }

    fn text(&self, text: &mut Text) {
        text::write(self, text);
    }

    fn schema(&self) -> impl Serialize {
        schema::FleetReportJson::new(self)
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => write_names(&self.findings(), out),
            Format::Prometheus => prometheus::write_fleet(self, out),
            Format::Junit => {
                let codes = Code::ALL.iter().copied();
                let each = self.each().map(|(of, changes)| (of.name.as_str(), &of.report, changes));
                junit::write(each, codes, self.took, out)
            }
            Format::Html => page::write(self, out),
            Format::Ignore => write_ignore_file(&self.findings(), out),
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}
