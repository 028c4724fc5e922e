//! The fact sheet's JSON examples, and values from earlier versions: all of them can be read without defects, and mean
//! the same when written again.

use std::fs;
use std::path::Path;

use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::handle::Handle;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::Snapshot;
use serde_json::{Value, json};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/facts");
    fs::read(folder.join(format!("{name}.json"))).unwrap()
}

fn value(name: &str) -> Value {
    serde_json::from_slice(&fixture(name)).unwrap()
}

/// Reads the fixture for `key`, which must have no defects.
fn read(key: &str, name: &str) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.add_entry(key.as_bytes(), &fixture(name), 7);
    assert_eq!(snapshot.defects, [], "{name}");
    snapshot
}

fn block(name: &str) -> Block {
    match BlockContent::parse(&fixture(name)).unwrap() {
        BlockContent::Sound(block) => *block,
        BlockContent::Corrupt(block) => panic!("{name}: {:?}", block.problems),
    }
}

fn printed(value: &impl serde::Serialize) -> Value {
    serde_json::from_slice(&serde_json::to_vec(value).unwrap()).unwrap()
}

#[test]
fn the_block_of_the_facts_says_the_same_when_printed() {
    let block = block("block");
    assert_eq!(printed(&block), value("block"));
    let text = String::from_utf8(serde_json::to_vec(&block).unwrap()).unwrap();
    let mut at = 0;
    // Calico writes the fields in this order.
    for field in [
        "cidr",
        "affinity",
        "affinity_claim_time",
        "allocations",
        "unallocated",
        "attributes",
        "sequenceNumber",
        "sequenceNumberForAllocation",
        "deleted",
    ] {
        at += text[at..]
            .find(&format!("\"{field}\":"))
            .unwrap_or_else(|| panic!("{field} is out of order"));
    }
    assert!(
        !text.contains(", ") && !text.contains(": "),
        "Calico writes no spaces between fields"
    );
}

#[test]
fn the_block_of_the_facts_reads_as_the_facts_explain_it() {
    let block = block("block");
    assert_eq!(block.free(), [4, 5, 6, 7, 2]);
    assert_eq!(block.owner(), Some(&BlockOwner::Host("node-1".into())));
    let tunnel = block.allocation(0).unwrap();
    assert_eq!(
        (tunnel.address.to_string().as_str(), tunnel.sequence),
        ("10.244.1.0", 1777630272123456789)
    );
    let cooling = block.allocation_of("10.244.1.3".parse().unwrap()).unwrap();
    assert!(cooling.attribute.is_cooling());
    let pod = block.allocation(1).unwrap().attribute;
    assert_eq!(pod.get("pod").unwrap().to_string(), "nginx-6799fc88d8-abcde");
    assert_eq!(
        pod.allocated_at().unwrap().as_nanosecond() % 1_000_000_000,
        123_456_789
    );
}

#[test]
fn blocks_that_today_s_calico_writes_come_back_as_they_were() {
    for name in ["block", "block-windows", "block-migration"] {
        assert_eq!(printed(&block(name)), value(name), "{name}");
    }
}

#[test]
fn a_rewrite_leaves_out_what_is_null_in_owner_records() {
    let mut expected = value("block-3.31");
    expected["attributes"] = json!([{}, {"handle_id": "default.web-0"}]);
    expected["sequenceNumberForAllocation"] = json!(null);
    assert_eq!(printed(&block("block-3.31")), expected);
}

#[test]
fn a_rewrite_of_an_old_block_keeps_what_it_does_not_know() {
    let mut expected = value("block-3.13");
    expected["attributes"] = json!([{"handle_id": "default.web-0"}]);
    expected["sequenceNumber"] = json!(0);
    expected["sequenceNumberForAllocation"] = json!(null);
    expected["deleted"] = json!(false);
    assert_eq!(printed(&block("block-3.13")), expected);
}

#[test]
fn the_oldest_owner_field_is_no_owner_and_stays_where_it_is() {
    let block = block("block-oldest");
    assert_eq!(block.owner(), None);
    let printed = printed(&block);
    assert_eq!(printed["affinity"], Value::Null);
    assert_eq!(printed["hostAffinity"], "node-1");
}

#[test]
fn affinities_say_the_same_when_printed() {
    let cidr = "10.244.1.0/29".parse().unwrap();
    let key = AffinityKey {
        kind: AffinityType::Host,
        node: "node-1".into(),
        cidr,
    };
    for name in ["affinity", "affinity-pending-deletion"] {
        let affinity = Affinity::parse(key.clone(), &fixture(name)).unwrap();
        assert_eq!(printed(&affinity), value(name), "{name}");
    }
    for old in [fixture("affinity-2.x"), Vec::new()] {
        let affinity = Affinity::parse(key.clone(), &old).unwrap();
        assert_eq!(affinity.state, AffinityState::Confirmed);
        assert_eq!(printed(&affinity), value("affinity"));
    }
}

