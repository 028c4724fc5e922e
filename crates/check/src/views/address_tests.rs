//! Views of an address if only the keys around it were read, or if some objects cannot be decoded.

use calipam_model::key::Key;
use calipam_model::service::Service;
use calipam_model::snapshot::{
    ALLOCATION_SOURCES, Coverage, Defect, DefectKind, Revision, Source, Versioned,
};
use calipam_testkit::values;
use serde_json::{Value, json};

use super::*;
use crate::test_cluster::{Cluster, pod, tunnel};

const NONE: Value = Value::Null;

/// The cluster as `show --ip` reads it: all pools, and the objects around an address.
fn narrow(records: impl IntoIterator<Item = Value>) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.block("10.244.1.0/30", "host:node-1", records);
    let partial = [
        Source::Blocks,
        Source::Affinities,
        Source::Handles,
        Source::Nodes,
        Source::Endpoints,
    ];
    cluster
        .0
        .coverage
        .extend(partial.map(|source| (source, Coverage::Partial)));
    cluster
}

fn story(cluster: &Cluster, text: &str) -> AddressView {
    address(&cluster.0, text.parse().unwrap())
}

fn status(cluster: &Cluster, text: &str) -> Option<OwnerStatus> {
    story(cluster, text).blocks[0].owner_status
}

fn codes(view: &AddressView) -> Vec<&'static str> {
    view.findings.iter().map(|f| f.code.name()).collect()
}

#[test]
fn owners_that_the_record_names_are_known() {
    let mut cluster = narrow([
        tunnel("node-1"),
        pod("node-1", "a"),
        pod("node-9", "b"),
        tunnel("node-9"),
    ]);
    cluster.endpoint("node-1", "a", &["10.244.1.1/32"]);
    let statuses =
        ["10.244.1.0", "10.244.1.1", "10.244.1.2", "10.244.1.3"].map(|text| status(&cluster, text));
    use OwnerStatus::{Gone, UsesIt};
    assert_eq!(statuses, [UsesIt, UsesIt, Gone, Gone].map(Some));
    let gone = story(&cluster, "10.244.1.2");
    assert_eq!(
        (gone.blocks[0].node_exists, !gone.partly_read.is_empty()),
        (Some(false), true)
    );
    assert_eq!(
        codes(&gone),
        [""; 0],
        "others may use it: that takes the whole cluster"
    );
    cluster.0.endpoints.clear();
    cluster.endpoint("node-1", "a", &["10.244.1.9/32"]);
    assert_eq!(status(&cluster, "10.244.1.1"), Some(OwnerStatus::NamesOthers));
}

#[test]
fn owners_that_a_partial_read_cannot_find_are_not_gone() {
    let container = json!({"handle_id": format!("k8s-pod-network.{}", "0".repeat(64))});
    let legacy = json!({"handle_id": "default.old-0"});
    let by_handle = json!({"handle_id": "ipip-tunnel-addr-node-9"});
    let service = json!({"handle_id": "lb-abc"});
    let cluster = narrow([
        container.clone(),
        legacy.clone(),
        by_handle.clone(),
        service.clone(),
    ]);
    for address in ["10.244.1.0", "10.244.1.1", "10.244.1.2", "10.244.1.3"] {
        assert_eq!(status(&cluster, address), Some(OwnerStatus::Unknown), "{address}");
    }
    let mut whole = Cluster::new();
    whole.block(
        "10.244.1.0/30",
        "host:node-1",
        [container, legacy, by_handle, service],
    );
    for address in ["10.244.1.0", "10.244.1.1", "10.244.1.2"] {
        assert_eq!(status(&whole, address), Some(OwnerStatus::Gone), "{address}");
    }
    assert_eq!(
        status(&whole, "10.244.1.3"),
        Some(OwnerStatus::Unknown),
        "services were not read"
    );
    whole.0.coverage.remove(&Source::Endpoints);
    assert_eq!(
        status(&whole, "10.244.1.0"),
        Some(OwnerStatus::Unknown),
        "nor endpoints"
    );
}

