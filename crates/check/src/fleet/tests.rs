use std::collections::BTreeSet;

use calipam_model::{IpNet, cidr};
use calipam_testkit::cluster::rng::Rng;

use super::sweep::overlaps;
use super::{Cluster, compare};
use crate::test_cluster::{self, pod};
use crate::{Code, Options, Severity, check};

/// Makes random CIDRs, each with a cluster number. They come from few addresses, so that CIDRs are often equal or
/// nested, and often belong to one cluster.
fn random_ranges(rng: &mut Rng) -> Vec<(IpNet, usize)> {
    let number = rng.below(24);
    let range = |_| {
        let prefix = 26 + rng.below(7) as u8;
        let address = [10, 0, 0, rng.below(64) as u8].into();
        let v4 = cidr::block_around(address, prefix).unwrap();
        let cidr = if rng.one_in(6) { "fd00::/126".parse().unwrap() } else { v4 };
        (cidr, rng.below(4) as usize)
    };
    (0..number).map(range).collect()
}

#[test]
fn the_sweep_finds_what_comparing_all_pairs_finds() {
    let mut rng = Rng::new(7);
    for round in 0..5_000 {
        let ranges = random_ranges(&mut rng);
        let most = rng.below(4) as usize;
        let (all, few) = (overlaps(&ranges, usize::MAX), overlaps(&ranges, most));
        for (position, (cidr, cluster)) in ranges.iter().enumerate() {
            let is_other = |other: &usize| {
                let (there, of) = ranges[*other];
                of != *cluster && cidr::overlap(there, *cidr)
            };
            let expected: BTreeSet<usize> = (0..ranges.len()).filter(is_other).collect();
            let found: BTreeSet<usize> = all[position].listed.iter().copied().collect();
            let wanted = (&expected, expected.len());
            assert_eq!((&found, all[position].number), wanted, "round {round}: {ranges:?}");
            let few = &few[position];
            assert_eq!((few.number, few.listed.len()), (expected.len(), expected.len().min(most)));
            assert!(few.listed.iter().all(|listed| expected.contains(listed)));
        }
    }
}

/// A cluster in the group `g`. Its block records an address for each of `pods`. The pods in `live` have endpoints with
/// the given addresses.
fn member(name: &str, pods: &[&str], live: &[(&str, &str)]) -> Cluster {
    let mut cluster = test_cluster::Cluster::new();
    cluster.block("10.244.1.4/30", "host:node-1", pods.iter().map(|name| pod("node-1", name)));
    for (name, address) in live {
        cluster.endpoint("node-1", name, &[address]);
    }
    let of = Cluster::of(check(&cluster.0, &Options::default()), &cluster.0);
    Cluster { name: name.into(), group: Some("g".into()), ..of }
}

#[test]
fn a_leaked_address_in_one_cluster_does_not_clash_with_a_user_in_another() {
    let a = member("a", &["one", "two"], &[("one", "10.244.1.4/32"), ("two", "10.244.1.5/32")]);
    let b = member("b", &["three", "four"], &[("four", "10.244.1.5/32")]);
    let mut clusters = [a, b];
    compare(&mut clusters);
    let found = clusters.iter().flat_map(|cluster| &cluster.report.findings);
    let found = found.filter(|finding| finding.code == Code::AddressInSeveralClusters);
    let found = found.map(|finding| (finding.severity, finding.message()));
    let found: Vec<_> = found.filter(|(_, message)| !message.contains("tunnel")).collect();
    let expected = [
        (Severity::Critical, "10.244.1.5 is used by default/two, and by default/four in b"),
        (
            Severity::Warning,
            "10.244.1.4 is used by default/one, and recorded as leaked for default/three in b",
        ),
    ];
    assert_eq!(found, expected.map(|(severity, message)| (severity, message.to_owned())));
}
