//! Findings between the clusters of a fleet.

use std::collections::BTreeSet;

use calipam_check::fleet::{Cluster, SharedFinding, compare, narrow_shared, remove_duplicates};
use calipam_check::views::PoolView;
use calipam_check::{Code, Options, check};
use calipam_testkit::cluster::{Fleet, FleetFault};

/// Checks the clusters of a generated fleet, and puts them into one group.
fn checked(fleet: &Fleet) -> Vec<Cluster> {
    let cluster = |(name, cluster): &(String, calipam_testkit::cluster::Cluster)| {
        let snapshot = cluster.snapshot();
        let report = check(&snapshot, &Options::default());
        Cluster {
            name: name.clone(),
            group: Some("mesh".into()),
            ..Cluster::of(report, &snapshot)
        }
    };
    fleet.clusters.iter().map(cluster).collect()
}

/// The cluster, code and subject of each finding between clusters.
fn found(clusters: &[Cluster]) -> BTreeSet<[String; 3]> {
    let of_cluster = |cluster: &Cluster| -> Vec<[String; 3]> {
        let between = cluster
            .report
            .findings
            .iter()
            .filter(|finding| finding.code.is_of_fleet());
        between
            .map(|f| [cluster.name.clone(), f.code.to_string(), f.subject.to_string()])
            .collect()
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
fn each_fault_between_clusters_gives_exactly_its_findings_and_each_code_has_a_fault() {
    let (_, healthy) = after(&[]);
    assert!(
        healthy.iter().all(|cluster| cluster.report.findings.is_empty()),
        "{:?}",
        found(&healthy)
    );
    let mut codes = BTreeSet::new();
    for fault in FleetFault::ALL {
        let (fleet, clusters) = after(&[fault]);
        assert_eq!(found(&clusters), fleet.expected, "{fault:?}");
        codes.extend(fleet.expected.into_iter().map(|[_, code, _]| code));
    }
    // `ClusterUnreadable` does not depend on a cluster's data, so no fault of the generator causes it.
    let expected = Code::ALL
        .iter()
        .filter(|code| code.is_of_fleet() && **code != Code::ClusterUnreadable);
    assert_eq!(codes, expected.map(|code| code.name().to_owned()).collect());
}

#[test]
fn pools_over_the_services_of_another_cluster_are_found() {
    // The pools of a, b and c are 10.1.0.0/16, 10.2.0.0/16 and 10.3.0.0/16.
    let fleet = Fleet::healthy(3);
    let with_services = |ranges: [&str; 3]| {
        let mut clusters = checked(&fleet);
        for (cluster, ranges) in clusters.iter_mut().zip(ranges) {
            cluster.services = ranges
                .split_whitespace()
                .map(|range| range.parse().unwrap())
                .collect();
        }
        compare(&mut clusters);
        clusters
    };
    let covers = |name: &str, pool: &str| [name, "pool-covers-other-cluster", pool].map(str::to_owned);
    assert_eq!(
        found(&with_services(["10.96.0.0/12"; 3])),
        [].into(),
        "all have the same, as a rule"
    );
    assert_eq!(
        found(&with_services(["", "10.2.0.0/20", ""])),
        [].into(),
        "a cluster's own"
    );
    let around = with_services(["", "10.0.0.0/14", ""]);
    assert_eq!(
        found(&around),
        [covers("a", "10.1.0.0/16"), covers("c", "10.3.0.0/16")].into()
    );
    let within = with_services(["10.3.0.0/16", "", "10.1.0.0/24 10.1.255.0/24 10.9.0.0/16"]);
    assert_eq!(
        found(&within),
        [covers("a", "10.1.0.0/16"), covers("c", "10.3.0.0/16")].into()
    );
    let said = within[0].report.findings[0].message();
    let expected = "default-ipv4-ippool (10.1.0.0/16) covers the service range 10.1.0.0/24 in c, \
        the service range 10.1.255.0/24 in c";
    assert_eq!(said.replace(" and ", ", "), expected);
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
        let finding = clusters[cluster]
            .report
            .findings
            .iter()
            .find(|finding| finding.code == code);
        finding.unwrap().message()
    };
    let overlap = "default-ipv4-ippool (10.1.0.0/16) overlaps overlapping 10.1.1.0/26 in b; 7 of the shared addresses are in use here and 3 there";
    assert_eq!(said(0, Code::OverlappingClusterPools), overlap);
    let address = said(0, Code::AddressInSeveralClusters);
    assert!(
        address.contains("used by") && address.ends_with(" in b"),
        "{address}"
    );
    let covers = said(1, Code::PoolCoversOtherCluster);
    assert!(
        covers.contains("192.168.0.1 of node node-1 in a") && covers.ends_with("and 6 more"),
        "{covers}"
    );
}

#[test]
fn a_disabled_pool_in_which_addresses_are_used_overlaps_that_of_another_cluster() {
    let fleet = Fleet::healthy(2);
    let overlaps = |uses: bool| {
        let mut clusters = checked(&fleet);
        let pool = PoolView {
            enabled: false,
            ..clusters[0].pools.pools[0].clone()
        };
        clusters[1].pools.pools.push(pool);
        if uses {
            clusters[1].ranges.used = clusters[0].ranges.used.clone();
        }
        compare(&mut clusters);
        found(&clusters)
            .iter()
            .any(|[_, code, _]| code == "overlapping-cluster-pools")
    };
    assert_eq!([false, true].map(overlaps), [false, true]);
}

#[test]
fn a_range_that_twenty_clusters_use_is_one_finding_which_counts_further_pools() {
    let fleet = Fleet::healthy(1);
    let one = checked(&fleet).remove(0);
    let mut clusters: Vec<Cluster> = (0..20)
        .map(|number| {
            let mut cluster = Cluster {
                name: format!("c{number:02}"),
                ..one.clone()
            };
            cluster.report.cluster.guid = cluster.name.clone();
            cluster
        })
        .collect();
    compare(&mut clusters);
    let findings = clusters.iter().flat_map(|cluster| &cluster.report.findings);
    let overlapping: Vec<_> = findings
        .filter(|f| f.code == Code::OverlappingClusterPools)
        .collect();
    let v4 = overlapping
        .iter()
        .find(|finding| finding.subject.to_string() == "10.1.0.0/16");
    let said = v4.unwrap().message();
    assert!(said.contains("16 more"), "of 19 others: {said}");
    let pools = one
        .pools
        .pools
        .iter()
        .map(|pool| pool.cidr.to_string())
        .collect::<BTreeSet<_>>();
    assert_eq!(overlapping.len(), pools.len(), "one for each range");
    // Also those that the finding does not name.
    let shared = clusters.iter().map(|cluster| {
        let overlaps = |finding: &&SharedFinding| finding.key.0 == Code::OverlappingClusterPools;
        cluster.shared.iter().filter(overlaps).count()
    });
    let mut expected = vec![pools.len(); 20];
    expected[0] = 0;
    assert_eq!(shared.collect::<Vec<_>>(), expected);
    assert!(
        clusters
            .iter()
            .all(|cluster| cluster.overlapping.len() == pools.len())
    );
}

/// The first pool of the range contains two others that do not overlap each other.
#[test]
fn nested_pools_of_several_clusters_are_one_finding() {
    let fleet = Fleet::healthy(4);
    let is_overlap = |[_, code, _]: &[String; 3]| code == "overlapping-cluster-pools";
    let with_pools = |ranges: [&[&str]; 4]| {
        let mut clusters = checked(&fleet);
        for (cluster, ranges) in clusters.iter_mut().zip(ranges) {
            let pool = |cidr: &&str| PoolView {
                cidr: cidr.parse().unwrap(),
                enabled: true,
                ..cluster.pools.pools[0].clone()
            };
            cluster.pools.pools = ranges.iter().map(pool).collect();
        }
        compare(&mut clusters);
        let of = |cluster: &Cluster| {
            cluster
                .overlapping
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        (
            found(&clusters)
                .into_iter()
                .filter(is_overlap)
                .collect::<BTreeSet<_>>(),
            clusters.iter().map(of).collect::<Vec<_>>(),
        )
    };
    let overlaps = |name: &str, pool: &str| [name, "overlapping-cluster-pools", pool].map(str::to_owned);
    let nested = [
        &["10.4.0.0/16"][..],
        &["10.0.0.0/8", "172.16.0.0/16"],
        &["10.5.0.0/16"],
        &["10.4.1.0/24"],
    ];
    let (found, overlapping) = with_pools(nested);
    assert_eq!(found, [overlaps("b", "10.0.0.0/8")].into());
    assert_eq!(
        overlapping,
        [["10.4.0.0/16"], ["10.0.0.0/8"], ["10.5.0.0/16"], ["10.4.1.0/24"]]
    );

    let own = [&["10.0.0.0/8", "10.1.0.0/16"][..], &["11.0.0.0/8"], &[], &[]];
    let none: [&[&str]; 4] = [&[]; 4];
    assert_eq!(
        with_pools(own),
        (
            [].into(),
            none.map(|of| of.iter().map(ToString::to_string).collect()).into()
        )
    );
}

#[test]
fn settings_without_a_majority_are_one_finding() {
    let mut fleet = Fleet::healthy(2);
    fleet.inject(FleetFault::StrictAffinity);
    let mut clusters = checked(&fleet);
    compare(&mut clusters);
    assert_eq!(
        found(&clusters),
        [["a", "cluster-settings-differ", "a"].map(str::to_owned)].into()
    );
    let said = "strictAffinity is true here (in its group: false in 1 cluster; true in 1 cluster)";
    assert_eq!(clusters[0].report.findings[0].message(), said);
    let shared = |clusters: &[Cluster]| -> Vec<usize> {
        clusters.iter().map(|cluster| cluster.shared.len()).collect()
    };
    assert_eq!(shared(&clusters), [0, 1]);
    let mut others = clusters.split_off(1);
    narrow_shared(&mut others);
    assert_eq!(shared(&others), [0], "the finding was left out");

    let (_, clusters) = after(&[FleetFault::StrictAffinity]);
    assert_eq!(shared(&clusters), [0; 4], "the others are as usual");
    let (_, clusters) = after(&[FleetFault::PoolOverNodes]);
    assert_eq!(shared(&clusters), [1, 0, 1, 1]);
}

#[test]
fn a_cluster_that_is_named_twice_counts_once() {
    let fleet = Fleet::healthy(3);
    let mut clusters = checked(&fleet);
    let again = Cluster {
        name: "again".into(),
        ..clusters[0].clone()
    };
    clusters.push(again);
    let said = remove_duplicates(&mut clusters, "2027-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(
        said,
        ["again is left out: it has the same GUID as a, and only one of them counts"]
    );
    assert_eq!(
        clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
}

#[test]
fn a_file_with_the_guid_of_another_cluster_is_unreadable() {
    let one = checked(&Fleet::healthy(1)).remove(0);
    let at = |hours| one.report.cluster.taken_at + jiff::SignedDuration::from_hours(hours);
    let read = |is_live: [bool; 2], taken: i64, now: i64| -> Vec<bool> {
        let mut other = Cluster {
            name: "other".into(),
            is_live: is_live[1],
            ..one.clone()
        };
        other.report.cluster.taken_at = at(taken);
        let mut clusters = vec![
            Cluster {
                is_live: is_live[0],
                ..one.clone()
            },
            other,
        ];
        assert!(remove_duplicates(&mut clusters, at(now)).is_empty());
        assert_eq!(found(&clusters).len(), 1, "{:?}", found(&clusters));
        clusters.iter().map(|cluster| cluster.is_read).collect()
    };
    assert_eq!(read([false, false], 0, 2), [true, false]);
    assert_eq!(read([false, false], 1, 2), [false, true]);
    assert_eq!(read([false, false], 3, 2), [true, false], "its time has not come");
    assert_eq!(read([true, false], 1, 2), [true, false]);
    assert_eq!(read([false, true], -1, 2), [false, true]);
}