#[test]
fn a_mismatch_takes_an_owner_that_can_be_found() {
    // The tunnel of node-1 uses 10.244.1.0, which is recorded for a pod.
    let mut cluster = narrow([pod("node-1", "a")]);
    assert_eq!(codes(&story(&cluster, "10.244.1.0")), ["owner-mismatch"]);
    let container = json!({"handle_id": format!("k8s-pod-network.{}", "0".repeat(64))});
    cluster = narrow([container]);
    assert_eq!(codes(&story(&cluster, "10.244.1.0")), [""; 0]);
    cluster.0.mark_read([Source::Endpoints, Source::Nodes]);
    assert_eq!(codes(&story(&cluster, "10.244.1.0")), ["owner-mismatch"]);
}

#[test]
fn findings_around_an_address_are_shown() {
    let mut cluster = narrow([]);
    cluster.endpoint("node-1", "a", &["10.244.1.2/32"]);
    assert_eq!(
        codes(&story(&cluster, "10.244.1.2")),
        ["unallocated-in-use"],
        "its block was read"
    );
    cluster.0.mark_read([Source::Affinities]);
    assert_eq!(codes(&story(&cluster, "10.244.1.3")), ["block-without-affinity"]);
    assert_eq!(codes(&story(&cluster, "10.244.1.4")), [""; 0], "of another block");
}

#[test]
fn owners_that_cannot_be_decoded_are_not_gone() {
    let mut cluster = narrow([NONE, pod("node-1", "a"), tunnel("node-2")]);
    let value = json!("no endpoint");
    cluster.put(
        "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--1-k8s-a-eth0",
        value,
    );
    cluster.put(
        "/calico/resources/v3/projectcalico.org/nodes/node-2",
        json!("no node"),
    );
    cluster.put("/calico/ipam/v2/handle/k8s-pod-network.a", json!("no handle"));
    let view = story(&cluster, "10.244.1.1");
    assert_eq!(view.blocks[0].owner_status, Some(OwnerStatus::Unknown));
    assert!(view.blocks[0].handle.as_ref().is_some_and(|h| h.exists));
    assert_eq!(
        codes(&view),
        ["undecodable-object", "undecodable-object"],
        "endpoint and handle"
    );
    let key = Key::Pod {
        namespace: "default".into(),
        name: "a".into(),
    };
    let kind = DefectKind::Value("no pod".into());
    cluster.0.defects.push(Defect {
        path: "pods/default/a".into(),
        key: Some(key),
        kind,
    });
    assert_eq!(codes(&story(&cluster, "10.244.1.1")).len(), 3, "and the pod");
    cluster.0.defects.pop();
    let view = story(&cluster, "10.244.1.2");
    let expected = (Some(OwnerStatus::Unknown), Some(true));
    assert_eq!(
        (view.blocks[0].owner_status, view.blocks[0].node_exists),
        expected
    );
    assert_eq!(codes(&view), ["undecodable-object"], "the node");
    let view = handle(&cluster.0, "k8s-pod-network.a").unwrap();
    assert_eq!(
        (view.exists, view.revision.clone(), view.findings.len()),
        (true, None, 1)
    );
}

#[test]
fn overlapping_and_broken_blocks_are_all_shown() {
    let mut cluster = Cluster::new();
    cluster.block("10.244.1.0/30", "host:node-1", [NONE, pod("node-1", "a")]);
    cluster.block("10.244.1.0/31", NONE, [NONE, pod("node-2", "b")]);
    cluster.put(&values::block_key("10.244.9.0/30"), json!(7));
    let view = story(&cluster, "10.244.1.1");
    assert_eq!(view.blocks.iter().map(|b| b.ordinal).collect::<Vec<_>>(), [1, 1]);
    assert!(
        codes(&view).contains(&"address-in-several-blocks"),
        "{:?}",
        codes(&view)
    );
    let broken = story(&cluster, "10.244.9.1");
    assert_eq!(
        (broken.state, codes(&broken)),
        (AddressState::Unknown, vec!["undecodable-object"])
    );
    let listed = blocks(&cluster.0).blocks;
    assert_eq!(listed.len(), 3);
    assert!(
        listed[2].problems[0].starts_with("the value cannot be decoded"),
        "{:?}",
        listed[2].problems
    );
}

