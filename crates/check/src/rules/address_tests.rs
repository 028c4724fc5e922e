//! Findings about addresses, on clusters made of a few hand-written entries.

use calipam_model::key::{ENDPOINT_PREFIX, RESOURCE_PREFIX};
use calipam_model::names::endpoint_name;
use calipam_testkit::values;
use serde_json::{Value, json};

use super::in_use_tests::{etcd, healthy};
use crate::owner::{RecordedOwner, UnknownReason};
use crate::test_cluster::{Cluster, pod, tunnel};
use crate::views::{self, OwnerStatus};
use crate::{Code, Context, LeakReason, Options, check};

#[test]
fn young_cooling_and_reserved_addresses_and_owners_of_unread_sources_are_not_leaked() {
    let mut young = pod("node-1", "new");
    young["secondary"]["timestamp"] = json!("2026-05-01 11:50:00 +0000 UTC");
    let service = json!({"handle_id": "lb-abc", "secondary": {"type": "LoadBalancer", "service": "web", "namespace": "default"}});
    let mut machine = pod("node-1", "virt-launcher-vm-1-abcde");
    machine["secondary"]["vmi-name"] = json!("vm-1");
    let windows =
        json!({"handle_id": "Windows-Reserved-IPAM-Handle", "secondary": {"note": "windows host rsvd"}});
    let mut cluster = etcd([young, service, machine, windows]);
    cluster.block(
        "10.244.1.8/30",
        "host:node-1",
        [json!({"releasedAt": "2026-05-01T11:59:00Z"})],
    );
    assert_eq!(cluster.verdict(), [""; 0]);
}

#[test]
fn duplicates_are_two_different_live_owners() {
    let mut cluster = healthy();
    cluster.endpoint("node-1", "web-1", &["10.244.1.1/32"]);
    assert_eq!(cluster.verdict(), ["duplicate-address 10.244.1.1"]);
    let mut stale = healthy();
    stale
        .resource("nodes/node-2", json!({}))
        .endpoint("node-2", "web-0", &["10.244.1.1/32"]);
    assert_eq!(stale.verdict(), [""; 0], "two endpoints of one pod are one owner");
    let mut tunnels = healthy();
    tunnels.resource("nodes/node-2", json!({"ipv4VXLANTunnelAddr": "10.244.1.0/32"}));
    assert_eq!(
        tunnels.verdict(),
        [
            "duplicate-address 10.244.1.0",
            "borrowed-tunnel-address 10.244.1.0"
        ]
    );
}

#[test]
fn both_sides_of_a_live_migration_are_one_owner() {
    let side = |pod: &str| json!({"namespace": "default", "node": "node-1", "pod": pod, "vmi-name": "vm-1"});
    let record = json!({"handle_id": "k8s-pod-network.vmi.default.vm-1", "secondary": side("virt-launcher-vm-1-aaaaa"), "alternateOwnerAttrs": side("virt-launcher-vm-1-bbbbb")});
    let mut cluster = etcd([record]);
    cluster.endpoint("node-1", "virt-launcher-vm-1-aaaaa", &["10.244.1.4/32"]);
    cluster.endpoint("node-1", "virt-launcher-vm-1-bbbbb", &["10.244.1.4/32"]);
    assert_eq!(cluster.verdict(), [""; 0]);
}

#[test]
fn a_record_whose_pod_has_no_name_or_namespace_names_no_pod() {
    for attribute in ["pod", "namespace"] {
        let mut empty = pod("node-1", "gone");
        empty["secondary"][attribute] = json!("");
        let mut absent = pod("node-1", "gone");
        absent["secondary"].as_object_mut().unwrap().remove(attribute);

        let leak_of = |record: Value| {
            let report = check(&etcd([record]).0, &Options::default());
            let mut findings = report.findings.iter();
            let leak = findings.find(|f| f.code == Code::LeakedAddress).unwrap();
            format!("{} {}", leak.severity, leak.message())
        };
        let found = leak_of(empty);
        assert!(found.starts_with("warning "), "{attribute}: {found}");
        assert_eq!(found, leak_of(absent), "{attribute}");
    }
}

