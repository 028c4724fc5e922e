//! Findings between clusters that route to each other. Clusters are not compared in pairs: their ranges are sorted
//! together, and addresses are compared only where ranges of several clusters overlap.

mod about;
mod addresses;
mod earlier;
mod free;
mod pools;
mod ranges;
mod settings;
#[cfg(test)]
mod tests;
mod used;

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::IpNet;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

pub use self::about::{Between, between};
pub use self::earlier::EarlierFleet;
pub use self::free::free_ranges;
pub use self::ranges::{Point, Ranges};
pub use self::used::{Used, UsedBlock};
use crate::code::Code;
use crate::finding::{Evidence, Finding, FindingKey, Subject, UnreadableEvidence};
use crate::names::short;
use crate::report::{ClusterIdentity, Report};
use crate::views::{self, PoolList};
use crate::{Context, Options};

/// The maximum number of other clusters' objects that a finding lists. Further objects are only counted.
const LISTED: usize = 16;

/// A cluster in a fleet, with the data that is kept after its check.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The cluster's name in the fleet.
    pub name: String,
    /// The cluster's group. Clusters in one group route to each other; a cluster without a group routes to no other.
    pub group: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The cluster's service ranges, from the fleet file. Calico's data does not have them.
    pub services: Vec<IpNet>,
    /// The cluster's own report, to which [`compare`] adds findings between clusters.
    pub report: Report,
    pub pools: PoolList,
    pub ranges: Ranges,
    /// The CIDRs of pools that overlap pools of other clusters in its group. [`compare`] sets them.
    pub overlapping: BTreeSet<IpNet>,
    /// The findings in other clusters' reports that concern this cluster, too. [`compare`] sets them, and [`narrow_shared`]
    /// leaves out those that the reports no longer have.
    pub shared: Vec<SharedFinding>,
    /// False for a cluster that cannot be read.
    pub is_read: bool,
    /// False for a cluster that was read from a file, which can be a copy or have any content.
    pub is_live: bool,
}

/// A finding between clusters, which is in the report of one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedFinding {
    /// The name of the cluster whose report has the finding.
    pub cluster: String,
    pub key: FindingKey,
}

/// A new finding between clusters of a group. Clusters are positions in the group.
struct NewFinding {
    /// The cluster whose report gets the finding.
    cluster: usize,
    /// The other clusters that the finding concerns.
    others: BTreeSet<usize>,
    finding: Finding,
}

impl Cluster {
    /// Makes a cluster without a name or group.
    pub fn of(report: Report, snapshot: &Snapshot) -> Self {
        let context = Context::new(snapshot, &Options::default());
        Self::new(report, views::pools_in(&context), Ranges::in_context(&context))
    }

    /// Creates a cluster that was read, without a name and labels.
    fn new(report: Report, pools: PoolList, ranges: Ranges) -> Self {
        Self {
            name: String::new(),
            group: None,
            labels: BTreeMap::new(),
            services: Vec::new(),
            report,
            pools,
            ranges,
            overlapping: BTreeSet::new(),
            shared: Vec::new(),
            is_read: true,
            is_live: true,
        }
    }

    /// Makes a cluster that cannot be read, without pools and addresses. Its only finding reports this, with the
    /// reason.
    pub fn unreadable(name: &str, location: String, reason: String) -> Self {
        let subject = Subject::Cluster(name.into());
        let message = format!("cannot be read: {}", short(&reason));
        let evidence = Evidence::Unreadable(Box::new(UnreadableEvidence { reason }));
        let finding = Finding::new(Code::ClusterUnreadable, subject, message, evidence);

        let mut report = Report {
            cluster: ClusterIdentity {
                location,
                ..ClusterIdentity::default()
            },
            ..Report::default()
        };
        report.add(vec![finding]);

        let pools = PoolList {
            pools: Vec::new(),
            outside: None,
        };
        Self {
            is_read: false,
            ..Self::new(report, pools, Ranges::default())
        }
    }
}