#[test]
fn a_service_uses_its_address() {
    let mut cluster = Cluster::new();
    cluster.0.mark_read([Source::Services]);
    let spec = json!({"cidr": "10.9.0.0/24", "blockSize": 30, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb", spec);
    let record = json!({"handle_id": "lb-x", "secondary": {"type": "LoadBalancer", "namespace": "shop", "service": "web"}});
    cluster.block("10.9.0.0/30", "virtual:load-balancer", [record]);
    assert_eq!(status(&cluster, "10.9.0.0"), Some(OwnerStatus::Gone));
    let ingress = vec!["10.9.0.0".parse().unwrap()];
    let value = Service {
        namespace: "shop".into(),
        name: "web".into(),
        ingress,
        ..Service::default()
    };
    cluster.0.services.push(Versioned {
        value,
        revision: Revision::Etcd(1),
    });
    assert_eq!(status(&cluster, "10.9.0.0"), Some(OwnerStatus::UsesIt));
}

#[test]
fn claimable_follows_the_pools_of_a_request() {
    let mut cluster = Cluster::new();
    cluster.0.mark_read(ALLOCATION_SOURCES);
    cluster.resource("ippools/other", json!({"cidr": "10.245.0.0/16", "blockSize": 30}));
    cluster.resource(
        "ippools/rack",
        json!({"cidr": "10.246.0.0/16", "nodeSelector": "rack == 'a'"}),
    );
    let spec = json!({"cidr": "10.247.0.0/16", "blockSize": 30, "assignmentMode": "Manual"});
    cluster.resource("ippools/hand", spec);
    cluster.block("10.244.1.0/30", "host:node-1", []);
    cluster.block("10.247.1.0/30", "host:node-1", []);
    for block in ["10.244.1.0/30", "10.247.1.0/30"] {
        cluster.affinity("host/node-1", block, json!({"state": "confirmed"}));
    }
    cluster.config(json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 3}));
    let rows = |cluster: &Cluster| -> Vec<(String, u32, Option<u32>)> {
        let node = nodes(&cluster.0).nodes.remove(0);
        node.pools
            .into_iter()
            .map(|p| (p.pool.unwrap_or_default(), p.blocks, p.claimable))
            .collect()
    };
    let row = |pool: &str, blocks, claimable| (pool.to_owned(), blocks, Some(claimable));
    assert_eq!(
        rows(&cluster),
        [row("default", 1, 2), row("hand", 1, 2), row("other", 0, 2)]
    );
    cluster.config(json!({"strict_affinity": true}));
    assert_eq!(
        rows(&cluster),
        [row("default", 1, 0), row("hand", 1, 0)],
        "no node may claim blocks"
    );
}

/// A node needs no claim for its own empty block, or for a CIDR for which it already has an affinity.
#[test]
fn claimable_leaves_out_blocks_that_the_node_has() {
    let mut cluster = Cluster::new();
    cluster.0.mark_read(ALLOCATION_SOURCES);
    cluster.only_pool("small", json!({"cidr": "10.244.1.0/29", "blockSize": 30}));
    cluster.config(json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 20}));
    let claimable = |cluster: &Cluster| nodes(&cluster.0).nodes[0].pools[0].claimable;
    assert_eq!(claimable(&cluster), Some(2));
    cluster.block("10.244.1.0/30", "host:node-1", []);
    for (block, left) in [("10.244.1.0/30", 1), ("10.244.1.4/30", 0)] {
        cluster.affinity("host/node-1", block, json!({"state": "confirmed"}));
        assert_eq!(claimable(&cluster), Some(left), "{block}");
    }
}

#[test]
fn nothing_overflows() {
    let mut cluster = Cluster::new();
    for key in ["::-0", "::-1", "8000::-1"] {
        let path = format!("/calico/ipam/v2/assignment/ipv6/block/{key}");
        cluster.put(
            &path,
            json!({"cidr": key.replace('-', "/"), "allocations": [], "unallocated": []}),
        );
    }
    let list = pools(&cluster.0);
    assert_eq!(list.outside.map(|o| (o.blocks, o.total.0)), Some((3, u128::MAX)));
    assert_eq!(blocks(&cluster.0).blocks.len(), 3);
    assert_eq!(story(&cluster, "::1").state, AddressState::Unknown);
}
