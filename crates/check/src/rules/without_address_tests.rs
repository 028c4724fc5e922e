//! Findings about nodes and pods without addresses.

use calipam_assign::{Allocator, AutoAssign, SnapshotStore, without_waiting};
use calipam_model::CniConfiguration;
use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::pod::{Annotations, Pod, PodParts, PodRequest};
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{Source, Versioned};
use serde_json::{Value, json};

use super::pool_tests::{FULL, open, small, strict};
use super::structure_tests::{evidence, findings, only};
use crate::test_cluster::Cluster;
use crate::{Code, Finding, Options, Severity, check, nodes_without_addresses};

/// The nodes whose next pod gets no address, each as `node reason`, with `(info)` if that could be intended.
fn stranded(cluster: &Cluster) -> Vec<String> {
    let found = findings(cluster)
        .into_iter()
        .filter(|f| f.code == Code::NodeWithoutAddresses);
    let reason = |value: &Value| value["refusals"][0]["reason"].as_str().unwrap().to_owned();
    let info = |f: &Finding| {
        if f.severity == Severity::Info {
            " (info)"
        } else {
            ""
        }
    };
    found
        .map(|f| format!("{} {}{}", f.subject, reason(&evidence(&f)), info(&f)))
        .collect()
}

/// Adds a pod that was created two minutes ago and has no address.
fn waiting(cluster: &mut Cluster, name: &str, parts: PodParts<'_>) {
    let created = Some(cluster.0.taken_at - jiff::SignedDuration::from_mins(2));
    let parts = PodParts {
        namespace: "default",
        name,
        phase: "Pending",
        created,
        ..parts
    };
    let revision = cluster.0.nodes[0].revision.clone();
    cluster.0.pods.push(Versioned {
        value: Pod::new(&parts).0,
        revision,
    });
    cluster.0.mark_read([Source::Pods]);
}

#[test]
fn strict_affinity_or_no_automatic_allocation_strands_a_node_beside_free_addresses() {
    let cluster = small(strict(), &FULL);
    assert_eq!(stranded(&cluster), ["node-1 strict-affinity"]);
    let finding = only(&cluster, Code::NodeWithoutAddresses);
    let says = "node-1 gets no further IPv4 address: no block is left to claim, and strict affinity forbids borrowing";
    assert_eq!(finding.message(), says);
    assert_eq!(finding.nodes, ["node-1"]);
    assert!(stranded(&small(open(), &FULL)).is_empty(), "node-1 may borrow");
    let mut spare = small(strict(), &FULL);
    spare.resource(
        "ippools/spare",
        json!({"cidr": "10.245.0.0/28", "blockSize": 30, "nodeSelector": "has(zone)"}),
    );
    assert!(stranded(&spare).is_empty(), "another pool has room");

    let found = stranded(&small(json!({}), &[("node-1", 4)]));
    let expected = ["node-1 no-auto-allocation", "node-2 no-auto-allocation (info)"];
    assert_eq!(
        found, expected,
        "a node without a block may be meant to have none"
    );
}

#[test]
fn a_node_that_runs_no_pods_is_not_stranded() {
    let mut cluster = small(strict(), &FULL);
    cluster.0.nodes[0].value.tainted = true;
    assert_eq!(stranded(&cluster), ["node-1 strict-affinity (info)"]);
    let says = only(&cluster, Code::NodeWithoutAddresses).message().to_owned();
    assert!(
        says.ends_with("; this may be intended: no pod there asks for one"),
        "{says}"
    );
    waiting(
        &mut cluster,
        "new",
        PodParts {
            node: "node-1",
            ..PodParts::default()
        },
    );
    assert_eq!(
        stranded(&cluster).len(),
        1,
        "a pod that tolerates the taint waits there"
    );
    assert_eq!(
        only(&cluster, Code::NodeWithoutAddresses).severity,
        Severity::Critical
    );
    let says = "default/new gets no IPv4 address: no block is left to claim, and strict affinity forbids borrowing (on node-1)";
    assert_eq!(only(&cluster, Code::PodWithoutAddress).message(), says);
    cluster.0.nodes[0]
        .value
        .labels
        .insert("type".into(), "virtual-kubelet".into());
    assert!(stranded(&cluster).is_empty());
}

