//! Findings about handles, on clusters made of a few hand-written entries.

use calipam_testkit::values;
use serde_json::{Value, json};

use crate::rules::structure_tests::{evidence, findings, only, pod, verdict, whole};
use crate::test_cluster::Cluster;
use crate::{Code, Severity};

/// A cluster in which node-1 has a second block, with these records.
fn with(records: impl IntoIterator<Item = Value>) -> Cluster {
    let mut cluster = whole();
    cluster.affinity("host/node-1", "10.244.1.4/30", json!({"state": "confirmed"}));
    cluster.block("10.244.1.4/30", "host:node-1", records);
    cluster
}

/// The findings about handles, each as `code subject`.
fn about_handles(cluster: &Cluster) -> Vec<String> {
    let about = findings(cluster)
        .into_iter()
        .filter(|f| f.subject.kind() == "handle");
    about.map(|f| format!("{} {}", f.code, f.subject)).collect()
}

#[test]
fn orphan_missing_and_miscounted_handles() {
    let mut cluster = with([pod("a"), pod("a"), pod("b"), pod("c")]);
    cluster.handle("k8s-pod-network.a", json!({"10.244.1.4/30": 1}));
    cluster.handle(
        "k8s-pod-network.b",
        json!({"10.244.1.4/30": 3, "10.244.9.0/30": 1}),
    );
    cluster.handle("lonely", json!({"10.244.1.4/30": 1}));
    cluster.handle("empty", Value::Null);
    cluster.put(
        "/calico/ipam/v2/handle/half",
        json!({"block": {}, "deleted": true}),
    );
    let expected = [
        "missing-handle k8s-pod-network.c",
        "orphan-handle empty",
        "orphan-handle lonely",
        "handle-count k8s-pod-network.a",
        "half-deleted half",
        "handle-count k8s-pod-network.b",
    ];
    assert_eq!(about_handles(&cluster), expected);
    let missing = only(&cluster, Code::MissingHandle);
    assert_eq!(evidence(&missing)["addresses"], json!(["10.244.1.7"]));
    assert_eq!(
        (missing.nodes.as_slice(), missing.depends_on.len()),
        (&["node-1".to_owned()][..], 2)
    );
    let counts: Vec<_> = findings(&cluster)
        .into_iter()
        .filter(|f| f.code == Code::HandleCount)
        .collect();
    assert_eq!(
        counts[0].severity,
        Severity::Warning,
        "too low: a release misses an address"
    );
    assert_eq!(counts[1].severity, Severity::Info, "too high only");
    let blocks = json!([{"block": "10.244.1.4/30", "inHandle": 3, "inBlock": 1},
        {"block": "10.244.9.0/30", "inHandle": 1, "inBlock": 0}]);
    assert_eq!(evidence(&counts[1])["blocks"], blocks);
    let orphan = findings(&cluster)
        .into_iter()
        .find(|f| f.subject.to_string() == "lonely")
        .unwrap();
    assert_eq!(
        (orphan.nodes.as_slice(), orphan.depends_on.len()),
        (&["node-1".to_owned()][..], 2)
    );
}

#[test]
fn several_blocks_and_several_addresses_in_order() {
    let mut cluster = with([pod("web-1"), pod("web-1"), pod("web-2")]);
    cluster.block("10.244.1.8/30", Value::Null, [pod("web-2")]);
    cluster.handle("k8s-pod-network.web-1", json!({"10.244.1.4/30": 2}));
    cluster.handle(
        "k8s-pod-network.web-2",
        json!({"10.244.1.4/30": 1, "10.244.1.8/30": 1}),
    );
    assert_eq!(about_handles(&cluster), [""; 0]);
}

#[test]
fn records_without_a_handle_miss_no_handle() {
    let records = [
        json!({}),
        json!({"handle_id": "", "secondary": {"node": "node-1"}}),
        json!({"handle_id": "Windows-Reserved-IPAM-Handle"}),
        json!({"releasedAt": "2026-05-01T11:59:00Z"}),
    ];
    assert_eq!(about_handles(&with(records)), [""; 0]);
}

#[test]
fn carriage_returns() {
    let mut dirty = pod("a");
    dirty["handle_id"] = json!("k8s-pod-network.a\r\neth0");
    let mut cluster = with([dirty]);
    cluster.endpoint("node-1", "a", &["10.244.1.4/32"]);
    cluster.handle("k8s-pod-network.a", json!({"10.244.1.4/30": 1}));
    assert_eq!(verdict(&cluster), ["handle-carriage-return k8s-pod-network.a"]);
    let finding = only(&cluster, Code::HandleCarriageReturn);
    assert_eq!(
        evidence(&finding)["recordedAs"],
        json!(["k8s-pod-network.a\r\neth0"])
    );
    assert_eq!(evidence(&finding)["addresses"], json!(["10.244.1.4"]));
    // A handle with the long ID is no orphan if a handle with the clean ID exists.
    cluster.handle("k8s-pod-network.a\r\neth0", json!({"10.244.1.4/30": 1}));
    assert_eq!(verdict(&cluster), ["handle-carriage-return k8s-pod-network.a"]);
    // Without a handle with the clean ID, the one with the long ID is the allocation's handle.
    cluster.0.handles.retain(|h| h.value.id() != *"k8s-pod-network.a");
    assert_eq!(verdict(&cluster), ["handle-carriage-return k8s-pod-network.a"]);
    cluster.0.handles.pop();
    let expected = [
        "missing-handle k8s-pod-network.a",
        "handle-carriage-return k8s-pod-network.a",
    ];
    assert_eq!(verdict(&cluster), expected);
    let mut alone = whole();
    alone.handle("x\r", json!({}));
    assert_eq!(verdict(&alone), ["orphan-handle x\r", "handle-carriage-return x"]);
    assert!(findings(&alone).iter().all(|f| !f.message().contains('\r')));
}