#[test]
fn handles_say_the_same_when_printed() {
    let handle = Handle::parse("k8s-pod-network.3f9a", &fixture("handle")).unwrap();
    assert_eq!(printed(&handle), value("handle"));
    assert_eq!(handle.count("fd00:10:244::/122".parse().unwrap()), 1);
    let empty = Handle::parse("k8s-pod-network.3f9a", &fixture("handle-null")).unwrap();
    assert_eq!(empty.blocks().count(), 0);
    assert_eq!(printed(&empty), json!({"block": {}, "deleted": false}));
}

#[test]
fn configuration_reads_as_the_facts_explain_it() {
    let key = "/calico/ipam/v2/config";
    let config = read(key, "ipam-config").ipam_config.unwrap();
    let resource = format!("{RESOURCES}/ipamconfigurations/default");
    assert_eq!(
        read(&resource, "ipam-configuration").ipam_configuration,
        Some(config)
    );
    assert!(config.strict_affinity && config.auto_allocate_blocks && config.keeps_addresses_of_machines());
    assert_eq!((config.block_limit(), config.cooldown_seconds), (4, 30));
    // The key exists, but its value lacks the field, so automatic allocation is off.
    let empty = read(key, "ipam-config-empty").ipam_config.unwrap();
    assert!(!empty.auto_allocate_blocks && !empty.strict_affinity);
    assert_eq!(empty.block_limit(), 20);
}

#[test]
fn pools_and_reservations_read() {
    let snapshot = read(&format!("{RESOURCES}/ippools/default-ipv4-ippool"), "pool");
    let pool = &snapshot.pools[0].value;
    assert_eq!(
        (pool.cidr.to_string().as_str(), pool.block_size),
        ("10.244.0.0/16", 26)
    );
    assert!(pool.is_enabled() && pool.automatic);
    let snapshot = read(&format!("{RESOURCES}/ipreservations/infra"), "reservation");
    let cidrs: Vec<String> = snapshot.reservations[0]
        .value
        .cidrs
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(cidrs, ["10.244.0.1/32", "10.244.7.0/24", "fd00:10:244::/120"]);
}

#[test]
fn the_node_has_all_five_tunnels() {
    let snapshot = read(&format!("{RESOURCES}/nodes/node-1"), "node");
    let node = &snapshot.nodes[0].value;
    let tunnels: Vec<(TunnelKind, String)> = node.tunnels.iter().map(|(k, a)| (*k, a.to_string())).collect();
    let expected = [
        (TunnelKind::Ipip, "10.244.1.0"),
        (TunnelKind::Vxlan, "10.244.1.2"),
        (TunnelKind::VxlanV6, "fd00:10:244::2"),
        (TunnelKind::Wireguard, "10.244.1.3"),
        (TunnelKind::WireguardV6, "fd00:10:244::3"),
    ];
    assert_eq!(
        tunnels,
        expected.map(|(kind, address)| (kind, address.to_owned()))
    );
    assert_eq!(node.kubernetes_name.as_deref(), Some("node-1"));
}

#[test]
fn the_endpoint_says_who_uses_which_address() {
    let key = format!("{RESOURCES}/workloadendpoints/default/node--1-k8s-nginx--6799fc88d8--abcde-eth0");
    let snapshot = read(&key, "workload-endpoint");
    let endpoint = &snapshot.endpoints[0].value;
    assert_eq!(
        endpoint.addresses().collect::<Vec<_>>(),
        ["10.244.1.1".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(endpoint.pod().to_string(), "nginx-6799fc88d8-abcde");
    assert_eq!(endpoint.container_id().to_string().len(), 64);
}

#[test]
fn cluster_information_and_controllers_read() {
    let key = format!("{RESOURCES}/clusterinformations/default");
    let cluster = read(&key, "cluster-information").cluster.unwrap();
    assert_eq!(cluster.guid, "0f0e1d2c3b4a59687786951423324150");
    assert_eq!(cluster.datastore_ready, Some(true));
    let key = format!("{RESOURCES}/kubecontrollersconfigurations/default");
    let config = read(&key, "kube-controllers-configuration")
        .kube_controllers
        .unwrap();
    assert_eq!(config.leak_grace_period.unwrap().as_mins(), 15);
    assert!(config.assign_ips.is_some());
}

#[test]
fn no_fixture_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/facts");
    let source = include_str!("facts.rs");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".json") else {
            continue;
        };
        assert!(source.contains(&format!("\"{name}\"")), "no test reads {name}");
    }
}
