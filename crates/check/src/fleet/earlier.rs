//! Earlier reports on a fleet, and the changes in each cluster since such a report.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Cluster;
use crate::code::Code;
use crate::earlier::{
    self, Changes, EarlierFinding, EarlierReport, NoReport, WrittenChanges, WrittenCluster,
};
use crate::finding::Finding;

/// A report from `calipam check -o json` or `-o yaml` on several clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierFleet {
    pub taken_at: Timestamp,
    /// The reports, by cluster name.
    pub clusters: BTreeMap<String, EarlierReport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedClusters {
    taken_at: Timestamp,
    clusters: Vec<WrittenCluster>,
    findings: Vec<EarlierFinding>,
    #[serde(default)]
    changes: WrittenChanges,
}

impl EarlierFleet {
    /// Reads a report.
    ///
    /// # Errors
    /// If it is not a report on a fleet, or one of its findings has no code, no subject or no cluster.
    pub fn decode(report: &Value) -> Result<Self, NoReport> {
        let ReportedClusters {
            taken_at,
            clusters,
            findings,
            changes,
        } = earlier::decode(report, "FleetReport", NoReport::NotOfFleet)?;
        let mut reports: BTreeMap<String, EarlierReport> = BTreeMap::new();
        for mut cluster in clusters {
            let name = std::mem::take(&mut cluster.name);
            let report = EarlierReport {
                taken_at,
                ..EarlierReport::of_cluster(cluster)
            };
            reports.insert(name, report);
        }

        for finding in findings.into_iter().chain(changes.not_checked) {
            let Some(report) = reports.get_mut(&finding.cluster) else {
                return Err(NoReport::OfNoCluster(finding.cluster));
            };
            report.findings.push(finding);
        }
        Ok(Self {
            taken_at,
            clusters: reports,
        })
    }

    /// Takes a cluster's earlier report out of this value, and returns the changes since that report. Everything is new
    /// if there is no such report or its GUID differs. `dropped` are the findings whose objects had changed by the
    /// second read. If not all clusters were read this time (`all_read` is false), earlier findings between clusters
    /// that are absent now count as not checked.
    pub fn changes(&mut self, cluster: &Cluster, dropped: &[Finding], all_read: bool) -> Changes {
        let guid = &cluster.report.cluster.guid;
        let earlier = match self.clusters.remove(&cluster.name) {
            Some(earlier) if !cluster.is_read || earlier.guid.is_empty() || earlier.guid == *guid => earlier,
            // A report that has checked nothing.
            _ => EarlierReport {
                guid: guid.clone(),
                taken_at: self.taken_at,
                read: Some(BTreeSet::new()),
                findings: Vec::new(),
            },
        };
        let mut changes = Changes::since(
            earlier,
            &cluster.report.coverage,
            &cluster.report.findings,
            dropped,
        );
        if !all_read {
            let between_clusters = changes.gone.extract_if(.., |finding| is_between(finding));
            changes.not_checked.extend(between_clusters);
        }
        changes
    }
}

/// True for an earlier finding between clusters.
fn is_between(finding: &EarlierFinding) -> bool {
    let code = finding.code.parse::<Code>();
    code.is_ok_and(|code| code.is_of_fleet() && code != Code::ClusterUnreadable)
}
