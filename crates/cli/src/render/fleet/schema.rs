//! A fleet's report in YAML and JSON.

use std::collections::BTreeMap;

use calipam_check::fleet::Cluster;
use calipam_check::views::PoolList;
use calipam_check::{Report, Severity};
use calipam_plan::advice::Advice;
use jiff::Timestamp;
use serde::Serialize;

use super::FleetReport;
use crate::hints::for_cluster;
use crate::render::advice::ShownAdvice;
use crate::render::findings::{ChangesOf, Found};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FleetReportJson<'a> {
    taken_at: Timestamp,
    notes: &'a [String],
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<ChangesOf<'a>>,
    clusters: Vec<OneCluster<'a>>,
    findings: Vec<Found<'a>>,
}

#[derive(Serialize)]
struct Counts {
    clusters: usize,
    /// The number of clusters that were not read.
    unreadable: usize,
    allocations: usize,
    findings: BTreeMap<Severity, usize>,
}

#[derive(Serialize)]
struct OneCluster<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    read: bool,
    /// The age of the cluster's data in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<i64>,
    /// The number of findings in other clusters' reports that concern this cluster, too.
    shared: usize,
    #[serde(flatten)]
    report: &'a Report,
    #[serde(flatten)]
    advice: ShownAdvice<'a>,
    #[serde(flatten)]
    pools: &'a PoolList,
}

impl<'a> FleetReportJson<'a> {
    /// Shows the report of a fleet as a document.
    pub(super) fn new(report: &'a FleetReport) -> Self {
        let clusters = report
            .with_advice()
            .map(|(cluster, advice)| shown_cluster(report, cluster, advice));
        Self {
            taken_at: report.taken_at,
            notes: &report.notes,
            counts: Counts::new(report),
            changes: report.changes(),
            clusters: clusters.collect(),
            findings: report.findings(),
        }
    }
}

impl Counts {
    /// Adds up the numbers of all clusters.
    fn new(report: &FleetReport) -> Self {
        let clusters = &report.clusters;
        let allocations = clusters.iter().map(|cluster| cluster.report.counts.allocations);
        Self {
            clusters: clusters.len(),
            unreadable: clusters.iter().filter(|cluster| !cluster.is_read).count(),
            allocations: allocations.sum(),
            findings: report.counts(),
        }
    }
}

/// Shows the report of one cluster of a fleet.
fn shown_cluster<'a>(report: &'a FleetReport, cluster: &'a Cluster, advice: &'a Advice) -> OneCluster<'a> {
    OneCluster {
        name: &cluster.name,
        group: cluster.group.as_deref(),
        labels: &cluster.labels,
        read: cluster.is_read,
        age: report.age(cluster).map(|age| age.as_secs()),
        shared: cluster.shared.len(),
        report: &cluster.report,
        advice: for_cluster(&cluster.name, || ShownAdvice::new(advice)),
        pools: &cluster.pools,
    }
}
