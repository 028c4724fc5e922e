//! Findings about pools and block limits, on clusters made of a few hand-written entries.

use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::snapshot::Source;
use serde_json::{Value, json};

use super::structure_tests::{evidence, findings, only, pod, verdict, whole};
use crate::test_cluster::Cluster;
use crate::{Code, Options, Severity, check};

/// A cluster with node-1, node-2 and a pool with room for four blocks of four addresses. Each entry of `blocks` is the
/// owner of a block and its number of taken addresses.
pub(super) fn small(config: Value, blocks: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new();
    cluster
        .0
        .mark_read([Source::Affinities, Source::Reservations, Source::IpamConfig]);
    cluster.0.nodes.clear();
    cluster.only_pool("tiny", json!({"cidr": "10.244.1.0/28", "blockSize": 30}));
    for node in ["node-1", "node-2"] {
        let labels = json!({"zone": node});
        cluster.put(
            &format!("{RESOURCE_PREFIX}nodes/{node}"),
            json!({"metadata": {"labels": labels}}),
        );
    }
    cluster.config(config);
    for (position, (owner, taken)) in blocks.iter().enumerate() {
        let base = 4 * position;
        let cidr = format!("10.244.1.{base}/30");
        let records = [0, 1, 2, 3].map(|i| match i < *taken {
            true => json!({"handle_id": format!("h-{base}-{i}")}),
            false => Value::Null,
        });
        cluster.block(&cidr, format!("host:{owner}"), records);
        cluster.affinity(&format!("host/{owner}"), &cidr, json!({}));
    }
    cluster
}

pub(super) fn strict() -> Value {
    json!({"strict_affinity": true, "auto_allocate_blocks": true})
}

pub(super) fn open() -> Value {
    json!({"auto_allocate_blocks": true})
}

pub(super) const FULL: [(&str, usize); 4] = [("node-1", 4), ("node-2", 4), ("node-2", 4), ("node-2", 3)];

#[test]
fn a_selector_that_calico_refuses_is_found_before_the_first_block_too() {
    let found = |blocks: &[(&str, usize)], field: &str, value: Value| {
        let mut cluster = small(open(), blocks);
        cluster.only_pool(
            "tiny",
            json!({"cidr": "10.244.1.0/28", "blockSize": 30, field: value}),
        );
        let found = findings(&cluster)
            .into_iter()
            .filter(|f| f.code == Code::InvalidPoolSelector);
        found
            .map(|f| (f.message(), evidence(&f)["invalidSelector"].clone()))
            .collect::<Vec<_>>()
    };
    let reason = "expected string";
    for field in ["nodeSelector", "namespaceSelector"] {
        for blocks in [&[][..], &FULL] {
            let evidence = json!({"field": field, "selector": "zone ==", "reason": reason});
            let message =
                format!("tiny (10.244.1.0/28) has the {field} \"zone ==\", which does not parse: {reason}");
            assert_eq!(found(blocks, field, json!("zone ==")), [(message, evidence)]);
        }
    }
    let mut manual = small(open(), &FULL);
    let spec =
        json!({"cidr": "10.244.1.0/28", "blockSize": 30, "nodeSelector": "(", "assignmentMode": "Manual"});
    manual.only_pool("tiny", spec);
    assert!(
        findings(&manual)
            .iter()
            .all(|f| f.code != Code::InvalidPoolSelector),
        "it is not evaluated"
    );
    let deep = format!("{0}all(){1}", "(".repeat(200), ")".repeat(200));
    assert_eq!(found(&FULL, "nodeSelector", json!(deep)), []);
}

#[test]
fn nearly_full_pools() {
    let percent = |cluster: &Cluster, threshold: f64| {
        let options = Options {
            pool_threshold: threshold,
            ..Options::default()
        };
        let report = check(&cluster.0, &options);
        let found = report
            .findings
            .into_iter()
            .find(|f| f.code == Code::PoolNearlyFull);
        found.map(|f| f.message())
    };
    let cluster = small(
        open(),
        &[("node-1", 4), ("node-2", 4), ("node-2", 4), ("node-2", 2)],
    );
    assert_eq!(percent(&cluster, 90.0), None);
    assert_eq!(percent(&cluster, 87.5), None, "above, not at");
    let expected = Some("tiny (10.244.1.0/28) is 87 % full: 14 of 16 in use");
    assert_eq!(percent(&cluster, 87.0).as_deref(), expected);
    // One reserved address is in use, and the other one is free. Neither of them counts.
    let mut reserved = Cluster(cluster.0.clone());
    reserved.resource(
        "ipreservations/r",
        json!({"reservedCIDRs": ["10.244.1.0", "10.244.1.15", "fd00::/8"]}),
    );
    let expected = Some("tiny (10.244.1.0/28) is 92 % full: 13 of 14 in use");
    assert_eq!(percent(&reserved, 90.0).as_deref(), expected);
    let evidence = evidence(&only(&reserved, Code::PoolNearlyFull));
    assert_eq!(
        (&evidence["inUse"], &evidence["usable"]),
        (&json!("13"), &json!("14"))
    );
    let mut disabled = Cluster(reserved.0.clone());
    disabled.0.pools[0].value.disabled = true;
    assert_eq!(percent(&disabled, 50.0), None);
    let mut all = Cluster(cluster.0.clone());
    all.resource("ipreservations/r", json!({"reservedCIDRs": ["10.0.0.0/8"]}));
    assert_eq!(percent(&all, 1.0), None);
    let full = small(
        open(),
        &[("node-1", 4), ("node-2", 4), ("node-2", 4), ("node-2", 4)],
    );
    assert_eq!(only(&full, Code::PoolNearlyFull).severity, Severity::Error);
}