#[test]
fn a_stranded_node_is_an_error_where_its_next_pod_cannot_start() {
    let mut cluster = small(strict(), &FULL);
    let severity = |cluster: &Cluster| only(cluster, Code::NodeWithoutAddresses).severity;
    assert_eq!(
        severity(&cluster),
        Severity::Error,
        "what pods ask for is not known"
    );
    cluster.resource("ippools/six", json!({"cidr": "fd00::/120", "blockSize": 122}));
    cluster.endpoint("node-2", "six", &["fd00::1/128"]);
    assert_eq!(
        severity(&cluster),
        Severity::Info,
        "pods get IPv6 addresses alone"
    );
    cluster.endpoint("node-2", "both", &["10.244.1.4/32", "fd00::2/128"]);
    assert_eq!(severity(&cluster), Severity::Error);
}

#[test]
fn pools_that_do_not_serve() {
    for (change, expected) in [
        (
            json!({"disabled": true}),
            &["node-1 no-pool-enabled", "node-2 no-pool-enabled"][..],
        ),
        (
            json!({"assignmentMode": "Manual"}),
            &[
                "node-1 no-pool-automatic (info)",
                "node-2 no-pool-automatic (info)",
            ],
        ),
        (
            json!({"allowedUses": ["LoadBalancer"]}),
            &[
                "node-1 no-pool-for-workloads (info)",
                "node-2 no-pool-for-workloads (info)",
            ],
        ),
        (
            json!({"allowedUses": ["Tunnel"]}),
            &[
                "node-1 no-pool-for-workloads (info)",
                "node-2 no-pool-for-workloads (info)",
            ],
        ),
        (
            json!({"nodeSelector": "zone == 'node-2'"}),
            &["node-1 no-pool-selects-node (info)"],
        ),
        (
            json!({"nodeSelector": "zone == 'nowhere'"}),
            &[
                "node-1 no-pool-selects-node (info)",
                "node-2 no-pool-selects-node (info)",
            ],
        ),
        (
            json!({"nodeSelector": "zone =="}),
            &["node-1 broken-selector", "node-2 broken-selector"],
        ),
    ] {
        let mut cluster = small(strict(), &FULL);
        let mut spec = json!({"cidr": "10.244.1.0/28", "blockSize": 30});
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        cluster.only_pool("tiny", spec);
        assert_eq!(stranded(&cluster), expected, "{change}");
        // Once a pod waits on a node, the node is reported even if its state could be intended.
        waiting(
            &mut cluster,
            "stuck",
            PodParts {
                node: "node-1",
                ..PodParts::default()
            },
        );
        let of_node = |line: &String| line.starts_with("node-1 ") && !line.contains("(info)");
        assert!(stranded(&cluster).iter().any(of_node), "{change}");
        assert_eq!(
            only(&cluster, Code::PodWithoutAddress).severity,
            Severity::Critical,
            "{change}"
        );
    }
    let mut named = small(strict(), &FULL);
    named.0.pools[0].value.node_selector = "!all()".into();
    let annotations = Annotations {
        pools: [r#"["tiny"]"#.to_owned(), String::new()],
        ..Annotations::default()
    };
    let request = PodRequest::from(annotations);
    waiting(
        &mut named,
        "by-name",
        PodParts {
            node: "node-2",
            request: request.clone(),
            ..PodParts::default()
        },
    );
    let info = [
        "node-1 no-pool-selects-node (info)",
        "node-2 no-pool-selects-node (info)",
    ];
    assert_eq!(
        stranded(&named),
        info,
        "it names the pool, and gets an address of it"
    );
    waiting(
        &mut named,
        "in-vain",
        PodParts {
            node: "node-1",
            request,
            ..PodParts::default()
        },
    );
    assert_eq!(stranded(&named), info);
    let pod = only(&named, Code::PodWithoutAddress);
    assert_eq!(
        (pod.subject.to_string().as_str(), pod.severity),
        ("default/in-vain", Severity::Error)
    );
    let annotations = Annotations {
        addresses: r#"["10.244.1.4"]"#.to_owned(),
        ..Annotations::default()
    };
    let fixed = PodParts {
        node: "node-2",
        request: annotations.into(),
        ..PodParts::default()
    };
    waiting(&mut named, "fixed", fixed);
    let says = "default/fixed gets no IPv4 address: 10.244.1.4 is taken";
    assert!(findings(&named).iter().any(|f| f.message().contains(says)));
}

#[test]
fn many_nodes_share_a_finding() {
    let mut cluster = small(strict(), &FULL);
    for node in ["node-3", "node-4", "node-5"] {
        cluster.put(
            &format!("{RESOURCE_PREFIX}nodes/{node}"),
            json!({"metadata": {"labels": {"zone": "x"}}}),
        );
    }
    let finding = only(&cluster, Code::NodeWithoutAddresses);
    assert_eq!(finding.subject.to_string(), "ipv4/strict-affinity");
    assert_eq!(finding.nodes, ["node-1", "node-3", "node-4", "node-5"]);
    assert!(
        finding
            .message()
            .starts_with("4 nodes get no further IPv4 address: "),
        "{}",
        finding.message()
    );
}

#[test]
fn nodes_that_may_be_meant_to_get_no_address_share_a_finding_of_their_own() {
    let mut cluster = small(json!({}), &[("node-1", 4)]);
    for number in 3..6 {
        cluster.put(
            &format!("{RESOURCE_PREFIX}nodes/node-{number}"),
            json!({"metadata": {"labels": {"zone": "x"}}}),
        );
    }
    let intended = "ipv4/no-auto-allocation/may-be-intended no-auto-allocation (info)";
    assert_eq!(stranded(&cluster), ["node-1 no-auto-allocation", intended]);
    let found = findings(&cluster);
    assert_eq!(
        nodes_without_addresses(&found).into_iter().collect::<Vec<_>>(),
        ["node-1"],
        "information does not count"
    );

    // Another IPAM may serve Windows, unless Calico serves a pod there.
    let mut windows = small(open(), &[]);
    windows.0.nodes[1]
        .value
        .labels
        .insert("kubernetes.io/os".into(), "windows".into());
    assert_eq!(
        stranded(&windows),
        ["node-2 windows-needs-strict-affinity (info)"]
    );
    let says = only(&windows, Code::NodeWithoutAddresses).message().to_owned();
    assert!(
        says.ends_with("; this may be intended: another IPAM may serve Windows"),
        "{says}"
    );
    windows.endpoint("node-2", "iis", &["10.244.1.4/32"]);
    assert_eq!(stranded(&windows), ["node-2 windows-needs-strict-affinity"]);
}

#[test]
fn undecodable_data_strands_no_node() {
    let unknown: [(&str, Value); 2] = [
        (
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-30",
            json!({"cidr": "10.244.1.0/30"}),
        ),
        ("/calico/ipam/v2/host/node-1/ipv4/block/10.244.1.8-30", json!([])),
    ];
    for (path, value) in unknown {
        let mut cluster = small(strict(), &FULL);
        if path.contains("assignment") {
            cluster
                .0
                .blocks
                .retain(|b| b.value.key.to_string() != "10.244.1.0/30");
        }
        cluster.put(path, value);
        assert!(stranded(&cluster).is_empty(), "{path}");
    }
    // Calico skips reservations and pools that it cannot read.
    for (path, value) in [
        (
            &format!("{RESOURCE_PREFIX}ipreservations/r"),
            json!({"spec": {"reservedCIDRs": ["x"]}}),
        ),
        (&format!("{RESOURCE_PREFIX}ippools/p"), json!({"spec": {}})),
    ] {
        let mut cluster = small(strict(), &FULL);
        cluster.put(path, value);
        assert_eq!(stranded(&cluster), ["node-1 strict-affinity"], "{path}");
    }
}

/// True if the real allocator gives the node one more address, based on the snapshot.
fn is_served(cluster: &Cluster, node: &str) -> bool {
    let store = SnapshotStore::new(&cluster.0);
    let request = AutoAssign {
        host: node.to_owned(),
        v4: 1,
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    };
    let given = without_waiting(Allocator::new(&store).auto_assign(&request));
    given.is_ok_and(|given| given.addresses().count() == 1)
}

#[test]
fn a_node_is_stranded_where_the_allocator_gives_it_nothing() {
    let of = |node, taken| Some((node, taken));
    let kinds = [
        None,
        of("node-1", 4),
        of("node-1", 3),
        of("node-2", 4),
        of("node-2", 3),
        of("node-2", 0),
    ];
    let limited = json!({"strict_affinity": true, "auto_allocate_blocks": true, "maxBlocksPerHost": 1});
    let (mut stranded_nodes, mut served_nodes) = (0, 0);
    for config in [strict(), open(), limited] {
        for number in 0..kinds.len().pow(3) {
            let [a, b, c] = [number % 6, number / 6 % 6, number / 36];
            let blocks: Vec<(&str, usize)> =
                [a, b, c, 3].into_iter().filter_map(|kind| kinds[kind]).collect();
            let cluster = small(config.clone(), &blocks);
            let found = stranded(&cluster);
            for node in ["node-1", "node-2"] {
                let is_stranded = found.iter().any(|line| line.starts_with(node));
                let is_served = is_served(&cluster, node);
                assert_eq!(is_stranded, !is_served, "{node}: {config} {blocks:?}");
                stranded_nodes += usize::from(is_stranded);
                served_nodes += usize::from(is_served);
            }
        }
    }
    assert!(
        stranded_nodes > 10 && served_nodes > 10,
        "{stranded_nodes} {served_nodes}"
    );
}

#[test]
fn a_known_cni_configuration_says_that_calico_serves_pods() {
    let mut cluster = small(open(), &[]);
    let manual = json!({"cidr": "10.244.0.0/16", "blockSize": 30, "assignmentMode": "Manual"});
    cluster.only_pool("manual", manual);
    cluster.block(
        "10.244.0.0/30",
        "virtual:load-balancer",
        [0; 4].map(|_| Value::Null),
    );
    cluster.affinity("virtual/load-balancer", "10.244.0.0/30", json!({}));
    waiting(
        &mut cluster,
        "new",
        PodParts {
            node: "node-1",
            ..PodParts::default()
        },
    );
    let stranded = |cni_configuration| {
        let options = Options {
            cni_configuration,
            ..Options::default()
        };
        let found = check(&cluster.0, &options).findings;
        found
            .iter()
            .filter(|finding| finding.code == Code::PodWithoutAddress)
            .count()
    };
    assert_eq!(stranded(None), 0, "services alone have a block");
    assert_eq!(stranded(Some(CniConfiguration::default())), 1);
}

#[test]
fn in_etcd_the_plugin_releases_what_the_endpoint_of_the_pod_holds() {
    let mut cluster = small(open(), &FULL);
    let annotations = Annotations {
        addresses: r#"["10.244.1.0"]"#.to_owned(),
        ..Annotations::default()
    };
    let request = PodRequest::from(annotations);
    waiting(
        &mut cluster,
        "web",
        PodParts {
            node: "node-1",
            request,
            ..PodParts::default()
        },
    );
    assert_eq!(
        only(&cluster, Code::PodWithoutAddress).subject.to_string(),
        "default/web",
        "it is taken"
    );

    cluster.endpoint("node-2", "web", &["10.244.1.0/32"]);
    assert_eq!(
        only(&cluster, Code::PodWithoutAddress).subject.to_string(),
        "default/web",
        "on another node"
    );
    cluster.endpoint("node-1", "web", &["10.244.1.0/32"]);
    let refused = findings(&cluster)
        .into_iter()
        .any(|finding| finding.code == Code::PodWithoutAddress);
    assert!(!refused);
}
