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

    /// Makes a cluster that cannot be read. Its only finding reports this.
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
    let mut counts: BTreeMap<&str, &Cluster> = BTreeMap::new();
    for cluster in clusters
        .iter()
        .filter(|cluster| !cluster.report.cluster.guid.is_empty())
    {
        let counted = counts.entry(&cluster.report.cluster.guid).or_insert(cluster);
        if rank(cluster) > rank(counted) {
            *counted = cluster;
        }
    }
    let counts: BTreeMap<String, String> = counts
        .into_iter()
        .map(|(guid, counted)| (guid.to_owned(), counted.name.clone()))
        .collect();

    let mut said = Vec::new();
    clusters.retain_mut(|cluster| {
        let ClusterIdentity { guid, location, .. } = &cluster.report.cluster;
        let Some(other) = counts.get(guid).filter(|counted| **counted != cluster.name) else {
            return true;
        };
        let reason = format!("it has the same GUID as {other}, and only one of them counts");
        if cluster.is_live {
            said.push(format!("{} is left out: {reason}", cluster.name));
            return false;
        }
        let unreadable = Cluster::unreadable(&cluster.name, location.clone(), reason);
        (cluster.report, cluster.pools, cluster.ranges) =
            (unreadable.report, unreadable.pools, unreadable.ranges);
        cluster.is_read = false;
        true
    });
    said
}

/// Keeps the shared findings that are still in the reports, after other findings were left out of these.
pub fn narrow_shared(clusters: &mut [Cluster]) {
    let mut reported = BTreeSet::new();
    for Cluster { name, report, .. } in &*clusters {
        let between = report
            .findings
            .iter()
            .filter(|finding| finding.code.is_of_fleet());
        reported.extend(between.map(|finding| SharedFinding {
            cluster: name.clone(),
            key: finding.key(),
        }));
    }
    for cluster in clusters {
        cluster.shared.retain(|finding| reported.contains(finding));
    }
}

/// Compares the clusters within each group, and adds the findings to their reports.
pub fn compare(clusters: &mut [Cluster]) {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, cluster) in clusters.iter().enumerate().filter(|(_, cluster)| cluster.is_read) {
        if let Some(group) = &cluster.group {
            groups.entry(group).or_default().push(position);
        }
    }
    let mut of_each: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    let mut shared: Vec<(usize, SharedFinding)> = Vec::new();
    let mut overlapping: Vec<(usize, IpNet)> = Vec::new();
    for positions in groups.values().filter(|positions| positions.len() > 1) {
        let group: Vec<&Cluster> = positions.iter().map(|position| &clusters[*position]).collect();
        let mut of_group = Vec::new();
        let of_pools = pools::check(&group, &mut of_group);
        overlapping.extend(
            of_pools
                .into_iter()
                .map(|(member, pool)| (positions[member], pool)),
        );
        addresses::check(&group, &mut of_group);
        settings::check(&group, &mut of_group);
        for found in of_group {
            for other in found.others {
                let finding = SharedFinding {
                    cluster: group[found.cluster].name.clone(),
                    key: found.finding.key(),
                };
                shared.push((positions[other], finding));
            }
            let position = positions[found.cluster];
            of_each.entry(position).or_default().push(found.finding);
        }
    }
    for (position, findings) in of_each {
        clusters[position].report.add(findings);
    }
    for (position, finding) in shared {
        clusters[position].shared.push(finding);
    }
    for (position, pool) in overlapping {
        clusters[position].overlapping.insert(pool);
    }
}