/// Keeps one cluster for each GUID: preferably a live one, then one that is not from the future, then the newest.
/// Removes other live clusters with the same GUID, and returns a note about each. Keeps other clusters that were read
/// from files, but marks them as unreadable, since the GUID in a file proves nothing.
pub fn remove_duplicates(clusters: &mut Vec<Cluster>, now: Timestamp) -> Vec<String> {
    let rank = |cluster: &Cluster| {
        let taken_at = cluster.report.cluster.taken_at;
        (cluster.is_live, taken_at <= now, taken_at)
    };
    let mut best: BTreeMap<&str, &Cluster> = BTreeMap::new();
    for cluster in clusters.iter() {
        let guid = &cluster.report.cluster.guid;
        if guid.is_empty() {
            continue;
        }
        let best_with_guid = best.entry(guid).or_insert(cluster);
        if rank(cluster) > rank(best_with_guid) {
            *best_with_guid = cluster;
        }
    }
    let best_names: BTreeMap<String, String> = best
        .into_iter()
        .map(|(guid, cluster)| (guid.to_owned(), cluster.name.clone()))
        .collect();

    let mut notes = Vec::new();
    clusters.retain_mut(|cluster| {
        let ClusterIdentity { guid, location, .. } = &cluster.report.cluster;
        let other = best_names.get(guid).filter(|best| **best != cluster.name);
        let Some(other) = other else {
            return true;
        };
        let reason = format!("it has the same GUID as {other}, and only one of them counts");
        if cluster.is_live {
            notes.push(format!("{} is left out: {reason}", cluster.name));
            return false;
        }
        let unreadable = Cluster::unreadable(&cluster.name, location.clone(), reason);
        cluster.report = unreadable.report;
        cluster.pools = unreadable.pools;
        cluster.ranges = unreadable.ranges;
        cluster.is_read = false;
        true
    });
    notes
}

/// Keeps the shared findings that are still in the reports, after other findings were left out of these.
pub fn narrow_shared(clusters: &mut [Cluster]) {
    let mut reported = BTreeSet::new();
    for cluster in clusters.iter() {
        for finding in &cluster.report.findings {
            if finding.code.is_of_fleet() {
                reported.insert(SharedFinding {
                    cluster: cluster.name.clone(),
                    key: finding.key(),
                });
            }
        }
    }
    for cluster in clusters {
        cluster.shared.retain(|finding| reported.contains(finding));
    }
}

/// Compares the clusters within each group, and adds the findings to their reports.
pub fn compare(clusters: &mut [Cluster]) {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, cluster) in clusters.iter().enumerate() {
        if cluster.is_read
            && let Some(group) = &cluster.group
        {
            groups.entry(group).or_default().push(position);
        }
    }

    let mut findings_by_cluster: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    let mut shared: Vec<(usize, SharedFinding)> = Vec::new();
    let mut overlapping: Vec<(usize, IpNet)> = Vec::new();
    for positions in groups.values().filter(|positions| positions.len() > 1) {
        let group: Vec<&Cluster> = positions.iter().map(|position| &clusters[*position]).collect();
        let mut new_findings = Vec::new();
        for (member, pool) in pools::check(&group, &mut new_findings) {
            overlapping.push((positions[member], pool));
        }
        addresses::check(&group, &mut new_findings);
        settings::check(&group, &mut new_findings);

        for new_finding in new_findings {
            for other in new_finding.others {
                let finding = SharedFinding {
                    cluster: group[new_finding.cluster].name.clone(),
                    key: new_finding.finding.key(),
                };
                shared.push((positions[other], finding));
            }
            let position = positions[new_finding.cluster];
            findings_by_cluster
                .entry(position)
                .or_default()
                .push(new_finding.finding);
        }
    }

    for (position, findings) in findings_by_cluster {
        clusters[position].report.add(findings);
    }
    for (position, finding) in shared {
        clusters[position].shared.push(finding);
    }
    for (position, pool) in overlapping {
        clusters[position].overlapping.insert(pool);
    }
}
