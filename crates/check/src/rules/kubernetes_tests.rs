//! Evidence from pods, services and machines.

use calipam_model::key::{ENDPOINT_PREFIX, Key};
use calipam_model::pod::{Annotations, Pod, PodParts, PodRequest};
use calipam_model::service::Machine;
use calipam_model::snapshot::{
    DatastoreKind, Defect, DefectKind, ObjectVersion, Revision, Source, Versioned,
};
use serde_json::{Value, json};

use super::structure_tests::{self, evidence, findings};
use crate::test_cluster::{Cluster, pod};
use crate::{Code, Options, check};

pub(super) fn revision(version: &str) -> Revision {
    let version = ObjectVersion {
        resource_version: version.into(),
        ..ObjectVersion::default()
    };
    Revision::Kubernetes(Box::new(version))
}

pub(super) fn versioned<T>(value: T) -> Versioned<T> {
    Versioned {
        value,
        revision: revision("1"),
    }
}

/// A running pod on node-1 in the namespace default. Tests override the fields that matter to them.
pub(super) fn running<'a>(name: &'a str, address: &'a str) -> PodParts<'a> {
    let status_ips = if address.is_empty() {
        Vec::new()
    } else {
        vec![address]
    };
    PodParts {
        namespace: "default",
        name,
        node: "node-1",
        phase: "Running",
        ready: true,
        container_id: "sandbox",
        status_ips,
        ..PodParts::default()
    }
}

/// A cluster with the Kubernetes datastore. Its block 10.244.1.0/30 has the record at the first ordinal.
pub(super) fn kubernetes(record: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.0.datastore = DatastoreKind::Kubernetes;
    cluster.0.coverage.remove(&Source::Endpoints);
    cluster.0.coverage.remove(&Source::Handles);
    cluster.0.nodes[0].value.tunnels.clear();
    cluster
        .0
        .mark_read([Source::Pods, Source::Services, Source::Machines]);
    cluster.block("10.244.1.0/30", "host:node-1", [record]);
    cluster
}

