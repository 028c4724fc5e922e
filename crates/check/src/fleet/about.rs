//! The findings between clusters about one address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Cluster, SharedFinding};
use crate::finding::{Finding, Subject};

/// Findings between clusters, each with the name of the cluster whose report has it.
pub type Between<'c> = Vec<(&'c str, &'c Finding)>;

/// Returns the findings between compared clusters about an address or a pool around it, by the name of each cluster that
/// they concern.
pub fn between(clusters: &[Cluster], address: IpAddr) -> BTreeMap<&str, Between<'_>> {
    let mut by_cluster: BTreeMap<&str, Between<'_>> = BTreeMap::new();
    for reporting in clusters {
        for finding in &reporting.report.findings {
            if !finding.code.is_of_fleet() || !is_about(finding, address) {
                continue;
            }
            let shared = SharedFinding {
                cluster: reporting.name.clone(),
                key: finding.key(),
            };
            for cluster in clusters {
                if cluster.name == reporting.name || cluster.shared.contains(&shared) {
                    let concerning = by_cluster.entry(&cluster.name).or_default();
                    concerning.push((reporting.name.as_str(), finding));
                }
            }
        }
    }
    by_cluster
}

fn is_about(finding: &Finding, address: IpAddr) -> bool {
    match &finding.subject {
        Subject::Address(subject) => *subject == address,
        Subject::Pool(cidr) => cidr.contains(&address),
        _ => false,
    }
}
