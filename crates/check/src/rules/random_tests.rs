//! Properties that findings have in any cluster, no matter how broken.

use std::collections::{BTreeMap, HashSet};

use calipam_model::key::{ENDPOINT_PREFIX, RESOURCE_PREFIX};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_testkit::cluster::rng::Rng;
use serde_json::{Value, json};

use super::aged_tests::assert_aged;
use crate::{Options, check, drop_changed};

const CIDRS: [&str; 7] = [
    "10.0.0.0/30",
    "10.0.0.4/30",
    "10.0.0.0/29",
    "10.0.0.1/32",
    "10.9.0.0/30",
    "fd00::/126",
    "fd00::4/126",
];
const NODES: [&str; 3] = ["node-1", "node-2", "gone"];
const IDS: [&str; 9] = [
    "default.web-0",
    "k8s-pod-network.a",
    "k8s-pod-network.a\r\neth0",
    "lb-x",
    "lb-X",
    "Lb-x\rÉ",
    "k8s-pod-network.A",
    "ipip-tunnel-addr-node-1",
    "x\r",
];

/// Returns the value, or sometimes an invalid one in its place.
fn perhaps_broken(rng: &mut Rng, value: Value) -> Value {
    match rng.below(12) {
        0 => json!([]),
        1 => Value::Null,
        _ => value,
    }
}

fn attribute(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 => json!({}),
        1 => json!({"releasedAt": rng.pick(&["2026-05-01T11:59:00Z", "2030-01-01T00:00:00Z", "never"])}),
        2 => json!({"handle_id": "windows-reserved-ipam-handle"}),
        3 => json!({"handle_id": rng.pick(&IDS)}),
        _ => json!({"handle_id": rng.pick(&IDS), "secondary": {"node": rng.pick(&NODES),
            "namespace": "default", "pod": rng.pick(&["a", "b", "web-0"]),
            "timestamp": rng.pick(&["2026-05-01 11:50:00 +0000 UTC", "2026-05-01 12:30:00 +0000 UTC", "noon", "2026"])}}),
    }
}

fn block(rng: &mut Rng, cidr: &str) -> Value {
    let net: calipam_model::IpNet = cidr.parse().unwrap();
    let size = calipam_model::cidr::size(net) as u64;
    let attributes: Vec<Value> = (0..rng.below(4)).map(|_| attribute(rng)).collect();
    let mut allocations = vec![Value::Null; size as usize];
    for (position, _) in attributes.iter().enumerate() {
        allocations[rng.below(size) as usize] = json!(position);
    }
    let mut free: Vec<u64> = (0..size).filter(|i| allocations[*i as usize].is_null()).collect();
    if rng.one_in(8) {
        free.push(rng.below(9));
    }
    let owner = rng.pick(&["host:node-1", "host:gone", "virtual:load-balancer", "odd", ""]);
    let stated = if rng.one_in(10) { *rng.pick(&CIDRS) } else { cidr };
    json!({"cidr": stated, "affinity": owner, "allocations": allocations, "unallocated": free,
        "attributes": attributes, "deleted": rng.one_in(10)})
}

/// The stored values, by key.
pub(super) type Entries = BTreeMap<String, Vec<u8>>;

fn put(entries: &mut Entries, path: &str, value: &Value) {
    entries.insert(path.to_owned(), value.to_string().into_bytes());
}

fn cluster(rng: &mut Rng) -> Snapshot {
    let mut snapshot = unread(rng);
    for (path, value) in entries(rng) {
        snapshot.add_entry(path.as_bytes(), &value, 3);
    }
    snapshot
}

/// An empty snapshot, for which some sources may not have been read.
pub(super) fn unread(rng: &mut Rng) -> Snapshot {
    let mut snapshot = Snapshot {
        taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
        ..Snapshot::default()
    };
    for source in [
        Source::Blocks,
        Source::Affinities,
        Source::Handles,
        Source::Pools,
        Source::Reservations,
    ] {
        if !rng.one_in(10) {
            snapshot.mark_read([source]);
        }
    }
    snapshot.mark_read([Source::Nodes, Source::Endpoints, Source::IpamConfig]);
    snapshot
}

