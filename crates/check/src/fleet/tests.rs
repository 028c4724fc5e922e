use super::{Cluster, compare};
use crate::test_cluster::{self, pod};
use crate::{Code, Options, Severity, check};

/// A cluster in the group `g`. Its block records an address for each of `pods`. The pods in `live` have endpoints with
/// the given addresses.
fn member(name: &str, pods: &[&str], live: &[(&str, &str)]) -> Cluster {
    let mut cluster = test_cluster::Cluster::new();
    cluster.block(
        "10.244.1.4/30",
        "host:node-1",
        pods.iter().map(|name| pod("node-1", name)),
    );
    for (name, address) in live {
        cluster.endpoint("node-1", name, &[address]);
    }
    let of = Cluster::of(check(&cluster.0, &Options::default()), &cluster.0);
    Cluster {
        name: name.into(),
        group: Some("g".into()),
        ..of
    }
}

#[test]
fn a_leaked_address_in_one_cluster_does_not_clash_with_a_user_in_another() {
    let a = member(
        "a",
        &["one", "two"],
        &[("one", "10.244.1.4/32"), ("two", "10.244.1.5/32")],
    );
    let b = member("b", &["three", "four"], &[("four", "10.244.1.5/32")]);
    let mut clusters = [a, b];
    compare(&mut clusters);
    let found = clusters.iter().flat_map(|cluster| &cluster.report.findings);
    let found = found.filter(|finding| finding.code == Code::AddressInSeveralClusters);
    let found = found.map(|finding| (finding.severity, finding.message()));
    let found: Vec<_> = found.filter(|(_, message)| !message.contains("tunnel")).collect();
    let expected = [
        (
            Severity::Critical,
            "10.244.1.5 is used by default/two, and by default/four in b",
        ),
        (
            Severity::Warning,
            "10.244.1.4 is used by default/one, and recorded as leaked for default/three in b",
        ),
    ];
    assert_eq!(
        found,
        expected.map(|(severity, message)| (severity, message.to_owned()))
    );
}
