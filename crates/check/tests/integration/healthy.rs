//! Healthy clusters of all kinds, with different options.

use std::net::Ipv4Addr;

use calipam_check::{Options, check};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::rounds;
use jiff::SignedDuration;
use serde_json::Value;

use crate::expected::{assert_truth, findings};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

#[test]
fn a_healthy_cluster_has_no_finding() {
    for seed in 0..rounds(5) {
        assert_truth("healthy", &Cluster::small(ClusterSpec::new(seed)));
        assert_truth("every feature", &Cluster::featured(ClusterSpec::new(seed)));
        assert_truth(
            "with pods on Windows",
            &Cluster::with_windows(ClusterSpec::new(seed)),
        );
        assert_truth("healthy, wide", &Cluster::small(ClusterSpec::new(seed).wide()));
        assert_truth(
            "healthy, IPv4 only",
            &Cluster::small(ClusterSpec::new(seed).v4_only()),
        );
    }
}

#[test]
fn configuration_may_be_absent() {
    let absent = [
        "/calico/ipam/v2/config".to_owned(),
        format!("{RESOURCES}/ipamconfigurations/default"),
        format!("{RESOURCES}/kubecontrollersconfigurations/default"),
        format!("{RESOURCES}/ipreservations/infra"),
    ];
    let mut without_all = Cluster::small(ClusterSpec::new(1));
    for key in absent {
        let mut without_one = Cluster::small(ClusterSpec::new(1));
        without_one.remove(&key);
        assert_truth(&key, &without_one);
        without_all.remove(&key);
    }
    assert_truth("no configuration at all", &without_all);
}

/// Calico's programs read these addresses as IPv4, and print them so.
#[test]
fn ipv4_addresses_in_ipv6_form_are_the_same_addresses() {
    let mut cluster = Cluster::featured(ClusterSpec::new(3));
    let keys: Vec<String> = cluster
        .keys()
        .map(|key| String::from_utf8(key.to_vec()).unwrap())
        .filter(|key| key.contains("/workloadendpoints/") || key.contains("projectcalico.org/nodes/"))
        .collect();
    let mut changed = 0;
    for key in &keys {
        changed += map_addresses(cluster.json_mut(key));
    }
    assert!(changed > keys.len(), "{changed}");
    assert_truth("IPv4 in IPv6 form", &cluster);
}

/// Puts all IPv4 addresses in IPv6 form, and counts them.
fn map_addresses(value: &mut Value) -> usize {
    match value {
        Value::Object(fields) => fields.values_mut().map(map_addresses).sum(),
        Value::Array(items) => items.iter_mut().map(map_addresses).sum(),
        Value::String(text) => {
            let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
            if address.parse::<Ipv4Addr>().is_err() {
                return 0;
            }
            let mapped = match prefix.parse::<u8>() {
                Ok(prefix) => format!("::ffff:{address}/{}", prefix + 96),
                Err(_) => format!("::ffff:{address}"),
            };
            *text = mapped;
            1
        }
        _ => 0,
    }
}

#[test]
fn without_grace_the_youngest_pod_is_judged_too() {
    let snapshot = Cluster::small(ClusterSpec::new(2)).snapshot();
    let judge = |seconds| {
        let options = Options {
            grace: Some(SignedDuration::from_secs(seconds)),
            ..Options::default()
        };
        check(&snapshot, &options).findings
    };
    // The youngest pod has two addresses and is 20 s old.
    assert_eq!(judge(21).len(), 0);
    for findings in [judge(0), judge(19)] {
        let codes: Vec<&str> = findings.iter().map(|f| f.code.name()).collect();
        assert_eq!(codes, ["leaked-address"; 2]);
    }
}

#[test]
fn a_cluster_with_another_ipam_has_a_note_and_neither_it_nor_an_empty_datastore_a_finding() {
    let mut cluster = Cluster::small(ClusterSpec::new(3));
    cluster.remove_prefix("/calico/ipam/v2/");
    let report = check(&cluster.snapshot(), &Options::default());
    assert_eq!(report.findings, []);
    assert_eq!(report.notes.len(), 1);
    cluster.remove_prefix("");
    assert!(cluster.keys().next().is_none());
    assert_eq!(findings(&cluster), []);
}