#[test]
fn addresses_of_overlapping_blocks_count_once() {
    let mut cluster = small(
        open(),
        &[("node-1", 4), ("node-2", 4), ("node-2", 4), ("node-2", 0)],
    );
    cluster.block("10.244.1.0/31", Value::Null, vec![json!({}); 2]);
    let options = Options {
        pool_threshold: 70.0,
        ..Options::default()
    };
    let usage = |cluster: &Cluster| {
        let report = check(&cluster.0, &options);
        let found = report
            .findings
            .iter()
            .find(|f| f.code == Code::PoolNearlyFull)
            .unwrap();
        evidence(found)["inUse"].clone()
    };
    assert_eq!(usage(&cluster), "12");
    cluster.block("10.244.1.0/27", Value::Null, vec![json!({}); 32]);
    assert_eq!(usage(&cluster), "16", "a block larger than the pool");
}

#[test]
fn overlapping_pools_with_equal_and_different_cidrs() {
    let mut cluster = whole();
    cluster.resource(
        "ippools/twin",
        json!({"cidr": "10.244.0.0/16", "blockSize": 30, "disabled": true}),
    );
    cluster.resource(
        "ippools/inner",
        json!({"cidr": "10.244.128.0/20", "blockSize": 30}),
    );
    cluster.resource("ippools/apart", json!({"cidr": "10.245.0.0/16"}));
    assert_eq!(
        verdict(&cluster),
        [
            "overlapping-pools 10.244.0.0/16",
            "overlapping-pools 10.244.128.0/20"
        ]
    );
    let first = findings(&cluster).remove(0);
    assert_eq!(
        evidence(&first)["others"],
        json!(["twin 10.244.0.0/16", "inner 10.244.128.0/20"])
    );
}

#[test]
fn the_block_limit() {
    let with_limit = |config: Value, selector: &str| {
        let mut cluster = whole();
        cluster.0.pools[0].value.node_selector = selector.to_owned();
        cluster.config(config);
        for block in 1..21 {
            let cidr = format!("10.244.2.{}/30", 4 * block);
            let id = format!("p-{block}");
            cluster.block(&cidr, "host:node-1", [pod(&id)]);
            cluster.endpoint("node-1", &id, &[&format!("10.244.2.{}/32", 4 * block)]);
            cluster.affinity("host/node-1", &cidr, json!({}));
            cluster.handle(&format!("k8s-pod-network.{id}"), json!({cidr.as_str(): 1}));
        }
        cluster
    };
    let over = with_limit(open(), "all()");
    assert_eq!(verdict(&over), ["node-over-block-limit node-1"]);
    let evidence = evidence(&only(&over, Code::NodeOverBlockLimit));
    assert_eq!(
        evidence,
        json!({"pools": [{"pool": "default", "blocks": 21, "limit": 20}]})
    );
    let higher = json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 21});
    assert_eq!(verdict(&with_limit(higher, "all()")), [""; 0]);
    for (version, is_over) in [("v3.18.6", false), ("v3.19.0", true), ("", true)] {
        let mut cluster = with_limit(open(), "all()");
        cluster.resource("clusterinformations/default", json!({"calicoVersion": version}));
        assert_eq!(verdict(&cluster).len(), usize::from(is_over), "{version:?}");
        let configured = json!({"auto_allocate_blocks": true, "maxBlocksPerHost": 20});
        let mut cluster = with_limit(configured, "all()");
        cluster.resource("clusterinformations/default", json!({"calicoVersion": version}));
        assert_eq!(verdict(&cluster), ["node-over-block-limit node-1"], "{version:?}");
    }
    let broken = verdict(&with_limit(open(), "zone =="));
    let expected = [
        "node-without-addresses node-1",
        "invalid-pool-selector 10.244.0.0/16",
    ];
    assert_eq!(broken, expected, "Calico refuses every pod, whatever the limit");
    let mut split = with_limit(open(), "all()");
    split.0.pools[0].value.cidr = "10.244.1.0/24".parse().unwrap();
    split.resource(
        "ippools/second",
        json!({"cidr": "10.244.2.0/24", "blockSize": 30}),
    );
    assert_eq!(verdict(&split), [""; 0], "20 in one pool, one in another");
    let mut unreadable = with_limit(open(), "all()");
    unreadable.0.ipam_config = None;
    unreadable.config(json!([]));
    assert_eq!(
        verdict(&unreadable),
        [
            "node-without-addresses node-1",
            "undecodable-object /calico/ipam/v2/config"
        ]
    );
}
