//! Findings between the clusters of a fleet.

use std::collections::BTreeSet;

use calipam_check::fleet::{Cluster, compare, leave_out_doubles};
use calipam_check::{Code, Options, check};
use calipam_testkit::cluster::{Fleet, FleetFault};

/// The clusters of a generated fleet, checked, in one group.
fn checked(fleet: &Fleet) -> Vec<Cluster> {
    let cluster = |(name, cluster): &(String, calipam_testkit::cluster::Cluster)| {
        let snapshot = cluster.snapshot();
        let report = check(&snapshot, &Options::default());
        Cluster { name: name.clone(), group: Some("mesh".into()), ..Cluster::of(report, &snapshot) }
    };
    fleet.clusters.iter().map(cluster).collect()
}

/// Cluster, code and subject of what is wrong between them.
fn found(clusters: &[Cluster]) -> BTreeSet<[String; 3]> {
    let of_cluster = |cluster: &Cluster| -> Vec<[String; 3]> {
        let between = cluster.report.findings.iter().filter(|finding| finding.code.is_of_fleet());
        between.map(|f| [cluster.name.clone(), f.code.to_string(), f.subject.to_string()]).collect()
    };
    clusters.iter().flat_map(of_cluster).collect()
}

fn after(faults: &[FleetFault]) -> (Fleet, Vec<Cluster>) {
    let mut fleet = Fleet::healthy(4);
    faults.iter().for_each(|fault| fleet.inject(*fault));
    let mut clusters = checked(&fleet);
    compare(&mut clusters);
    (fleet, clusters)
}

#[test]
fn a_healthy_fleet_has_no_findings() {
    let (_, clusters) = after(&[]);
    assert!(clusters.iter().all(|cluster| cluster.report.findings.is_empty()), "{:?}", found(&clusters));
}

#[test]
fn each_fault_between_clusters_gives_exactly_its_findings() {
    for fault in FleetFault::ALL {
        let (fleet, clusters) = after(&[fault]);
        assert_eq!(found(&clusters), fleet.expected, "{fault:?}");
    }
}

#[test]
fn every_code_of_a_fleet_has_a_fault_in_the_generator() {
    let all: BTreeSet<String> = FleetFault::ALL
        .iter()
        .flat_map(|fault| after(&[*fault]).0.expected)
        .map(|[_, code, _]| code)
        .collect();
    // That a cluster cannot be read, the data of none can say.
    let expected = Code::ALL.iter().filter(|code| code.is_of_fleet() && **code != Code::ClusterUnreadable);
    assert_eq!(all, expected.map(|code| code.name().to_owned()).collect());
}

#[test]
fn clusters_are_compared_within_their_group_only() {
    let mut fleet = Fleet::healthy(3);
    FleetFault::ALL.iter().for_each(|fault| fleet.inject(*fault));
    for group in [None, Some("other".to_owned())] {
        let mut clusters = checked(&fleet);
        clusters[1].group = group;
        clusters.remove(2);
        compare(&mut clusters);
        assert_eq!(found(&clusters), BTreeSet::new());
    }
}

#[test]
fn messages_name_both_sides() {
    let (_, clusters) = after(&[FleetFault::SharedAddresses, FleetFault::PoolOverNodes]);
    let said = |cluster: usize, code| -> String {
        let finding = clusters[cluster].report.findings.iter().find(|finding| finding.code == code);
        finding.unwrap().message()
    };
    assert_eq!(
        said(1, Code::OverlappingClusterPools),
        "overlapping (10.1.1.0/26) overlaps default-ipv4-ippool 10.1.0.0/16 in a; of what it shares, 3 are in use here and 7 there"
    );
    let address = said(0, Code::AddressInSeveralClusters);
    assert!(address.contains("used by") && address.ends_with(" in b"), "{address}");
    let covers = said(1, Code::PoolCoversOtherCluster);
    assert!(covers.contains("192.168.0.1 of node node-1 in a") && covers.ends_with("and 6 more"), "{covers}");
}

#[test]
fn a_cluster_that_is_named_twice_counts_once() {
    let fleet = Fleet::healthy(3);
    let mut clusters = checked(&fleet);
    let again = Cluster { name: "again".into(), ..clusters[0].clone() };
    clusters.push(again);
    let said = leave_out_doubles(&mut clusters);
    assert_eq!(said, ["again is left out: it has the GUID of a, which was read later"]);
    assert_eq!(clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
}
