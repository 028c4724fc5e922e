//! Nodes that are recorded for addresses, and nodes that do not exist.

use calipam_model::key::ENDPOINT_PREFIX;
use calipam_model::names::endpoint_name;
use calipam_model::node::Node;
use calipam_model::pod::PodParts;
use calipam_model::snapshot::Source;
use serde_json::{Value, json};

use super::in_use_tests::{NOTHING, etcd_with_pods, kubernetes, verdict};
use super::kubernetes_tests::{running, versioned};
use super::structure_tests::{findings, only};
use crate::test_cluster::{Cluster, pod, tunnel};
use crate::{Code, Finding, views};

/// The record of the pod web on a node. The sandbox is that of [`running`].
fn web_on(node: &str) -> Value {
    json!({"handle_id": "k8s-pod-network.sandbox", "secondary": {"namespace": "default", "node": node, "pod": "web",
        "timestamp": "2026-05-01 11:59:00 +0000 UTC"}})
}

/// Adds Kubernetes nodes with these names.
fn with_kubernetes_nodes(mut cluster: Cluster, names: &[&str]) -> Cluster {
    let node = |name: &&str| Node {
        name: (*name).to_owned(),
        ..Node::default()
    };
    cluster.0.kubernetes_nodes = names.iter().map(node).map(versioned).collect();
    cluster.0.mark_read([Source::Affinities]);
    cluster
}

/// The findings about nodes, pods and addresses, each as `code subject: message`.
fn of_nodes(cluster: &Cluster) -> Vec<String> {
    let wanted = [
        "missing-node",
        "node-object-missing",
        "leaked-address",
        "unallocated",
        "mismatch",
    ];
    let is_wanted = |f: &Finding| wanted.iter().any(|part| f.code.name().contains(part));
    let found = findings(cluster).into_iter().filter(is_wanted);
    found
        .map(|f| format!("{} {}: {}", f.code, f.subject, f.text()))
        .collect()
}

fn with_node(mut cluster: Cluster, name: &str) -> Cluster {
    cluster.resource(
        &format!("nodes/{name}"),
        json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": name}]}),
    );
    cluster
}

#[test]
fn the_collector_would_free_a_live_pod_recorded_on_another_node() {
    let web = running("web", "10.244.1.4");
    let recorded = |node: &str| kubernetes([web_on(node)], std::slice::from_ref(&web));
    assert_eq!(verdict(&recorded("node-1")), NOTHING);
    let found = verdict(&recorded("node-2"));
    assert_eq!(
        found, NOTHING,
        "Calico does not compare with a node that does not exist"
    );

    let wrong = with_node(recorded("node-2"), "node-2");
    assert_eq!(
        verdict(&wrong),
        ["error wrong-node-recorded 10.244.1.4"],
        "young as it is"
    );
    let finding = only(&wrong, Code::WrongNodeRecorded);
    let says =
        "10.244.1.4 is used by default/web on node-1, but recorded on node-2, so Calico considers it leaked";
    assert_eq!(finding.message(), says);
    assert_eq!(finding.nodes, ["node-1", "node-2"]);
    let compared = views::compare(&wrong.0).unwrap();
    let elsewhere = compared.nodes.iter().flat_map(|node| &node.recorded_elsewhere);
    assert_eq!(
        elsewhere.map(ToString::to_string).collect::<Vec<_>>(),
        ["10.244.1.4"]
    );

    let mut unread = with_node(recorded("node-2"), "node-2");
    unread.0.pods.retain(|pod| pod.value.name() != *"web");
    assert_eq!(
        verdict(&unread).len(),
        0,
        "the record is young, and nothing uses it"
    );
    let finished = [PodParts {
        phase: "Succeeded",
        ..web.clone()
    }];
    assert_eq!(
        verdict(&with_node(kubernetes([web_on("node-2")], &finished), "node-2")),
        NOTHING
    );
}

#[test]
fn on_etcd_the_node_of_the_pod_counts_and_not_that_of_its_endpoint() {
    let cluster = |endpoint: &str, recorded: &str| {
        let web = PodParts {
            container_id: "",
            ..running("web", "10.244.1.4")
        };
        let mut cluster = etcd_with_pods([web_on(recorded)], &[web]);
        let name = endpoint_name(endpoint, "k8s", "web", "eth0");
        let spec = json!({"node": endpoint, "orchestrator": "k8s", "pod": "web", "endpoint": "eth0",
            "containerID": "sandbox", "ipNetworks": ["10.244.1.4/32"]});
        cluster.put(&format!("{ENDPOINT_PREFIX}default/{name}"), json!({"spec": spec}));
        with_node(cluster, "node-2")
    };
    let wrong = "error wrong-node-recorded 10.244.1.4";
    let mismatch = "warning endpoint-node-mismatch default/node--2-k8s-web-eth0";
    assert_eq!(verdict(&cluster("node-1", "node-1")), NOTHING);
    assert_eq!(verdict(&cluster("node-1", "node-2")), [wrong]);
    assert_eq!(verdict(&cluster("node-2", "node-1")), [mismatch]);
    assert_eq!(verdict(&cluster("node-2", "node-2")), [wrong, mismatch]);

    let mut alone = cluster("node-1", "node-2");
    alone.0.pods.clear();
    alone
        .0
        .coverage
        .retain(|source, _| ![Source::Pods, Source::Services, Source::Machines].contains(source));
    assert_eq!(verdict(&alone), NOTHING, "pods were not read");
    let mut renamed = cluster("node-1", "node-2");
    renamed
        .0
        .nodes
        .iter_mut()
        .for_each(|node| node.value.kubernetes_name = Some("node-1".into()));
    assert_eq!(verdict(&renamed), NOTHING, "Calico calls the node otherwise");
}

