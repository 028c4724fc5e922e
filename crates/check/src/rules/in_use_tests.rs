//! Users and recorded owners of addresses, with unusual pods and handles.

use calipam_model::key::ENDPOINT_PREFIX;
use calipam_model::names::endpoint_name;
use calipam_model::pod::{Pod, PodParts};
use calipam_model::snapshot::{DatastoreKind, Source};
use serde_json::{Value, json};

use super::kubernetes_tests::{running, with_pods};
use super::structure_tests::{evidence, findings, only};
use crate::test_cluster::{Cluster, pod, tunnel};
use crate::{Code, Options, check, views};

pub(super) const NOTHING: [&str; 0] = [];

/// A healthy cluster in etcd: node-1 with a tunnel and the pod web-0.
pub(super) fn healthy() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.block(
        "10.244.1.0/30",
        "host:node-1",
        [tunnel("node-1"), pod("node-1", "web-0")],
    );
    cluster.endpoint("node-1", "web-0", &["10.244.1.1/32"]);
    cluster
}

/// The cluster from [`healthy`], with a second block with these records.
pub(super) fn etcd(records: impl IntoIterator<Item = Value>) -> Cluster {
    let mut cluster = healthy();
    cluster.block("10.244.1.4/30", "host:node-1", records);
    cluster
}

