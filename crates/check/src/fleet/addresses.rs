//! Addresses that several clusters use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::used::UsedBlock;
use super::{Cluster, LISTED};
use crate::code::Code;
use crate::finding::{Elsewhere, ElsewhereEvidence, ElsewhereKind, Evidence, Finding, Subject};

/// An address in use, with the position of its cluster in the group and its user.
type InUse<'c> = (IpAddr, usize, &'c str);

pub(super) fn check(group: &[&Cluster], found: &mut Vec<(usize, Finding)>) {
    let blocks = group
        .iter()
        .enumerate()
        .flat_map(|(cluster, member)| member.ranges.used.blocks().iter().map(move |block| (block, cluster)));
    let mut blocks: Vec<(&UsedBlock, usize)> = blocks.collect();
    blocks.sort_by_key(|(block, cluster)| (block.cidr, *cluster));

    let mut blocks = blocks.as_slice();
    while let Some((first, _)) = blocks.first() {
        // Blocks that overlap the first one are in it, and follow it directly.
        let len = blocks.partition_point(|(block, _)| first.cidr.contains(&block.cidr));
        let (run, rest) = blocks.split_at(len);
        if run.iter().any(|(_, cluster)| *cluster != run[0].1) {
            compare(group, run, found);
        }
        blocks = rest;
    }
}

/// Compares the addresses of blocks that overlap.
fn compare(group: &[&Cluster], run: &[(&UsedBlock, usize)], found: &mut Vec<(usize, Finding)>) {
    let in_use = run
        .iter()
        .flat_map(|(block, cluster)| block.addresses().map(move |(address, user)| (address, *cluster, user)));
    let mut in_use: Vec<InUse<'_>> = in_use.collect();
    in_use.sort_unstable();
    for uses in in_use.chunk_by(|a, b| a.0 == b.0) {
        let clusters: BTreeSet<usize> = uses.iter().map(|(_, cluster, _)| *cluster).collect();
        if clusters.len() > 1 {
            found.extend(
                clusters.iter().map(|cluster| (*cluster, finding(group, uses, *cluster, clusters.len()))),
            );
        }
    }
}

/// Makes the finding of one of the clusters that use an address. It names the first user of each. `uses` are in the
/// order of the clusters.
fn finding(group: &[&Cluster], uses: &[InUse<'_>], here: usize, clusters: usize) -> Finding {
    let address = uses[0].0;
    let first_users = uses.chunk_by(|a, b| a.1 == b.1).filter_map(<[_]>::first);
    let of_others = first_users.filter(|(_, cluster, _)| *cluster != here).take(LISTED);
    let others: Vec<Elsewhere> = of_others
        .map(|(address, cluster, user)| Elsewhere {
            cluster: group[*cluster].name.clone(),
            kind: ElsewhereKind::User,
            name: (*user).to_owned(),
            cidr: (*address).into(),
            in_use: None,
        })
        .collect();
    let user = uses.iter().find(|(_, cluster, _)| *cluster == here).map_or("", |(.., user)| *user);
    let further = clusters - 1 - others.len();
    let evidence = ElsewhereEvidence { here: user.to_owned(), others, further };
    Finding::new(
        Code::AddressInSeveralClusters,
        Subject::Address(address),
        Evidence::Elsewhere(Box::new(evidence)),
    )
}
