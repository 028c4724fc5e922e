//! The report on many clusters, in every format that the report on one cluster has.

mod list;
mod page;
mod schema;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::fleet::{Cluster, narrow_shared};
use calipam_check::{Code, Report, Severity};
use calipam_plan::advice::Advice;
use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, Serializer};

pub(crate) use self::list::{FleetList, ListOfCluster, Unreadable};
use super::document::{Document, unsupported};
use super::findings::{ChangesOf, Found, write_ignore_file, write_names};
use super::output::Text;
use super::report::{RunMetrics, junit, prometheus};
use crate::format::Format;

/// A finished check of several clusters.
#[derive(Clone)]
pub(crate) struct FleetReport {
    /// The time of the check.
    pub taken_at: Timestamp,
    /// The clusters, those with the worst findings first.
    pub clusters: Vec<Cluster>,
    /// The causes and cures of each cluster, in the same order.
    pub advice: Vec<Advice>,
    pub notes: Vec<String>,
    pub took: Duration,
    /// The exit code of the program.
    pub exit_code: u8,
}

impl FleetReport {
    /// Creates the report of a fleet. The clusters with the worst findings come first.
    pub(crate) fn new(
        taken_at: Timestamp,
        mut clusters: Vec<Cluster>,
        mut advice: BTreeMap<String, Advice>,
        notes: Vec<String>,
        took: Duration,
        exit_code: u8,
    ) -> Self {
        narrow_shared(&mut clusters);
        clusters.sort_by_cached_key(rank);
        // The advice is in the order of the clusters, without what is about findings that were left out.
        let mut advice_in_order = Vec::new();
        for cluster in &clusters {
            let mut advice_of_cluster = advice.remove(&cluster.name).unwrap_or_default();
            advice_of_cluster.narrow(&cluster.report);
            advice_in_order.push(advice_of_cluster);
        }
        Self {
            taken_at,
            clusters,
            advice: advice_in_order,
            notes,
            took,
            exit_code,
        }
    }

    /// Returns a copy of the report with only the findings that are new or worse than in the earlier report.
    pub(crate) fn new_or_worse(&self) -> Self {
        let mut copy = self.clone();
        for cluster in &mut copy.clusters {
            cluster.report = cluster.report.new_or_worse();
        }
        narrow_shared(&mut copy.clusters);
        copy
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = &Report> + Clone {
        self.clusters.iter().map(|cluster| &cluster.report)
    }

    /// Returns the clusters with their causes and cures.
    fn with_advice(&self) -> impl Iterator<Item = (&Cluster, &Advice)> {
        self.clusters.iter().zip(&self.advice)
    }

    /// Returns the changes in all clusters, if there is an earlier report.
    fn changes(&self) -> Option<ChangesOf<'_>> {
        ChangesOf::sum(self.reports())
    }

    /// Returns all findings with their clusters, by severity, code and cluster.
    fn findings(&self) -> Vec<Found<'_>> {
        let mut findings: Vec<Found<'_>> = Vec::new();
        for (place, cluster) in self.clusters.iter().enumerate() {
            findings.extend(Found::of_cluster(&cluster.report, place, &cluster.name));
        }
        // The sort is stable, and the findings of each cluster are already sorted.
        findings.sort_by_key(|found| (found.finding.severity, found.finding.code));
        findings
    }

    /// Returns the numbers of findings in all clusters by severity.
    fn counts(&self) -> BTreeMap<Severity, usize> {
        let mut counts: BTreeMap<Severity, usize> = Severity::ALL.map(|severity| (severity, 0)).into();
        for (severity, number) in self.reports().flat_map(|report| &report.counts.findings) {
            *counts.entry(*severity).or_default() += number;
        }
        counts
    }

    /// Writes metrics of the run and of each cluster.
    fn write_metrics(&self, out: &mut dyn Write) -> io::Result<()> {
        let run = RunMetrics {
            up: true,
            took: self.took,
            exit_code: self.exit_code,
            live: None,
        };
        prometheus::write_fleet(&run, &self.clusters, out)
    }

    /// Writes JUnit XML with a test suite for each cluster.
    fn write_junit(&self, out: &mut dyn Write) -> io::Result<()> {
        let codes = Code::ALL.iter().copied();
        let suites = self
            .with_advice()
            .map(|(cluster, advice)| (cluster.name.as_str(), &cluster.report, advice));
        junit::write(suites, codes, self.took, out)
    }

    /// Returns the age of a cluster's data; `None` if there is no data.
    fn age(&self, cluster: &Cluster) -> Option<SignedDuration> {
        if !cluster.is_read {
            return None;
        }
        let age = self.taken_at.duration_since(cluster.report.cluster.taken_at);
        Some(age.max(SignedDuration::ZERO))
    }
}

/// The sort key of a cluster in a report.
type Rank = (bool, Option<Severity>, Reverse<usize>, bool, String);

/// Returns the rank of a cluster: the lowest for the one with the worst findings, and the most of them. Equal clusters
/// are in the order of their names.
fn rank(cluster: &Cluster) -> Rank {
    let worst = cluster.report.worst();
    let number_of_worst = match worst {
        Some(worst) => cluster
            .report
            .counts
            .findings
            .get(&worst)
            .copied()
            .unwrap_or_default(),
        None => 0,
    };
    // True comes after false.
    let has_no_findings = worst.is_none();
    let shares_none = cluster.shared.is_empty();
    let name = cluster.name.clone();
    (
        has_no_findings,
        worst,
        Reverse(number_of_worst),
        shares_none,
        name,
    )
}

impl Serialize for FleetReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        schema::FleetReportJson::new(self).serialize(serializer)
    }
}

impl Document for FleetReport {
    const KIND: &'static str = "FleetReport";

    fn text(&self, out: &mut Text) {
        text::write(self, out);
    }

    /// Writes the report in a format for programs.
    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Name => write_names(&self.findings(), out),
            Format::Prometheus => self.write_metrics(out),
            Format::Junit => self.write_junit(out),
            Format::Html => page::write(self, out),
            Format::Ignore => write_ignore_file(&self.findings(), out),
            // The common formats are not written here.
            Format::Table | Format::Wide | Format::Yaml | Format::Json => {
                Err(unsupported(self.kind(), format))
            }
        }
    }
}