pub(super) fn with_pods(mut cluster: Cluster, pods: &[PodParts<'_>]) -> Cluster {
    cluster
        .0
        .pods
        .extend(pods.iter().map(|parts| versioned(Pod::new(parts).0)));
    cluster
}

/// The findings, each as `code subject [reasons]`. Findings about blocks, affinities and handles are left out, since
/// the clusters of these tests have no affinities and handles.
pub(super) fn verdict(cluster: &Cluster) -> Vec<String> {
    let found = findings(cluster).into_iter();
    let wanted = found.filter(|f| !["block", "handle", "affinity"].contains(&f.subject.kind()));
    let line = |f: crate::Finding| {
        let reasons = &evidence(&f)["reasons"];
        let reasons = if reasons.is_array() {
            format!(" {reasons}")
        } else {
            String::new()
        };
        format!("{} {}{reasons}", f.code, f.subject)
    };
    wanted.map(line).collect()
}

#[test]
fn every_state_of_a_pod() {
    let (address, blank) = ("10.244.1.0", Some(""));
    let web = |address| running("web", address);
    let found = |parts| verdict(&with_pods(kubernetes(pod("node-1", "web")), &[parts]));
    let leaked = |reason: &str| format!("leaked-address {address} [\"{reason}\"]");
    let named = Some(r#"[{"ips":["10.244.1.0"]}]"#);
    let kept = [
        ("running", web(address)),
        (
            "waiting for its address",
            PodParts {
                phase: "Pending",
                ..web("")
            },
        ),
        (
            "unknown",
            PodParts {
                phase: "Unknown",
                ..web(address)
            },
        ),
        (
            "terminating",
            PodParts {
                deleting: true,
                cni_ip: Some("10.244.1.0/32"),
                ..web(address)
            },
        ),
        (
            "restarted in place, status still old",
            PodParts {
                cni_ip: blank,
                ..web(address)
            },
        ),
        (
            "named by network-status only",
            PodParts {
                network_status: named,
                ..running("other", "")
            },
        ),
    ];
    for (name, parts) in kept {
        assert_eq!(found(parts), [""; 0], "{name}");
    }
    let torn_down = PodParts {
        deleting: true,
        cni_ip: blank,
        cni_ips: blank,
        ..web(address)
    };
    let on_host = |name| PodParts {
        host_network: true,
        ..running(name, address)
    };
    for (name, parts, reason) in [
        ("torn down", torn_down, "pod-finished"),
        (
            "succeeded",
            PodParts {
                phase: "Succeeded",
                ..web(address)
            },
            "pod-finished",
        ),
        (
            "evicted",
            PodParts {
                phase: "Failed",
                ..web("")
            },
            "pod-finished",
        ),
        ("another pod", on_host("other"), "no-owner"),
        (
            "now on the host's network",
            on_host("web"),
            "pod-has-other-address",
        ),
    ] {
        assert_eq!(found(parts), [leaked(reason)], "{name}");
    }
    let expected = ["unallocated-in-use 10.244.1.1", &leaked("pod-has-other-address")];
    assert_eq!(found(web("10.244.1.1")), expected);
    let expected = [&leaked("pod-moved"), "endpoint-of-missing-node default/web"];
    assert_eq!(
        found(PodParts {
            node: "node-2",
            ..web("")
        }),
        expected
    );
}

/// A dual-stack pod. Its status names only one family, and so does its annotation, if it has one.
#[test]
fn an_address_of_the_other_family_under_a_pods_handle_is_not_leaked() {
    let v6 = |handle: &str| {
        let mut cluster = kubernetes(pod("node-1", "web"));
        cluster.resource("ippools/v6", json!({"cidr": "fd00::/120", "blockSize": 126}));
        let mut record = pod("node-1", "web");
        record["handle_id"] = format!("k8s-pod-network.{handle}").into();
        cluster.block("fd00::/126", "host:node-1", [record]);
        cluster
    };
    let web = running("web", "10.244.1.0");
    let bridged = PodParts {
        container_id: "",
        ..web.clone()
    };
    let annotated = PodParts {
        cni_ip: Some("10.244.1.0/32"),
        ..web.clone()
    };
    for parts in [web.clone(), bridged, annotated] {
        assert_eq!(
            verdict(&with_pods(v6("web"), std::slice::from_ref(&parts))),
            [""; 0]
        );
        let other = verdict(&with_pods(v6("earlier"), &[parts]));
        assert_eq!(
            other,
            ["leaked-address fd00:: [\"pod-has-other-address\"]"],
            "another sandbox's"
        );
    }
    let both = PodParts {
        status_ips: vec!["10.244.1.0", "fd00::1"],
        ..web.clone()
    };
    let found = verdict(&with_pods(v6("web"), &[both]));
    assert!(
        found.contains(&"leaked-address fd00:: [\"pod-has-other-address\"]".to_owned()),
        "{found:?}"
    );
    let finished = PodParts {
        phase: "Succeeded",
        ..web
    };
    assert_eq!(verdict(&with_pods(v6("web"), &[finished])).len(), 2);
}

#[test]
fn a_container_without_its_id_in_an_annotation_may_be_any() {
    let record = json!({"handle_id": format!("k8s-pod-network.{:0>64}", 7)});
    let old = PodParts {
        container_id: "",
        cni_ip: Some("10.244.1.0/32"),
        ..running("web", "10.244.1.0")
    };
    assert_eq!(
        verdict(&with_pods(kubernetes(record.clone()), std::slice::from_ref(&old))),
        [""; 0]
    );
    let current = PodParts {
        container_id: "other",
        ..old
    };
    assert_eq!(
        verdict(&with_pods(kubernetes(record), &[current])),
        ["owner-mismatch 10.244.1.0"]
    );
}

#[test]
fn addresses_that_bypass_ipam_accuse_nobody() {
    let pod = PodParts {
        request: no_ipam(r#"["10.244.1.3"]"#),
        ..running("web", "10.244.1.3")
    };
    let mut cluster = kubernetes(Value::Null);
    cluster = with_pods(cluster, &[pod]);
    assert_eq!(verdict(&cluster), [""; 0]);
}

/// A second read of the finding has to include each of two blocks that overlap.
#[test]
fn an_address_that_bypasses_ipam_and_is_recorded_depends_on_all_blocks_around_it() {
    let fixed = PodParts {
        request: no_ipam(r#"["10.244.1.0"]"#),
        ..running("fixed", "10.244.1.0")
    };
    let pods = [running("web", "10.244.1.0"), fixed];
    let mut cluster = with_pods(kubernetes(pod("node-1", "web")), &pods);
    cluster.0.mark_read([Source::Reservations]);
    cluster.block("10.244.1.0/32", "host:node-1", []);

    let report = check(&cluster.0, &Options::default());
    let mut findings = report.findings.iter();
    let duplicate = findings
        .find(|finding| finding.code == Code::DuplicateAddress)
        .unwrap();
    for block in ["10.244.1.0/30", "10.244.1.0/32"] {
        let key = Key::Block(block.parse().unwrap());
        assert!(duplicate.depends_on.contains(&key), "{block}: {duplicate:?}");
    }
}

#[test]
fn a_stopped_machine_keeps_its_address() {
    let mut machine = pod("node-1", "virt-launcher-vm-1-abcde");
    machine["secondary"]["vmi-name"] = json!("vm-1");
    for record in [machine, json!({"handle_id": "k8s-pod-network.vmi.default.vm-1"})] {
        let mut cluster = kubernetes(record);
        assert_eq!(verdict(&cluster), ["leaked-address 10.244.1.0 [\"vm-gone\"]"]);
        let machine = Machine {
            namespace: "default".into(),
            name: "vm-1".into(),
            ..Machine::default()
        };
        cluster.0.machines.push(versioned(machine));
        assert_eq!(verdict(&cluster), [""; 0]);
    }
}

#[test]
fn all_pods_of_a_machine_are_one_owner() {
    let pod = |name| PodParts {
        machine: Some("vm-1"),
        ..running(name, "10.244.1.0")
    };
    let record = json!({"handle_id": "k8s-pod-network.vmi.default.vm-1"});
    let cluster = with_pods(
        kubernetes(record.clone()),
        &[pod("virt-launcher-vm-1-a"), pod("virt-launcher-vm-1-b")],
    );
    assert_eq!(verdict(&cluster), [""; 0]);
    let cluster = with_pods(
        kubernetes(record),
        &[pod("virt-launcher-vm-1-a"), running("web", "10.244.1.0")],
    );
    assert_eq!(verdict(&cluster), ["duplicate-address 10.244.1.0"]);
}

/// A cluster for which both etcd and Kubernetes were read.
pub(super) fn both(pods: &[PodParts<'_>]) -> Cluster {
    let mut cluster = kubernetes(pod("node-1", "web"));
    cluster.0.datastore = DatastoreKind::Etcd;
    cluster.0.mark_read([Source::Endpoints]);
    cluster.endpoint("node-1", "web", &["10.244.1.0/32"]);
    with_pods(cluster, pods)
}

#[test]
fn a_pod_that_cannot_be_decoded_keeps_its_address() {
    let mut cluster = kubernetes(pod("node-1", "web"));
    assert_eq!(verdict(&cluster).len(), 1, "it leaks");
    let key = Key::Pod {
        namespace: "default".into(),
        name: "web".into(),
    };
    let kind = DefectKind::Value("no pod".into());
    cluster.0.defects.push(Defect {
        path: "pods/default/web".into(),
        key: Some(key),
        kind,
    });
    let found = verdict(&cluster);
    assert!(
        !found.iter().any(|line| line.starts_with("leaked-address")),
        "{found:?}"
    );
}

#[test]
fn endpoints_against_pods() {
    let web = "default/node--1-k8s-web-eth0";
    assert_eq!(verdict(&both(&[running("web", "10.244.1.0")])), [""; 0]);
    assert_eq!(verdict(&both(&[])), [format!("endpoint-without-pod {web}")]);
    let other = running("other", "");
    let found = verdict(&both(&[running("web", "10.244.1.0"), other]));
    assert_eq!(found, ["pod-without-endpoint default/other"]);
    let with_broken = |namespace: &str, pod: &str| {
        let mut cluster = both(&[running("web", "10.244.1.0"), running("other", "")]);
        let key = format!("{ENDPOINT_PREFIX}{namespace}/node--1-k8s-{pod}-eth0");
        cluster.put(&key, json!("no endpoint"));
        verdict(&cluster)
            .iter()
            .filter(|line| line.starts_with("pod-without-endpoint"))
            .count()
    };
    assert_eq!(with_broken("default", "other"), 0, "it may be the pod's");
    assert_eq!(
        [with_broken("default", "another"), with_broken("else", "other")],
        [1, 1]
    );
    let disagreeing = PodParts {
        cni_ip: Some("10.244.1.0/32"),
        ..running("web", "10.244.1.3")
    };
    assert_eq!(
        verdict(&both(&[disagreeing])),
        ["pod-address-disagreement default/web"]
    );
    let stale = running("web", "10.244.1.3");
    let expected = ["pod-address-disagreement default/web"];
    assert_eq!(
        verdict(&both(&[stale])),
        expected,
        "a status older than its sandbox causes no finding"
    );
    let v6_only_in_annotation = PodParts {
        cni_ips: Some("10.244.1.0/32,fd00::1/128"),
        ..running("web", "10.244.1.0")
    };
    let about_pods = |cluster: &Cluster| {
        verdict(cluster)
            .into_iter()
            .filter(|f| f.starts_with("pod-"))
            .count()
    };
    assert_eq!(about_pods(&both(&[v6_only_in_annotation])), 0);
    let mut moved = both(&[PodParts {
        node: "node-2",
        ..running("web", "10.244.1.0")
    }]);
    moved.resource("nodes/node-2", json!({}));
    assert!(verdict(&moved).contains(&format!("endpoint-node-mismatch {web}")));
    let mut renamed = both(&[PodParts {
        node: "k8s-1",
        ..running("web", "10.244.1.0")
    }]);
    renamed.0.nodes[0].value.kubernetes_name = Some("k8s-1".into());
    assert_eq!(verdict(&renamed), [""; 0]);
}

#[test]
fn custom_resources() {
    let mut cluster = kubernetes(json!({"handle_id": "net.ABCDEF"}));
    cluster.put("/calico/ipam/v2/handle/net.abcdef", json!({"block": {}}));
    cluster.affinity("host/node-1", "10.244.1.0/30", json!({"state": "confirmed"}));
    cluster.0.affinities[0].revision = revision("1");
    let report = |cluster: &Cluster| -> Vec<String> {
        let named = |line: &String| {
            ["handle-case", "affinity-labels"]
                .iter()
                .any(|code| line.starts_with(code))
        };
        structure_tests::verdict(cluster)
            .into_iter()
            .filter(named)
            .collect()
    };
    let expected = ["handle-case-collision net.abcdef"];
    assert_eq!(
        report(&cluster),
        expected,
        "no version and no label: an old cluster"
    );
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.31.0"}));
    let expected = [
        "handle-case-collision net.abcdef",
        "affinity-labels node-1/10.244.1.0/30",
    ];
    assert_eq!(report(&cluster), expected);
    let labels = cluster.0.affinities[0]
        .value
        .key
        .labels()
        .map(|(name, value)| (name.to_owned(), value));
    let version = ObjectVersion {
        labels: labels.into(),
        ..ObjectVersion::default()
    };
    cluster.0.affinities[0].revision = Revision::Kubernetes(Box::new(version));
    assert_eq!(report(&cluster), ["handle-case-collision net.abcdef"]);
}

#[test]
fn kubernetes_and_calico_compared_by_node() {
    let mut cluster = both(&[running("web", "10.244.1.0"), running("other", "10.244.1.3")]);
    cluster.endpoint("node-1", "gone", &["10.244.1.2/32"]);
    let comparison = crate::views::compare(&cluster.0).unwrap();
    assert_eq!(comparison.nodes.len(), 1);
    let node = &comparison.nodes[0];
    assert_eq!(
        (
            node.node.as_str(),
            node.pods,
            node.in_kubernetes,
            node.in_endpoints
        ),
        ("node-1", 2, 2, 2)
    );
    assert_eq!((node.in_blocks, node.agreed), (1, 1));
    let texts = |set: &std::collections::BTreeSet<std::net::IpAddr>| {
        set.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(texts(&node.not_recorded), ["10.244.1.3"]);
    assert_eq!(texts(&node.without_endpoint), ["10.244.1.3"]);
    assert_eq!(texts(&node.endpoint_only), ["10.244.1.2"]);
    assert_eq!(texts(&node.not_used), [""; 0]);
    cluster.0.coverage.remove(&Source::Pods);
    assert_eq!(crate::views::compare(&cluster.0), None);
}

/// A request that names addresses which bypass IPAM.
fn no_ipam(json: &str) -> PodRequest {
    Annotations {
        no_ipam: json.to_owned(),
        ..Annotations::default()
    }
    .into()
}