/// The cluster from [`etcd`], for which pods were also read. The pod web-0 is running.
pub(super) fn etcd_with_pods(records: impl IntoIterator<Item = Value>, pods: &[PodParts<'_>]) -> Cluster {
    let mut cluster = etcd(records);
    cluster
        .0
        .mark_read([Source::Pods, Source::Services, Source::Machines]);
    let web = PodParts {
        container_id: "",
        ..running("web-0", "10.244.1.1")
    };
    with_pods(with_pods(cluster, &[web]), pods)
}

/// The cluster from [`etcd_with_pods`], but with the Kubernetes datastore.
pub(super) fn kubernetes(records: impl IntoIterator<Item = Value>, pods: &[PodParts<'_>]) -> Cluster {
    let mut cluster = etcd_with_pods(records, pods);
    cluster.0.datastore = DatastoreKind::Kubernetes;
    cluster.0.endpoints.clear();
    cluster.0.coverage.remove(&Source::Endpoints);
    cluster.0.coverage.remove(&Source::Handles);
    cluster.0.pods[0].value = Pod::new(&running("web-0", "10.244.1.1")).0;
    cluster
}

/// The findings about addresses and endpoints, each as `severity code subject`. Other findings are left out, since the
/// clusters of these tests have no affinities and handles.
pub(super) fn verdict(cluster: &Cluster) -> Vec<String> {
    let found = findings(cluster)
        .into_iter()
        .filter(|f| ["address", "endpoint"].contains(&f.subject.kind()));
    found
        .map(|f| format!("{} {} {}", f.severity, f.code, f.subject))
        .collect()
}

/// Adds an endpoint of another orchestrator.
pub(super) fn foreign_endpoint(
    cluster: &mut Cluster,
    orchestrator: &str,
    node: &str,
    container: &str,
    addresses: &[&str],
) {
    let name = endpoint_name(node, orchestrator, container, "eth0");
    let spec = json!({"node": node, "orchestrator": orchestrator, "endpoint": "eth0", "containerID": container,
        "ipNetworks": addresses});
    cluster.put(&format!("{ENDPOINT_PREFIX}default/{name}"), json!({"spec": spec}));
}

#[test]
fn blocks_that_were_not_read_lack_no_record_and_such_pools_contain_any_address() {
    let mut cluster = kubernetes([], &[running("other", "10.244.9.9")]);
    assert_eq!(verdict(&cluster), ["critical unallocated-in-use 10.244.9.9"]);
    cluster.0.blocks.clear();
    cluster.0.coverage.remove(&Source::Blocks);
    assert_eq!(verdict(&cluster), NOTHING);
    let mut cluster = kubernetes([], &[running("other", "192.168.7.7")]);
    assert_eq!(verdict(&cluster), ["error in-use-outside-pools 192.168.7.7"]);
    cluster.0.pools.clear();
    cluster.0.coverage.remove(&Source::Pools);
    assert_eq!(verdict(&cluster), NOTHING);
}

#[test]
fn records_with_attributes_are_not_of_the_oldest_form() {
    let since = "2026-05-01 10:00:00 +0000 UTC";
    let bare = json!({"handle_id": "nomad.web-alloc", "secondary": {"node": "node-1", "timestamp": since}});
    let owned = json!({"handle_id": "default.web-9", "secondary": {"owner": "team-a"}});
    let typed = json!({"handle_id": "other.thing", "secondary": {"type": "somethingElse", "node": "gone"}});
    let oldest = json!({"handle_id": "default.web-9"});
    let unused = etcd([bare.clone(), owned, typed, oldest]);
    let expected = [
        "error leaked-address 10.244.1.7",
        "warning leaked-address 10.244.1.4",
        "warning leaked-address 10.244.1.5",
        "warning leaked-address 10.244.1.6",
    ];
    assert_eq!(verdict(&unused), expected);
    let mut used = etcd([bare.clone()]);
    foreign_endpoint(&mut used, "nomad", "node-1", "web-alloc", &["10.244.1.4/32"]);
    assert_eq!(verdict(&used), NOTHING);
    let mut waiting = etcd([bare]);
    foreign_endpoint(&mut waiting, "nomad", "node-1", "web-alloc", &[]);
    assert_eq!(verdict(&waiting), NOTHING, "it may be about to get the address");
}

#[test]
fn a_record_of_another_client_names_its_own_container_only() {
    let attributes = json!({"node": "node-1", "timestamp": "2026-05-01 10:00:00 +0000 UTC"});
    let used_by = |handle: &str, attributes: &Value, container: &str| {
        let mut cluster = etcd([json!({"handle_id": handle, "secondary": attributes})]);
        foreign_endpoint(&mut cluster, "cni", "node-1", container, &["10.244.1.4/32"]);
        verdict(&cluster)
    };
    for (handle, container) in [
        ("nomad.web_1", "web_1"),
        ("prod.net.web_1", "web_1"),
        ("net.web.1", "web.1"),
        ("web_1", "web_1"),
    ] {
        assert_eq!(used_by(handle, &attributes, container), NOTHING, "{handle}");
        assert_eq!(
            used_by(handle, &attributes, "web_2"),
            ["error owner-mismatch 10.244.1.4"],
            "{handle}"
        );
    }
    let owned = json!({"owner": "team-a"});
    assert_eq!(
        used_by("default.web-9", &owned, "web_2"),
        ["error owner-mismatch 10.244.1.4"]
    );
    // A handle of unknown form, without attributes, names no owner.
    assert_eq!(used_by("reserved-1", &json!({}), "web_2"), NOTHING);

    let mut tunnel = etcd([json!({"handle_id": "nomad.web_1", "secondary": attributes})]);
    tunnel.resource(
        "nodes/node-2",
        json!({"bgp": {"ipv4IPIPTunnelAddr": "10.244.1.4"}}),
    );
    let found = verdict(&tunnel);
    assert!(
        found.contains(&"error owner-mismatch 10.244.1.4".to_owned()),
        "{found:?}"
    );
}

#[test]
fn the_tunnel_of_a_windows_node_is_an_ordinal_that_windows_reserves() {
    let reserved =
        json!({"handle_id": "windows-reserved-ipam-handle", "secondary": {"note": "windows host rsvd"}});
    let block = || vec![reserved.clone(); 4];
    let mut cluster = etcd(block());
    cluster.0.nodes.clear();
    let spec = json!({"bgp": {"ipv4IPIPTunnelAddr": "10.244.1.0"}, "ipv4VXLANTunnelAddr": "10.244.1.5"});
    cluster.resource("nodes/node-1", spec);
    assert_eq!(verdict(&cluster), NOTHING);
    cluster.endpoint("node-1", "pod", &["10.244.1.6/32"]);
    assert_eq!(
        verdict(&cluster),
        ["error owner-mismatch 10.244.1.6"],
        "a pod must not be there"
    );
    let mut foreign = etcd(block());
    foreign.resource("nodes/node-2", json!({"ipv4VXLANTunnelAddr": "10.244.1.5"}));
    let expected = [
        "error owner-mismatch 10.244.1.5",
        "warning borrowed-tunnel-address 10.244.1.5",
    ];
    assert_eq!(verdict(&foreign), expected, "of another node's block");
}

#[test]
fn the_status_of_a_pod_between_two_sandboxes_is_stale() {
    let without_endpoint = |parts: PodParts<'_>| {
        let found = verdict(&etcd_with_pods(
            [],
            &[PodParts {
                container_id: "",
                ..parts
            }],
        ));
        found
            .into_iter()
            .filter(|line| !line.contains("pod-without-endpoint"))
            .collect::<Vec<_>>()
    };
    for address in ["10.244.1.1", "10.244.9.9"] {
        let stale = PodParts {
            ready: false,
            ..running("next", address)
        };
        assert_eq!(without_endpoint(stale), NOTHING, "{address}");
        let elsewhere = PodParts {
            node: "fargate-7",
            ..running("next", address)
        };
        assert_eq!(
            without_endpoint(elsewhere),
            NOTHING,
            "{address}, a node that Calico does not know"
        );
    }
    assert_eq!(
        without_endpoint(running("next", "10.244.1.1")),
        ["critical duplicate-address 10.244.1.1"]
    );
    assert_eq!(
        without_endpoint(running("next", "10.244.9.9")),
        ["critical unallocated-in-use 10.244.9.9"]
    );
}

#[test]
fn the_endpoint_of_a_pod_that_finished_long_ago() {
    let found = |ended_at: Option<&str>| {
        let ended_at = ended_at.map(|text| text.parse().unwrap());
        let done = PodParts {
            phase: "Succeeded",
            ended_at,
            ready: false,
            ..running("job", "10.244.1.4")
        };
        let mut cluster = etcd_with_pods([pod("node-1", "job")], &[done]);
        cluster.endpoint("node-1", "job", &["10.244.1.4/32"]);
        let about = findings(&cluster)
            .into_iter()
            .filter(|f| f.code == Code::EndpointWithoutPod);
        about
            .map(|f| evidence(&f)["podState"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(Some("2026-05-01T11:50:00Z")),
        [""; 0],
        "within the grace period"
    );
    assert_eq!(found(Some("2026-05-01T11:40:00Z")), ["finished"]);
    assert_eq!(found(None), ["finished"], "it does not say when");
    let mut gone = etcd_with_pods([pod("node-1", "job")], &[]);
    gone.endpoint("node-1", "job", &["10.244.1.4/32"]);
    assert_eq!(
        verdict(&gone),
        ["warning endpoint-without-pod default/node--1-k8s-job-eth0"]
    );
}

#[test]
fn the_comparison_says_for_whom_an_address_is_recorded() {
    let vm = json!({"handle_id": "k8s-pod-network.vmi.default.vm-1"});
    let unknown = json!({"handle_id": "script-1"});
    let pods = [
        ("a", "10.244.1.4"),
        ("virt-launcher-vm-1-abcde", "10.244.1.5"),
        ("c", "10.244.1.6"),
        ("d", "10.244.1.7"),
    ];
    let parts = pods.map(|(name, address)| PodParts {
        container_id: "",
        ..running(name, address)
    });
    let mut cluster = etcd_with_pods([json!({}), vm, unknown, pod("node-1", "d")], &parts);
    for (name, address) in pods {
        cluster.endpoint("node-1", name, &[address]);
    }
    let comparison = views::compare(&cluster.0).unwrap();
    let node = &comparison.nodes[0];
    assert_eq!((node.in_kubernetes, node.in_blocks, node.agreed), (5, 5, 5));
    assert!(node.not_recorded.is_empty() && node.not_used.is_empty());
    let others: Vec<String> = node
        .recorded_for_others
        .iter()
        .map(|(a, whose)| format!("{a} {whose}"))
        .collect();
    assert_eq!(
        others,
        [
            "10.244.1.4 no owner",
            "10.244.1.5 virtual machine",
            "10.244.1.6 unknown"
        ]
    );
}

#[test]
fn the_comparison_counts_pods_without_annotation_where_a_block_records_them() {
    let bare = |name, address| PodParts {
        container_id: "",
        ..running(name, address)
    };
    let cluster = kubernetes(
        [pod("node-1", "web-1")],
        &[bare("web-1", "10.244.1.4"), bare("hybrid", "10.244.9.9")],
    );
    let comparison = views::compare(&cluster.0).unwrap();
    let node = &comparison.nodes[0];
    assert_eq!(
        (node.pods, node.in_kubernetes, node.in_blocks, node.agreed),
        (2, 2, 2, 2)
    );
    assert!(
        node.not_recorded.is_empty() && node.not_used.is_empty(),
        "{node:?}"
    );
}

#[test]
fn a_pod_with_the_address_of_a_node() {
    let host = json!({"bgp": {"ipv4Address": "10.244.1.4/16"}, "addresses": [{"address": "10.244.1.5", "type": "InternalIP"},
        {"address": "10.244.1.1", "type": "ExternalIP"}]});
    let clash = |cluster: &mut Cluster, address: &str| {
        cluster.resource("nodes/node-2", host.clone());
        assert_eq!(
            verdict(cluster),
            [format!("critical duplicate-address {address}")]
        );
        let message = findings(cluster)
            .iter()
            .map(crate::Finding::message)
            .find(|m| m.contains(address));
        assert!(
            message.unwrap().contains("node node-2 itself"),
            "{:?}",
            findings(cluster)
        );
    };
    let records = || [pod("node-1", "a"), pod("node-1", "b")];
    for (name, address) in [("a", "10.244.1.4"), ("b", "10.244.1.5")] {
        let mut on_etcd = etcd(records());
        on_etcd.endpoint("node-1", name, &[address]);
        clash(&mut on_etcd, address);
        clash(&mut kubernetes(records(), &[running(name, address)]), address);
    }
    let mut nobody = etcd(records());
    nobody.resource("nodes/node-2", host);
    assert_eq!(
        verdict(&nobody),
        NOTHING,
        "what a node has is not free to be released"
    );
}

#[test]
fn blocks_that_were_listed_before_pods() {
    let notes = |cluster: &Cluster| check(&cluster.0, &Options::default()).notes;
    let mut cluster = kubernetes([], &[running("new", "10.244.1.4")]);
    assert!(notes(&cluster).is_empty());
    cluster.0.blocks_before_pods = true;
    assert!(notes(&cluster)[0].contains("before pods"));
    cluster.0.pods.pop();
    assert!(notes(&cluster).is_empty(), "no finding rests on it");
}

#[test]
fn pods_with_the_same_name_are_distinguished_by_node() {
    let mut cluster = etcd([pod("node-2", "db-0")]);
    cluster.resource("nodes/node-2", json!({}));
    cluster.endpoint("node-1", "db-0", &["10.244.1.4/32"]);
    let found = only(&cluster, Code::OwnerMismatch);
    let expected = "10.244.1.4 is used by default/db-0 (node-1), but recorded for default/db-0 on node-2";
    assert_eq!(found.message(), expected);
    assert_eq!(found.nodes, ["node-1", "node-2"]);
}
