//! Addresses that several clusters use.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_model::cidr_set::runs;

use super::used::UsedBlock;
use super::{Cluster, LISTED, NewFinding};
use crate::code::{Code, Severity};
use crate::finding::{Elsewhere, ElsewhereEvidence, ElsewhereKind, Evidence, Finding, Subject};
use crate::names::short;

/// An address in use, the position of its cluster in the group, and its user.
type InUse<'c> = (IpAddr, usize, &'c str);

/// Adds findings about addresses that several clusters of a group use. Only blocks that overlap blocks of another
/// cluster are compared address by address.
pub(super) fn check(group: &[&Cluster], found: &mut Vec<NewFinding>) {
    let mut leaked: Vec<HashSet<IpAddr>> = Vec::new();
    let mut blocks: Vec<(&UsedBlock, usize)> = Vec::new();
    for (cluster, member) in group.iter().enumerate() {
        leaked.push(member.report.leaked().collect());
        for block in member.ranges.used.blocks() {
            blocks.push((block, cluster));
        }
    }
    blocks.sort_by_key(|(block, cluster)| (block.cidr, *cluster));

    for run in runs(&blocks, |(block, _)| block.cidr) {
        let first_cluster = run[0].1;
        let is_of_several_clusters = run.iter().any(|(_, cluster)| *cluster != first_cluster);
        if is_of_several_clusters {
            compare(group, &leaked, run, found);
        }
    }
}

/// Compares the addresses of blocks that overlap, and adds a finding for each address that several clusters use.
fn compare(
    group: &[&Cluster],
    leaked: &[HashSet<IpAddr>],
    run: &[(&UsedBlock, usize)],
    found: &mut Vec<NewFinding>,
) {
    let mut in_use: Vec<InUse<'_>> = Vec::new();
    for (block, cluster) in run {
        let addresses = block.addresses();
        in_use.extend(addresses.map(|(address, user)| (address, *cluster, user)));
    }
    in_use.sort_unstable();

    for uses in in_use.chunk_by(|a, b| a.0 == b.0) {
        let mut clusters: BTreeSet<usize> = uses.iter().map(|(_, cluster, _)| *cluster).collect();
        if clusters.len() < 2 {
            continue;
        }
        let address = uses[0].0;
        let is_live = |cluster: usize| !leaked[cluster].contains(&address);
        let live_clusters = clusters.iter().filter(|cluster| is_live(**cluster)).count();
        // Once leaked addresses are released, at most one cluster may still use the address.
        let severity = if live_clusters < 2 {
            Severity::Warning
        } else {
            Code::AddressInSeveralClusters.severity()
        };

        // A clash is one finding, of the first cluster, which names the others.
        let first_cluster = uses[0].1;
        let finding = make_finding(group, uses, first_cluster, clusters.len(), is_live);
        clusters.remove(&first_cluster);
        found.push(NewFinding {
            cluster: first_cluster,
            others: clusters,
            finding: finding.with_severity(severity),
        });
    }
}

/// Makes the finding for one of the clusters that use an address. `uses` are ordered by cluster.
fn make_finding(
    group: &[&Cluster],
    uses: &[InUse<'_>],
    here: usize,
    clusters: usize,
    is_live: impl Fn(usize) -> bool,
) -> Finding {
    let address = uses[0].0;
    let first_users = uses.chunk_by(|a, b| a.1 == b.1).filter_map(<[_]>::first);
    let of_others = first_users
        .filter(|(_, cluster, _)| *cluster != here)
        .take(LISTED);
    let others: Vec<Elsewhere> = of_others
        .map(|(address, cluster, user)| {
            let kind = if is_live(*cluster) {
                ElsewhereKind::User
            } else {
                ElsewhereKind::Leaked
            };
            Elsewhere::new(&group[*cluster].name, kind, user, (*address).into())
        })
        .collect();
    let user = uses
        .iter()
        .find(|(_, cluster, _)| *cluster == here)
        .map_or("", |(.., user)| *user);
    let further = clusters - 1 - others.len();
    let evidence = ElsewhereEvidence {
        here: user.to_owned(),
        others,
        further,
    };
    let are_live = is_live(here)
        && evidence
            .others
            .iter()
            .all(|other| other.kind == ElsewhereKind::User);
    let verb = |is_live: bool| {
        if is_live {
            "used by"
        } else {
            "recorded as leaked for"
        }
    };
    let users_elsewhere = evidence.list(|other| {
        if are_live {
            format!("{} in {}", other.name, other.cluster)
        } else {
            let is_live = other.kind == ElsewhereKind::User;
            format!("{} {} in {}", verb(is_live), other.name, other.cluster)
        }
    });
    let conjunction = if are_live { "and by" } else { "and" };
    let message = format!(
        "is {} {}, {conjunction} {users_elsewhere}",
        verb(is_live(here)),
        short(user)
    );
    Finding::new(
        Code::AddressInSeveralClusters,
        Subject::Address(address),
        message,
        Evidence::Elsewhere(Box::new(evidence)),
    )
}