#[test]
fn legacy_handles_of_several_addresses() {
    let bare = |id: &str| json!({"handle_id": id});
    let mut attributed = bare("default.db-0");
    attributed["secondary"] = json!({"node": "node-1"});
    let mut cluster = with([
        bare("default.web-0"),
        bare("default.web-0"),
        attributed.clone(),
        attributed,
    ]);
    let container = || bare("k8s-pod-network.0123456789abcdef");
    cluster.block(
        "10.244.1.8/30",
        Value::Null,
        [container(), container(), bare("default.one-0")],
    );
    cluster.block(
        "fd00::/126",
        Value::Null,
        [
            bare("default.one-0"),
            bare("default.six-0"),
            bare("default.six-0"),
        ],
    );
    cluster.resource("ippools/six", json!({"cidr": "fd00::/64", "blockSize": 126}));
    cluster.handle("default.six-0", json!({"fd00::/126": 2}));
    cluster.handle("default.web-0", json!({"10.244.1.4/30": 2}));
    cluster.handle("default.db-0", json!({"10.244.1.4/30": 2}));
    cluster.handle("k8s-pod-network.0123456789abcdef", json!({"10.244.1.8/30": 2}));
    cluster.handle("default.one-0", json!({"10.244.1.8/30": 1, "fd00::/126": 1}));
    let shared = [
        "shared-legacy-handle default.six-0",
        "shared-legacy-handle default.web-0",
    ];
    assert_eq!(about_handles(&cluster), shared);
    let mut found = findings(&cluster)
        .into_iter()
        .filter(|f| f.code == Code::SharedLegacyHandle);
    let finding = found.nth(1).unwrap();
    assert_eq!(
        evidence(&finding)["addresses"],
        json!(["10.244.1.4", "10.244.1.5"])
    );
    assert_eq!(
        finding.message(),
        "10.244.1.4 and 10.244.1.5 share the handle default.web-0"
    );
}

#[test]
fn handles_that_a_broken_block_names_are_not_judged() {
    let mut cluster = whole();
    let corrupt = json!({"cidr": "10.244.1.4/30", "affinity": "host:node-1", "allocations": [0], "unallocated": [],
        "Attributes": [{"HANDLE_ID": "named\r\neth0"}, null, {"handle_id": null}]});
    cluster.put(&values::block_key("10.244.1.4/30"), corrupt);
    cluster.put(&values::block_key("10.244.1.8/30"), json!({"cidr": 5}));
    // This block is sound, but stored under another key.
    let moved = values::block("10.244.9.0/30", Value::Null, [json!({"handle_id": "moved"})]);
    cluster.put(&values::block_key("10.244.1.12/30"), moved);
    cluster.handle("named", json!({"10.244.1.0/30": 5}));
    cluster.handle("maps-corrupt", json!({"10.244.1.4/30": 1}));
    cluster.handle(
        "maps-undecodable",
        json!({"10.244.1.8/30": 1, "10.244.1.0/30": 1}),
    );
    cluster.handle("moved", json!({"10.244.9.0/30": 1}));
    cluster.handle("other", json!({"10.244.1.0/30": 1}));
    assert_eq!(about_handles(&cluster), ["orphan-handle other"]);
}

#[test]
fn many_handles_with_equal_and_different_ids() {
    let mut cluster = whole();
    for block in 2..200 {
        let cidr = format!("10.244.{block}.0/30");
        let records = [0, 1, 2, 3].map(|i| pod(&format!("p-{block}-{i}")));
        cluster.block(&cidr, Value::Null, records);
        for i in 0..3 {
            cluster.handle(
                &format!("k8s-pod-network.p-{block}-{i}"),
                json!({cidr.as_str(): 1}),
            );
        }
        cluster.handle(&format!("k8s-pod-network.q-{block}"), json!({cidr.as_str(): 1}));
    }
    let found = about_handles(&cluster);
    let number = |code: &str| found.iter().filter(|f| f.starts_with(code)).count();
    assert_eq!(
        (number("missing-handle"), number("orphan-handle"), found.len()),
        (198, 198, 396)
    );
}
