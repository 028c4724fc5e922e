//! Blocks, affinities, configuration and undecodable objects, on clusters made of a few hand-written entries. Also
//! contains the healthy cluster that other tests start from.

use calipam_model::affinity::AffinityKey;
use calipam_model::key::{ENDPOINT_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::snapshot::{Coverage, Source};
use calipam_testkit::values;
use serde_json::{Value, json};

use crate::test_cluster::{self, Cluster, tunnel};
use crate::{Code, Finding, Options, Remedy, check};

/// A healthy cluster of which all sources were read. node-1 has one /30, a tunnel address and a pod.
pub(super) fn whole() -> Cluster {
    let mut cluster = Cluster::new();
    cluster
        .0
        .mark_read([Source::Affinities, Source::Reservations, Source::IpamConfig]);
    cluster.block("10.244.1.0/30", "host:node-1", [tunnel("node-1"), pod("web-0")]);
    cluster.endpoint("node-1", "web-0", &["10.244.1.1/32"]);
    cluster.affinity("host/node-1", "10.244.1.0/30", json!({"state": "confirmed"}));
    cluster.handle("ipip-tunnel-addr-node-1", json!({"10.244.1.0/30": 1}));
    cluster.handle("k8s-pod-network.web-0", json!({"10.244.1.0/30": 1}));
    cluster
}

/// The record for a pod on node-1.
pub(super) fn pod(name: &str) -> Value {
    test_cluster::pod("node-1", name)
}

pub(super) fn findings(cluster: &Cluster) -> Vec<Finding> {
    check(&cluster.0, &Options::default()).findings
}

/// All findings, each as `code subject`.
pub(super) fn verdict(cluster: &Cluster) -> Vec<String> {
    findings(cluster)
        .iter()
        .map(|f| format!("{} {}", f.code, f.subject))
        .collect()
}

pub(super) fn only(cluster: &Cluster, code: Code) -> Finding {
    let mut found: Vec<Finding> = findings(cluster).into_iter().filter(|f| f.code == code).collect();
    assert_eq!(found.len(), 1, "{code}: {found:?}");
    found.remove(0)
}

pub(super) fn evidence(finding: &Finding) -> Value {
    serde_json::to_value(&finding.evidence).unwrap()
}

#[test]
fn unread_sources_cause_no_findings() {
    let mut cluster = whole();
    cluster.block("10.244.1.4/30", "host:node-9", []);
    cluster.affinity("host/node-9", "10.244.1.8/30", json!({}));
    cluster.handle("lonely", json!({"10.244.1.4/30": 1}));
    for source in [
        Source::Blocks,
        Source::Affinities,
        Source::Handles,
        Source::Pools,
        Source::Nodes,
    ] {
        cluster.0.coverage.insert(source, Coverage::Partial);
    }
    assert_eq!(verdict(&cluster), [""; 0]);
}

#[test]
fn an_unowned_block_is_empty_even_with_what_windows_reserves() {
    let mut cluster = whole();
    let windows = || json!({"handle_id": "windows-reserved-ipam-handle"});
    cluster.block("10.244.1.4/30", Value::Null, []);
    cluster.block("10.244.1.8/30", Value::Null, [windows(), windows(), windows()]);
    let cooling = json!({"releasedAt": "2026-05-01T11:59:00Z"});
    cluster.block("10.244.1.12/30", Value::Null, [cooling]);
    assert_eq!(
        verdict(&cluster),
        [
            "empty-unowned-block 10.244.1.4/30",
            "empty-unowned-block 10.244.1.8/30"
        ]
    );
}

#[test]
fn a_block_without_affinity_rests_on_both_keys() {
    let mut cluster = whole();
    cluster.block("10.244.1.4/30", "host:node-1", []);
    let finding = only(&cluster, Code::BlockWithoutAffinity);
    let paths: Vec<String> = finding.depends_on.iter().map(ToString::to_string).collect();
    let expected = [
        "/calico/ipam/v2/assignment/ipv4/block/10.244.1.4-30",
        "/calico/ipam/v2/host/node-1/ipv4/block/10.244.1.4-30",
    ];
    assert_eq!(paths, expected);
    assert_eq!(finding.nodes, ["node-1"]);
    cluster.affinity("host/node-1", "10.244.1.4/30", json!([]));
    let expected = ["undecodable-object /calico/ipam/v2/host/node-1/ipv4/block/10.244.1.4-30"];
    assert_eq!(
        verdict(&cluster),
        expected,
        "an affinity that does not decode exists"
    );
}

#[test]
fn blocks_marked_deleted_are_absent() {
    let mut cluster = whole();
    let mut gone = values::block("10.244.1.4/30", "host:node-9", []);
    gone["deleted"] = true.into();
    cluster.put(&values::block_key("10.244.1.4/30"), gone);
    cluster.affinity("host/node-1", "10.244.1.4/30", json!({"state": "confirmed"}));
    cluster.affinity(
        "host/node-9",
        "10.244.1.8/30",
        json!({"state": "pending", "deleted": true}),
    );
    let expected = [
        "half-deleted 10.244.1.4/30",
        "half-deleted node-9/10.244.1.8/30",
        "affinity-without-block node-1/10.244.1.4/30",
    ];
    assert_eq!(verdict(&cluster), expected);
}

#[test]
fn a_broken_block_is_judged_by_its_key_alone() {
    let mut cluster = whole();
    // One block is corrupt, does not have its pool's block size, and belongs to a missing node. Two others cannot be
    // decoded.
    let short = json!({"cidr": "10.244.1.4/31", "affinity": "host:node-9", "allocations": [null]});
    cluster.put(&values::block_key("10.244.1.4/31"), short);
    cluster.put(&values::block_key("10.244.1.4/30"), json!("nonsense"));
    cluster.put(&values::block_key("192.168.0.0/30"), json!([]));
    for (holder, cidr) in [
        ("node-1", "10.244.1.4/31"),
        ("node-2", "10.244.1.4/30"),
        ("node-3", "192.168.0.0/30"),
    ] {
        cluster.affinity(&format!("host/{holder}"), cidr, json!({"state": "pending"}));
    }
    let expected = [
        "corrupt-block 10.244.1.4/31",
        "overlapping-blocks 10.244.1.4/30",
        "overlapping-blocks 10.244.1.4/31",
        "undecodable-object /calico/ipam/v2/assignment/ipv4/block/10.244.1.4-30",
        "undecodable-object /calico/ipam/v2/assignment/ipv4/block/192.168.0.0-30",
        "block-outside-pools 192.168.0.0/30",
        "block-size-mismatch 10.244.1.4/31",
    ];
    assert_eq!(verdict(&cluster), expected);
    let wanted = json!([{"problem": "array-length", "expected": "2", "found": 1}]);
    assert_eq!(evidence(&only(&cluster, Code::CorruptBlock))["problems"], wanted);
}

#[test]
fn overlaps_name_each_other_once() {
    let mut cluster = whole();
    for (cidr, owner) in [
        ("10.244.1.4/30", "host:node-1"),
        ("10.244.1.4/32", "host:node-2"),
        ("10.244.1.5/32", "host:node-3"),
    ] {
        cluster.block(cidr, owner, []);
    }
    let found: Vec<(String, Value)> = findings(&cluster)
        .iter()
        .filter(|f| f.code == Code::OverlappingBlocks)
        .map(|f| (f.message(), json!(f.nodes)))
        .collect();
    let expected = [
        (
            "10.244.1.4/30 overlaps 10.244.1.4/32 and 10.244.1.5/32",
            json!(["node-1", "node-2", "node-3"]),
        ),
        (
            "10.244.1.4/32 overlaps 10.244.1.4/30",
            json!(["node-1", "node-2"]),
        ),
        (
            "10.244.1.5/32 overlaps 10.244.1.4/30",
            json!(["node-1", "node-3"]),
        ),
    ];
    assert_eq!(
        found,
        expected.map(|(message, nodes)| (message.to_owned(), nodes))
    );
}

#[test]
fn pools_of_any_state_contain_blocks() {
    let mut cluster = whole();
    cluster.block("10.250.0.0/30", Value::Null, [pod("old")]);
    cluster.handle("k8s-pod-network.old", json!({"10.250.0.0/30": 1}));
    cluster.endpoint("node-1", "old", &["10.250.0.0/32"]);
    assert!(verdict(&cluster).contains(&"block-outside-pools 10.250.0.0/30".to_owned()));
    let mut broken = Cluster(cluster.0.clone());
    broken.put(&format!("{RESOURCE_PREFIX}ippools/broken"), json!({"spec": {}}));
    assert!(
        !verdict(&broken).iter().any(|f| f.starts_with("block-outside")),
        "a pool does not decode"
    );
    cluster.resource(
        "ippools/old",
        json!({"cidr": "10.250.0.0/24", "disabled": true, "blockSize": 30}),
    );
    assert_eq!(verdict(&cluster), [""; 0]);
}

#[test]
fn a_block_size_that_one_of_several_pools_has_is_fine() {
    let mut cluster = whole();
    cluster.only_pool("a", json!({"cidr": "10.244.0.0/16"}));
    assert_eq!(verdict(&cluster), ["block-size-mismatch 10.244.1.0/30"]);
    assert_eq!(
        evidence(&only(&cluster, Code::BlockSizeMismatch))["pools"],
        json!(["a /26"])
    );
    cluster.resource("ippools/b", json!({"cidr": "10.244.0.0/20", "blockSize": 30}));
    assert_eq!(
        verdict(&cluster),
        [
            "overlapping-pools 10.244.0.0/16",
            "overlapping-pools 10.244.0.0/20"
        ]
    );
}

#[test]
fn affinities_of_several_nodes_conflict_unless_one_is_pending() {
    let mut cluster = whole();
    cluster.resource("nodes/node-2", json!({}));
    cluster.affinity("host/node-2", "10.244.1.0/30", json!({"state": "pending"}));
    assert!(!verdict(&cluster).contains(&"affinity-conflict 10.244.1.0/30".to_owned()));
    cluster.0.affinities.pop();
    cluster.affinity(
        "host/node-2",
        "10.244.1.0/30",
        json!({"state": "pendingDeletion"}),
    );
    let conflict = only(&cluster, Code::AffinityConflict);
    assert_eq!(
        evidence(&conflict)["others"],
        json!(["node-1/10.244.1.0/30", "node-2/10.244.1.0/30"])
    );
    assert_eq!((conflict.nodes.len(), conflict.depends_on.len()), (2, 3));
}

#[test]
fn affinities_of_unknown_types_say_nothing_else() {
    let mut cluster = whole();
    cluster.affinity("@/node-9", "10.244.1.0/30", json!({"state": "pending"}));
    assert_eq!(
        verdict(&cluster),
        ["unexpected-affinity-type node-9/10.244.1.0/30"]
    );
    assert!(only(&cluster, Code::UnexpectedAffinityType).depends_on.is_empty());
    let key = |node: &str| match Key::parse(&format!("/calico/ipam/v2/@/{node}/ipv4/block/10.244.1.0-30")) {
        Ok(Some(Key::Affinity(AffinityKey { kind, .. }))) => kind.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        evidence(&only(&cluster, Code::UnexpectedAffinityType))["type"],
        key("node-9")
    );
}

#[test]
fn a_virtual_holder_needs_no_node_and_is_no_conflict() {
    let mut cluster = whole();
    cluster.block("10.244.1.4/30", "virtual:load-balancer", []);
    cluster.affinity(
        "virtual/load-balancer",
        "10.244.1.4/30",
        json!({"state": "confirmed"}),
    );
    assert_eq!(verdict(&cluster), [""; 0]);
    cluster.affinity(
        "host/load-balancer",
        "10.244.1.4/30",
        json!({"state": "confirmed"}),
    );
    let expected = [
        "affinity-block-mismatch load-balancer/10.244.1.4/30",
        "affinity-of-missing-node load-balancer/10.244.1.4/30",
    ];
    assert_eq!(verdict(&cluster), expected);
}

#[test]
fn settings() {
    let mut cluster = whole();
    let key = format!("{RESOURCE_PREFIX}clusterinformations/default");
    cluster.put(&key, json!({"spec": {"datastoreReady": false}}));
    cluster.config(json!({}));
    assert_eq!(
        verdict(&cluster),
        ["datastore-locked default", "auto-allocation-off default"]
    );
    assert_eq!(only(&cluster, Code::DatastoreLocked).remedy(), None);
    let run = "`release --leaked` of 2026-05-01T10:00:00Z";
    cluster.put(
        &key,
        json!({"metadata": {"annotations": {"calipam.io/locked-by": run}}, "spec": {"datastoreReady": false}}),
    );
    let locked = only(&cluster, Code::DatastoreLocked);
    assert!(locked.message().contains(run), "{}", locked.message());
    assert_eq!(locked.remedy(), Some(Remedy::UndoRun));
    cluster.put(&key, json!({"spec": {"datastoreReady": false}}));
    let resource = format!("{RESOURCE_PREFIX}ipamconfigurations/default");
    cluster.put(
        &resource,
        json!({"spec": {"maxBlocksPerHost": 20, "ipCooldownSeconds": -1}}),
    );
    assert_eq!(
        verdict(&cluster).len(),
        2,
        "20 blocks are the default, no cooldown is none"
    );
    cluster.put(
        &resource,
        json!({"spec": {"strictAffinity": true, "autoAllocateBlocks": true}}),
    );
    let mismatch = only(&cluster, Code::ConfigurationMismatch);
    let settings = evidence(&mismatch);
    let expected = ["autoAllocateBlocks", "strictAffinity"];
    assert_eq!(settings.as_object().unwrap().keys().collect::<Vec<_>>(), expected);
    assert_eq!(settings["strictAffinity"][&resource], "true");
    cluster.config(json!("broken"));
    cluster.0.ipam_config = None;
    assert_eq!(
        verdict(&cluster),
        [
            "node-without-addresses node-1",
            "datastore-locked default",
            "undecodable-object /calico/ipam/v2/config"
        ]
    );
}

#[test]
fn endpoints_on_missing_nodes() {
    let mut cluster = whole();
    cluster.resource(
        "nodes/calico-2",
        json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": "node-2"}]}),
    );
    cluster.put(&format!("{RESOURCE_PREFIX}nodes/node-3"), json!([]));
    for (node, pod) in [
        ("node-2", "a"),
        ("calico-2", "b"),
        ("node-3", "c"),
        ("node-9", "d"),
        ("", "e"),
    ] {
        cluster.endpoint(node, pod, &[]);
    }
    let finding = only(&cluster, Code::EndpointOfMissingNode);
    assert_eq!(finding.subject.to_string(), "default/node--9-k8s-d-eth0");
    assert_eq!(
        (finding.subject.kind(), finding.nodes),
        ("endpoint", vec!["node-9".to_owned()])
    );
}

#[test]
fn defects_of_one_object_are_one_finding() {
    let mut cluster = whole();
    let value = json!({"ipv4VXLANTunnelAddr": "10.0.0", "bgp": {"ipv4IPIPTunnelAddr": "x"}});
    cluster.resource("nodes/node-2", value);
    cluster.put("/calico/ipam/v2/odd\r\nkey", json!({}));
    let path = format!("{ENDPOINT_PREFIX}default/node--1-k8s-x-eth0");
    cluster.put(&path, json!({"spec": {"ipNetworks": ["10.244.1.300", "y"]}}));
    let found = findings(&cluster);
    let messages: Vec<String> = found.iter().map(Finding::message).collect();
    assert_eq!(found.len(), 3, "{messages:?}");
    assert!(
        messages[0].contains("odd\\r\\nkey is not a Calico key: "),
        "{messages:?}"
    );
    assert!(messages[1].ends_with("and 1 more"), "{messages:?}");
    assert_eq!(evidence(&found[1])["fields"].as_array().unwrap().len(), 2);
    assert_eq!(found[2].nodes, ["node-1"]);
    assert_eq!(found[2].subject.to_string(), path);
}

#[test]
fn keys_that_a_get_does_not_find() {
    let mut cluster = whole();
    let record = json!({"handle_id": "k8s-pod-network.gone"});
    let block = values::block("10.244.1.4/30", "host:node-1", [record]);
    cluster.put("/calico/ipam/v2/assignment/ipv4/block/10.244.1.6-30", block);
    cluster.affinity("host/node-1", "10.244.1.9/30", json!({"state": "confirmed"}));
    cluster.handle("k8s-pod-network.gone", json!({"10.244.1.4/30": 1}));
    let upper = values::block("fd00::a:0/126", Value::Null, []);
    cluster.put("/calico/ipam/v2/assignment/ipv6/block/FD00::A:0-126", upper);
    let expected = [
        "undecodable-object /calico/ipam/v2/assignment/ipv4/block/10.244.1.6-30",
        "undecodable-object /calico/ipam/v2/assignment/ipv6/block/FD00::A:0-126",
        "undecodable-object /calico/ipam/v2/host/node-1/ipv4/block/10.244.1.9-30",
        "block-outside-pools fd00::a:0/126",
    ];
    assert_eq!(
        verdict(&cluster),
        expected,
        "neither what the block records nor the handle is judged"
    );
    let message = &findings(&cluster)[0].message();
    assert!(
        message.contains("Calico looks for it by the name 10.244.1.4-30"),
        "{message}"
    );
}