/// The entries of a random cluster, which can be broken in many ways.
pub(super) fn entries(rng: &mut Rng) -> Entries {
    let mut entries = Entries::new();
    for cidr in CIDRS {
        let family = if cidr.contains(':') { "ipv6" } else { "ipv4" };
        let dashed = cidr.replace('/', "-");
        if !rng.one_in(3) {
            let value = block(rng, cidr);
            let path = format!("/calico/ipam/v2/assignment/{family}/block/{dashed}");
            put(&mut entries, &path, &perhaps_broken(rng, value));
        }
        for kind in ["host", "virtual", "@"] {
            for node in NODES.into_iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>() {
                let state = rng.pick(&["confirmed", "", "pending", "pendingDeletion", "what\n"]);
                // Only the Kubernetes datastore marks objects as deleted. There, the type is not part of an affinity's
                // name.
                let value = json!({"state": state, "deleted": kind == "host" && rng.one_in(9)});
                let path = format!("/calico/ipam/v2/{kind}/{node}/{family}/block/{dashed}");
                put(&mut entries, &path, &perhaps_broken(rng, value));
            }
        }
    }
    for id in IDS {
        let value = json!({"block": {*rng.pick(&CIDRS): rng.below(3), *rng.pick(&CIDRS): 1}, "deleted": rng.one_in(9)});
        if !rng.one_in(3) {
            put(
                &mut entries,
                &format!("/calico/ipam/v2/handle/{id}"),
                &perhaps_broken(rng, value),
            );
        }
    }
    resources(rng, &mut entries);
    entries
}

fn resources(rng: &mut Rng, entries: &mut Entries) {
    for (name, cidr) in [
        ("a", "10.0.0.0/28"),
        ("b", "10.0.0.0/28"),
        ("c", "fd00::/124"),
        ("d", "10.0.0.0/31"),
    ] {
        let spec = json!({"cidr": cidr, "blockSize": if cidr.contains(':') { 126 } else { 30 },
            "disabled": rng.one_in(4), "nodeSelector": rng.pick(&["all()", "has(x)", "(("]),
            "namespaceSelector": rng.pick(&["", "", "has(y)"])});
        if rng.one_in(2) {
            let value = perhaps_broken(rng, json!({"spec": spec}));
            put(entries, &format!("{RESOURCE_PREFIX}ippools/{name}"), &value);
        }
    }
    let value = json!({"spec": {"reservedCIDRs": [rng.pick(&CIDRS), rng.pick(&CIDRS), "10.0.0.3"]}});
    put(
        entries,
        &format!("{RESOURCE_PREFIX}ipreservations/r"),
        &perhaps_broken(rng, value),
    );
    for node in ["node-1", "node-2"] {
        let value = json!({"spec": {"bgp": {"ipv4IPIPTunnelAddr": rng.pick(&["10.0.0.0", "10.0.0.300"])}}});
        put(
            entries,
            &format!("{RESOURCE_PREFIX}nodes/{node}"),
            &perhaps_broken(rng, value),
        );
    }
    for pod in ["a", "b"] {
        let spec = json!({"node": rng.pick(&NODES), "pod": pod, "orchestrator": "k8s", "endpoint": "eth0",
            "ipNetworks": [rng.pick(&["10.0.0.1/32", "fd00::1/128", "?"])]});
        let value = perhaps_broken(rng, json!({"spec": spec}));
        put(
            entries,
            &format!("{ENDPOINT_PREFIX}default/node--1-k8s-{pod}-eth0"),
            &value,
        );
    }
    let config = json!({"strict_affinity": rng.one_in(2), "auto_allocate_blocks": !rng.one_in(3),
        "maxBlocksPerHost": rng.below(3)});
    put(entries, "/calico/ipam/v2/config", &perhaps_broken(rng, config));
}

#[test]
fn every_finding_is_well_formed_and_stays_while_nothing_changes() {
    let mut codes = HashSet::new();
    for seed in 0..calipam_testkit::rounds(1_000) {
        let snapshot = cluster(&mut Rng::new(seed));
        let mut report = check(
            &snapshot,
            &Options {
                pool_threshold: 30.0,
                ..Options::default()
            },
        );
        let mut seen = HashSet::new();
        for finding in &report.findings {
            codes.insert(finding.code);
            let what = format!(
                "seed {seed}: {} {:?}: {}",
                finding.code,
                finding.subject,
                finding.message()
            );
            assert!(seen.insert(finding.key()), "twice: {what}");
            assert!(
                !finding.message().is_empty() && !finding.message().ends_with('.'),
                "{what}"
            );
            assert!(!finding.message().contains(char::is_control), "{what}");
            assert!(serde_json::to_value(finding).is_ok(), "{what}");
        }
        let found = report.findings.clone();
        drop_changed(&mut report, &snapshot, &snapshot);
        assert_eq!(report.findings, found, "seed {seed}");
    }
    assert!(codes.len() > 25, "only {codes:?}");
}

#[test]
fn aged_findings_are_those_of_a_later_check() {
    let mut aged = HashSet::new();
    for seed in 0..calipam_testkit::rounds(200) {
        aged.extend(assert_aged(
            &cluster(&mut Rng::new(seed)),
            &format!("seed {seed}"),
        ));
    }
    assert!(aged.len() > 1, "only {aged:?}");
}