#[test]
fn owners_that_are_not_the_recorded_ones() {
    let windows = json!({"handle_id": "windows-reserved-ipam-handle"});
    let container = json!({"handle_id": format!("k8s-pod-network.{:0>64}", 4)});
    let mut cluster = etcd([pod("node-1", "other"), windows, container, json!({})]);
    for (pod, address) in [
        ("a", "10.244.1.4"),
        ("b", "10.244.1.5"),
        ("four", "10.244.1.6"),
        ("d", "10.244.1.7"),
    ] {
        cluster.endpoint("node-1", pod, &[address]);
    }
    assert_eq!(
        cluster.verdict(),
        ["owner-mismatch 10.244.1.4", "owner-mismatch 10.244.1.5"]
    );
}

#[test]
fn strict_affinity_and_borrowing() {
    let mut cluster = healthy();
    cluster.resource("nodes/node-2", json!({}));
    cluster.block("10.244.1.4/30", "host:node-2", [pod("node-1", "web-1")]);
    cluster.block("10.244.1.8/30", Value::Null, [pod("node-1", "web-2")]);
    cluster
        .endpoint("node-1", "web-1", &["10.244.1.4/32"])
        .endpoint("node-1", "web-2", &["10.244.1.8/32"]);
    assert_eq!(cluster.verdict(), [""; 0]);
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    assert_eq!(cluster.verdict(), ["borrowed-under-strict-affinity 10.244.1.4"]);
}

#[test]
fn two_blocks_that_both_hold_an_address() {
    let mut cluster = healthy();
    let mut of_four = values::block("10.244.1.0/30", Value::Null, []);
    of_four["cidr"] = "10.244.1.0/31".into();
    cluster.put(&values::block_key("10.244.1.0/31"), of_four);
    assert_eq!(
        cluster.verdict(),
        [""; 0],
        "a corrupt block hides what lies in it"
    );
    let mut cluster = healthy();
    cluster.block("10.244.1.1/32", Value::Null, [pod("node-1", "other")]);
    assert_eq!(cluster.verdict(), ["address-in-several-blocks 10.244.1.1"]);
}

#[test]
fn undecodable_objects_protect_the_addresses_that_they_name() {
    let vxlan = json!({"handle_id": "vxlan-tunnel-addr-node-2", "secondary": {"node": "node-2", "type": "vxlanTunnelAddress"}});
    let mut cluster = etcd([
        pod("node-1", "web-1"),
        vxlan,
        tunnel("node-3"),
        pod("node-1", "web-2"),
    ]);
    cluster.resource("nodes/node-2", json!({"ipv4VXLANTunnelAddr": "10.244.300.1"}));
    cluster.put(
        &format!("{ENDPOINT_PREFIX}default/node--1-k8s-web--1-eth0"),
        json!("no object"),
    );
    cluster.put(&format!("{RESOURCE_PREFIX}nodes/node-3"), json!([]));
    cluster.endpoint("node-1", "web-2", &["10.244.1.x/32"]);
    assert_eq!(cluster.verdict(), [""; 0]);
}

/// An undecodable endpoint protects the owners that its key may refer to: the container that the key names, and all
/// containers in the blocks of the key's node. Containers in other blocks stay unknown, so rules, views and rebuilds do
/// not treat them as gone.
#[test]
fn a_container_is_not_gone_while_an_endpoint_cannot_be_decoded() {
    let container = "a".repeat(64);
    let judge = |undecodable: Option<&str>| {
        let record = json!({"handle_id": format!("k8s-pod-network.{container}")});
        let mut cluster = etcd([record]);
        if let Some(name) = undecodable {
            cluster.put(&format!("{ENDPOINT_PREFIX}default/{name}"), json!("no object"));
        }
        let context = Context::new(&cluster.0, &Options::default());
        let block = calipam_model::cidr::parse_cidr("10.244.1.4/30").unwrap();
        let owner = context.recorded_owners(&[(block, 0)]).remove(0);
        let view = views::address(&cluster.0, "10.244.1.4".parse().unwrap());
        (cluster.verdict(), owner, view.blocks[0].owner_status)
    };
    let leaked = || vec!["leaked-address 10.244.1.4".to_owned()];
    let gone = (
        leaked(),
        RecordedOwner::Gone(vec![LeakReason::UnknownOwner]),
        Some(OwnerStatus::Gone),
    );
    let kept = (
        vec![],
        RecordedOwner::Unknown(UnknownReason::Undecodable),
        Some(OwnerStatus::Unknown),
    );
    let unnamed = (leaked(), RecordedOwner::Unnamed, Some(OwnerStatus::Unknown));

    assert_eq!(judge(None), gone);
    assert_eq!(
        judge(Some(&endpoint_name("node-1", "k8s", "web-9", "eth0"))),
        kept
    );
    assert_eq!(
        judge(Some(&endpoint_name("node-2", "cni", &container, "eth0"))),
        kept
    );
    assert_eq!(
        judge(Some(&endpoint_name("node-1", "cni", "another", "eth0"))),
        kept
    );
    let found = judge(Some(&endpoint_name("node-2", "k8s", "web-9", "eth0")));
    assert_eq!(found, unnamed, "it may have borrowed");
    assert_eq!(judge(Some("unparsable")), unnamed);
    let found = judge(Some(&endpoint_name("node-2", "cni", "another", "eth0")));
    assert_eq!(found, gone, "its key names another container");
}

