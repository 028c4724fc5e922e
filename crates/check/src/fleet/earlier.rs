//! Earlier reports on a fleet, and the changes in each cluster since such a report.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Cluster;
use crate::code::Code;
use crate::earlier::{self, Changes, EarlierFinding, EarlierReport, NoReport, OfCluster, WrittenChanges};
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
    clusters: Vec<OfCluster>,
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
        let of_each = clusters.into_iter().map(|mut of| {
            let name = std::mem::take(&mut of.name);
            (
                name,
                EarlierReport {
                    taken_at,
                    ..EarlierReport::of_cluster(of)
                },
            )
        });
        let mut clusters: BTreeMap<String, EarlierReport> = of_each.collect();
        for finding in findings.into_iter().chain(changes.not_checked) {
            let of = clusters.get_mut(&finding.cluster);
            of.ok_or_else(|| NoReport::OfNoCluster(finding.cluster.clone()))?
                .findings
                .push(finding);
        }
        Ok(Self { taken_at, clusters })
    }

    /// Takes a cluster's earlier report out of this value, and returns the changes since that report. Everything is new
    /// if there is no such report or its GUID differs. `dropped` are the findings whose objects had changed by the
    /// second read. If not all clusters were read this time (`all_read` is false), earlier findings between clusters
    /// that are absent now count as not checked.
    pub fn changes(&mut self, cluster: &Cluster, dropped: &[Finding], all_read: bool) -> Changes {
        let guid = &cluster.report.cluster.guid;
        let known = self.clusters.remove(&cluster.name);
        let is_same =
            |earlier: &EarlierReport| !cluster.is_read || earlier.guid.is_empty() || earlier.guid == *guid;
        let earlier = known.filter(is_same).unwrap_or_else(|| EarlierReport {
            guid: guid.clone(),
            taken_at: self.taken_at,
            read: Some(BTreeSet::new()),
            findings: Vec::new(),
        });
        let mut changes = Changes::since(
            earlier,
            &cluster.report.coverage,
            &cluster.report.findings,
            dropped,
        );
        let is_between = |finding: &mut EarlierFinding| {
            let code = finding.code.parse::<Code>();
            code.is_ok_and(|code| code.is_of_fleet() && code != Code::ClusterUnreadable)
        };
        if !all_read {
            let between: Vec<EarlierFinding> = changes.gone.extract_if(.., is_between).collect();
            changes.not_checked.extend(between);
        }
        changes
    }
}