/// A cluster in which Calico's node-2 is the Kubernetes node k8s-2. node-2 has a tunnel, an affinity, and a block with
/// the addresses of pods.
fn two_nodes(pods: &[PodParts<'_>]) -> Cluster {
    let mut cluster = etcd_with_pods([], pods);
    let spec = json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": "k8s-2"}],
        "bgp": {"ipv4IPIPTunnelAddr": "10.244.2.0", "ipv4Address": "10.244.2.3/24"}});
    cluster.resource("nodes/node-2", spec);
    let records = [tunnel("node-2"), pod("node-2", "gone"), pod("node-2", "db-1")];
    cluster.block("10.244.2.0/30", "host:node-2", records);
    cluster.affinity("host/node-2", "10.244.2.0/30", json!({"state": "confirmed"}));
    cluster
}

#[test]
fn a_node_that_left_kubernetes_is_gone_although_its_calico_object_remains() {
    let exists = with_kubernetes_nodes(two_nodes(&[]), &["node-1", "k8s-2"]);
    let leaked = ["leaked-address 10.244.2.1", "leaked-address 10.244.2.2"];
    let lines = of_nodes(&exists);
    assert!(lines.len() == 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .zip(leaked)
            .all(|(line, code)| line.starts_with(code)),
        "{lines:?}"
    );

    let gone = with_kubernetes_nodes(two_nodes(&[]), &["node-1"]);
    let expected = [
        "leaked-address 10.244.2.0: is allocated to a tunnel of node-2, but node-2 does not exist",
        "leaked-address 10.244.2.1: is allocated to default/gone, but node-2 does not exist",
        "leaked-address 10.244.2.2: is allocated to default/db-1, but node-2 does not exist",
        "block-of-missing-node 10.244.2.0/30: 10.244.2.0/30 belongs to node-2, which does not exist in Kubernetes",
        "affinity-of-missing-node node-2/10.244.2.0/30: node-2/10.244.2.0/30 names a node that does not exist in Kubernetes",
    ];
    assert_eq!(of_nodes(&gone), expected);

    let mut of_another = gone;
    of_another.0.nodes[1].value.kubernetes_name = None;
    assert_eq!(
        of_nodes(&of_another).len(),
        2,
        "it refers to no node of Kubernetes"
    );
    let unread = with_kubernetes_nodes(two_nodes(&[]), &[]);
    assert_eq!(of_nodes(&unread), of_nodes(&exists), "the nodes were not read");
}

#[test]
fn a_pod_that_waits_for_a_missing_node_keeps_its_addresses() {
    let waiting = PodParts {
        phase: "Pending",
        ready: false,
        node: "node-2",
        container_id: "",
        ..running("db-1", "")
    };
    let mut cluster = two_nodes(&[waiting]);
    cluster.0.nodes[1].value.kubernetes_name = Some("node-2".into());
    let gone = with_kubernetes_nodes(cluster, &["node-1"]);
    let lines = of_nodes(&gone);
    let says = "endpoint-of-missing-node default/db-1: default/db-1 is Pending on node-2, which does not exist, and can block the cleanup of node-2";
    assert!(lines.contains(&says.to_owned()), "{lines:?}");
    let leaked = lines
        .iter()
        .filter(|line| line.starts_with("leaked-address"))
        .collect::<Vec<_>>();
    assert_eq!(
        leaked.len(),
        1,
        "neither the tunnel nor the address of the pod that waits: {leaked:?}"
    );
    assert!(leaked[0].contains("default/gone"), "{leaked:?}");
}

#[test]
fn a_kubernetes_node_without_an_object_is_reported_as_missing_object() {
    let mut cluster = two_nodes(&[]);
    cluster.0.nodes.retain(|node| node.value.name != "node-2");
    cluster.endpoint("node-2", "busy", &["10.244.2.3/32"]);
    let alone = of_nodes(&with_kubernetes_nodes(Cluster(cluster.0.clone()), &["node-1"]));
    assert!(
        alone.iter().any(|line| line.starts_with("block-of-missing-node")),
        "{alone:?}"
    );
    let lines = of_nodes(&with_kubernetes_nodes(cluster, &["node-1", "node-2"]));
    let says = "node-object-missing node-2: node-2 is a Kubernetes node and holds blocks, but Calico has no node object for it";
    assert!(lines.contains(&says.to_owned()), "{lines:?}");
    let is_gone = |line: &String| line.contains("missing-node ") || line.contains("does not exist");
    assert!(!lines.iter().any(is_gone), "{lines:?}");
    assert!(
        lines.iter().all(|line| !line.contains("10.244.2.0:")),
        "the tunnel may be its own: {lines:?}"
    );
}