/// Orchestrators other than Kubernetes name handles after the endpoint's workload.
#[test]
fn a_workload_of_another_orchestrator_is_the_owner_that_its_handle_names() {
    let record = json!({"handle_id": "default.job-1"});
    let mut cluster = etcd([record]);
    assert_eq!(cluster.verdict(), ["leaked-address 10.244.1.4"]);

    let name = endpoint_name("node-1", "mesos", "default.job-1", "eth0");
    let path = format!("{ENDPOINT_PREFIX}libcalico/{name}");
    let spec = json!({"node": "node-1", "orchestrator": "mesos", "workload": "default.job-1", "endpoint": "eth0", "ipNetworks": []});
    cluster.put(&path, json!({"spec": spec}));
    assert_eq!(cluster.verdict(), [""; 0], "it has no address yet");

    cluster.0.endpoints.clear();
    cluster.endpoint("node-1", "web-0", &["10.244.1.1/32"]);
    cluster.put(&path, json!("no object"));
    assert_eq!(cluster.verdict(), [""; 0], "it cannot be decoded");
}

#[test]
fn a_tunnel_of_a_node_that_endpoints_still_name_is_not_gone() {
    let mut cluster = healthy();
    cluster.block(
        "10.244.1.4/30",
        "host:node-9",
        [tunnel("node-9"), pod("node-9", "web-1")],
    );
    let status =
        |cluster: &Cluster| views::address(&cluster.0, "10.244.1.4".parse().unwrap()).blocks[0].owner_status;
    assert_eq!(status(&cluster), Some(OwnerStatus::Gone));
    cluster.endpoint("node-9", "web-1", &["10.244.1.5/32"]);
    assert_eq!(
        (cluster.verdict(), status(&cluster)),
        (vec![], Some(OwnerStatus::Unknown))
    );
}

#[test]
fn a_timestamp_in_the_future_counts_as_old() {
    let leaked = |timestamp: &str| {
        let mut record = pod("node-1", "gone");
        record["secondary"]["timestamp"] = timestamp.into();
        let cluster = etcd([record]);
        cluster.verdict().len()
    };
    assert_eq!(leaked("2026-05-01 12:00:59 +0000 UTC"), 0, "clocks differ");
    assert_eq!(leaked("2026-05-01 12:01:01 +0000 UTC"), 1);
    assert_eq!(leaked("2027-05-01 12:00:00 +0000 UTC"), 1);
}

#[test]
fn records_that_no_ordinal_refers_to_hide_no_address() {
    let mut cluster = healthy();
    let records = json!([
        pod("node-1", "stray"),
        pod("node-1", "gone"),
        pod("node-1", "stray")
    ]);
    let mut block = json!({"cidr": "10.244.1.4/30", "affinity": "host:node-1",
        "allocations": [null, 1, null, null], "unallocated": [0, 2, 3], "attributes": records});
    cluster.endpoint("node-1", "unrecorded", &["10.244.1.6/32"]);
    let key = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.4-30";
    cluster.put(key, block.clone());
    assert_eq!(
        cluster.verdict(),
        ["unallocated-in-use 10.244.1.6", "leaked-address 10.244.1.5"]
    );
    let found = check(&cluster.0, &Options::default()).findings;
    assert!(
        found.iter().any(|f| f.code == crate::Code::CorruptBlock),
        "the block's own finding stays"
    );
    let view = views::address(&cluster.0, "10.244.1.5".parse().unwrap());
    assert_eq!(view.blocks[0].recorded_owner.as_deref(), Some("default/gone"));
    assert_eq!(view.blocks[0].problems.len(), 2);

    // Any other defect of a block hides its addresses.
    let mut later = healthy();
    later.endpoint("node-1", "unrecorded", &["10.244.1.6/32"]);
    block["unallocated"] = json!([0, 2]);
    later.put(key, block);
    assert_eq!(later.verdict(), [""; 0]);
}
