//! Filters, counts, messages and remedies of findings.

use std::collections::BTreeSet;

use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::pod::PodParts;
use calipam_model::snapshot::{Snapshot, Source};
use serde_json::{Value, json};

use super::kubernetes_tests::{running, with_pods};
use super::structure_tests::{only, pod, verdict, whole};
use crate::claim::{Claim, describe};
use crate::context::Context;
use crate::test_cluster::Cluster;
use crate::{Code, Filter, Options, Remedy, Scope, Severity, awaits_first_block, check};

/// The codes of the findings that a filter admits.
fn left(cluster: &Cluster, filter: &Filter) -> Vec<Code> {
    let mut report = check(&cluster.0, &Options::default());
    report.filter(filter);
    assert_eq!(
        report.counts.findings.values().sum::<usize>(),
        report.findings.len()
    );
    report.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_filter_admits_what_concerns_one_of_its_pools_nodes_or_namespaces() {
    let of = |scope| Filter {
        scope,
        ..Filter::default()
    };
    let mut orphan = whole();
    orphan.handle("k8s-pod-network.gone", json!({"10.244.1.0/30": 1}));
    let in_pool = |pool: &str| left(&orphan, &of(Scope::of_networks([pool.parse().unwrap()])));
    assert_eq!(
        in_pool("10.244.1.0/24"),
        [Code::OrphanHandle],
        "of the blocks that it names"
    );
    assert_eq!(in_pool("10.9.0.0/16"), []);

    let mut unclaimed = whole();
    unclaimed.0.affinities.clear();
    let nodes = |names: &[&str]| of(Scope::of_nodes(names.iter().map(|name| (*name).to_owned())));
    let all = left(&unclaimed, &Filter::default());
    assert!(!all.is_empty());
    assert_eq!(left(&unclaimed, &nodes(&["node-1", "node-2"])), all);
    assert_eq!(left(&unclaimed, &nodes(&["node-2"])), []);
    let of_rule = Filter {
        rules: vec![Code::OrphanHandle],
        ..nodes(&["node-1"])
    };
    assert_eq!(left(&unclaimed, &of_rule), []);

    let mut leaked = whole();
    leaked.0.endpoints.clear();
    let namespace = |name: &str| {
        of(Scope {
            namespace: Some(name.to_owned()),
            ..Scope::default()
        })
    };
    assert_eq!(
        left(&leaked, &namespace("default")),
        [Code::LeakedAddress],
        "its record names it"
    );
    assert_eq!(left(&leaked, &namespace("kube-system")), []);
}

#[test]
fn findings_that_a_filter_leaves_out_are_not_counted() {
    let mut cluster = whole();
    cluster.handle("k8s-pod-network.gone", json!({"10.244.1.0/30": 1}));
    let mut report = check(&cluster.0, &Options::default());
    let severity = report.findings[0].severity;
    assert_eq!(report.counts.findings[&severity], 1);
    report.retain(|_| false);
    assert!(
        Severity::ALL
            .iter()
            .all(|severity| report.counts.findings[severity] == 0)
    );
}

#[test]
fn a_block_is_rebuilt_or_released_with_its_missing_node() {
    let block = "10.244.1.0/30".parse().unwrap();
    let mut unclaimed = whole();
    unclaimed.0.affinities.clear();
    let finding = only(&unclaimed, Code::BlockWithoutAffinity);
    assert_eq!(finding.remedy(), Some(Remedy::Rebuild(BTreeSet::from([block]))));

    let mut of_gone = whole();
    of_gone.block("10.244.2.0/30", "host:node-9", []);
    let finding = only(&of_gone, Code::BlockOfMissingNode);
    assert!(
        finding
            .message()
            .contains("belongs to node-9, which does not exist"),
        "{}",
        finding.message()
    );
    assert_eq!(
        finding.remedy(),
        Some(Remedy::ReleaseNodes(BTreeSet::from(["node-9".to_owned()])))
    );
}

#[test]
fn the_endpoint_of_a_deleted_pod_is_no_evidence_of_a_missing_node() {
    let mut cluster = whole();
    cluster.endpoint("node-9", "web-9", &["10.9.0.1/32"]);
    let told = "endpoint-of-missing-node default/node--9-k8s-web--9-eth0".to_owned();
    assert!(verdict(&cluster).contains(&told), "{:?}", verdict(&cluster));
    cluster.0.mark_read([Source::Pods]);
    assert!(!verdict(&cluster).contains(&told), "{:?}", verdict(&cluster));
}

#[test]
fn messages_name_users_owners_and_states() {
    let message = |cluster: &Cluster, code| only(cluster, code).message();
    let mut cluster = whole();
    cluster.endpoint("node-1", "web-9", &["10.244.1.1/32"]);
    let users = "10.244.1.1 is used by default/web-0 (node-1) and default/web-9 (node-1), and recorded for default/web-0";
    assert_eq!(message(&cluster, Code::DuplicateAddress), users);

    let mut cluster = whole();
    cluster.resource("nodes/node-2", json!({}));
    cluster.block("10.244.2.0/30", "host:node-2", [pod("web-1")]);
    cluster.endpoint("node-1", "web-1", &["10.244.2.0/32"]);
    cluster.config(json!({"strict_affinity": true, "auto_allocate_blocks": true}));
    let held = "10.244.2.0 is allocated on node-1 from 10.244.2.0/30, which belongs to node-2";
    assert_eq!(message(&cluster, Code::BorrowedUnderStrictAffinity), held);

    let mut cluster = whole();
    cluster.block("10.244.2.0/30", Value::Null, []);
    let empty = message(&cluster, Code::EmptyUnownedBlock);
    assert!(
        empty.ends_with("has no owner and no allocated address"),
        "{empty}"
    );

    let mut cluster = whole();
    cluster.affinity("host/node-1", "10.244.1.0/30", json!({"state": "pending"}));
    let unsettled = message(&cluster, Code::UnsettledAffinity);
    assert!(unsettled.ends_with(" is pending"), "{unsettled}");
}

#[test]
fn the_counts_of_a_handle_are_compared_with_the_records_in_the_same_blocks() {
    let without = |name: &str| {
        let mut cluster = whole();
        cluster
            .0
            .handles
            .retain(|stored| stored.value.id() != *format!("k8s-pod-network.{name}").as_str());
        cluster
    };
    let mut twice = without("web-0");
    twice.handle("k8s-pod-network.web-0", json!({"10.244.1.0/30": 2}));
    assert_eq!(verdict(&twice), ["handle-count k8s-pod-network.web-0"]);

    // A handle that counts an address in a block without its record is reported, whether this block comes before or
    // after the block with the record.
    for (name, own, other) in [("web-0", 1, 2), ("web-1", 2, 1)] {
        let of_handle = |block: u8| {
            let mut cluster = without(name);
            cluster.block("10.244.2.0/30", "host:node-1", [pod("web-1")]);
            cluster.endpoint("node-1", "web-1", &["10.244.2.0/32"]);
            cluster.affinity("host/node-1", "10.244.2.0/30", json!({"state": "confirmed"}));
            if name == "web-0" {
                cluster.handle("k8s-pod-network.web-1", json!({"10.244.2.0/30": 1}));
            }
            let id = format!("k8s-pod-network.{name}");
            cluster.handle(&id, json!({format!("10.244.{block}.0/30"): 1}));
            verdict(&cluster)
        };
        assert_eq!(of_handle(own), [""; 0]);
        assert_eq!(of_handle(other), [format!("handle-count k8s-pod-network.{name}")]);
    }
}

#[test]
fn overlapping_blocks_give_one_finding_for_each_address() {
    let mut cluster = whole();
    cluster.block("10.244.1.0/31", "host:node-1", [pod("gone-0"), pod("gone-1")]);
    cluster.block("10.244.1.0/30", "host:node-1", [pod("gone-0"), pod("gone-1")]);
    cluster.0.blocks.sort_by_key(|block| block.value.key);
    cluster.0.blocks.dedup_by_key(|block| block.value.key);
    let found = verdict(&cluster);
    for address in ["10.244.1.0", "10.244.1.1"] {
        for code in ["address-in-several-blocks", "leaked-address"] {
            let line = format!("{code} {address}");
            assert!(
                found.iter().filter(|found| **found == line).count() <= 1,
                "{line}: {found:?}"
            );
        }
        assert!(
            found.contains(&format!("address-in-several-blocks {address}")),
            "{found:?}"
        );
    }
}

#[test]
fn rules_about_services_need_them() {
    let codes = [
        Code::ServiceWithoutAddress,
        Code::ServiceAddressExtra,
        Code::LeakedAddress,
    ];
    assert_eq!(
        codes.map(|code| code.needs().contains(&Source::Services)),
        [true, true, false]
    );
}

#[test]
fn a_node_that_runs_a_pod_may_be_alive_without_its_object() {
    let names = |phase: &str| {
        let parts = PodParts {
            node: "node-9",
            phase,
            ..running("web-9", "10.244.9.1")
        };
        let cluster = with_pods(whole(), &[parts]);
        Context::new(&cluster.0, &Options::default())
            .index
            .workloads_name_node("node-9")
    };
    assert_eq!(["Running", "Succeeded"].map(names), [true, false]);
}

#[test]
fn a_single_handle_shows_that_ipam_is_used() {
    let mut cluster = Cluster(Snapshot::default());
    assert!(awaits_first_block(&cluster.0));
    cluster.handle("k8s-pod-network.web-0", json!({"10.244.1.0/30": 1}));
    assert!(!awaits_first_block(&cluster.0));
}

#[test]
fn an_address_that_a_node_names_is_mentioned_only_in_the_cidr_around_it() {
    let mut cluster = whole();
    cluster.resource("nodes/node-2", json!({"bgp": {"ipv4Address": "10.244.7.1/24"}}));
    let options = Options::default();
    let context = Context::new(&cluster.0, &options);
    let mentioned = |cidr: &str| context.index.mentioned_in(cidr.parse().unwrap()).to_vec();
    assert_eq!(
        mentioned("10.244.7.0/30"),
        ["10.244.7.1".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(mentioned("10.244.6.0/30"), [] as [std::net::IpAddr; 0]);
}

#[test]
fn a_record_of_calico_2_names_a_pod_and_one_of_a_machine_its_name_or_handle() {
    assert_eq!(
        Claim::of_handle("prod.web-0").pod(),
        Some(("prod".to_owned(), "web-0".to_owned()))
    );
    let is_of_pod = |id: &str| Claim::of_handle(id).pod().is_some();
    assert_eq!(
        [".web", "ns.", "web"].map(is_of_pod),
        [false; 3],
        "a part is empty"
    );
    let described = |attributes: &[(&str, &str)]| {
        let mut block = Block::new(
            "10.244.1.0/30".parse().unwrap(),
            None,
            jiff::Timestamp::UNIX_EPOCH,
        )
        .unwrap();
        let record = Attribute::new(Some("k8s-pod-network.vmi.prod.vm"), attributes.iter().copied());
        block.update(|update| update.assign(0, &record)).unwrap();
        let held = block.allocation(0).unwrap();
        describe(&Claim::Machine, &held.attribute)
    };
    let machine = |name: &str| ("virtual machine", name.to_owned());
    assert_eq!(
        described(&[("namespace", "prod"), ("vmi-name", "vm")]),
        machine("prod/vm")
    );
    assert_eq!(described(&[]), machine("k8s-pod-network.vmi.prod.vm"));
}

/// The pod's endpoint exists, but cannot be decoded.
#[test]
fn an_endpoint_that_cannot_be_decoded_protects_the_pod_of_calico_2_that_it_names() {
    let judged = |name: &str| {
        let mut cluster = whole();
        cluster.block(
            "10.244.2.0/30",
            "host:node-1",
            [json!({"handle_id": "default.old-0"}), pod("web-0")],
        );
        cluster.endpoint("node-1", "web-0", &["10.244.2.1/32"]);
        let path = format!("{}default/{name}", calipam_model::key::ENDPOINT_PREFIX);
        cluster.put(&path, json!("broken"));
        verdict(&cluster)
            .iter()
            .any(|line| line == "leaked-address 10.244.2.0")
    };
    assert!(!judged("node--1-k8s-old--0-eth0"));
    assert!(judged("node--1-k8s-new--0-eth0"));
}
