//! Addresses that belong to CNI plugins, orchestrators and networks other than Calico's.

use calipam_model::pod::{Annotations, PodParts, PodRequest};
use calipam_model::snapshot::{DatastoreKind, Source};
use serde_json::json;

use super::in_use_tests::{NOTHING, etcd, etcd_with_pods, foreign_endpoint, kubernetes, verdict};
use super::kubernetes_tests::{running, with_pods};
use crate::test_cluster::{Cluster, pod};
use crate::{Options, check, views};

#[test]
fn bare_cni_with_containers_and_networks_of_any_name() {
    let attributes = json!({"node": "node-1", "timestamp": "2026-05-01 10:00:00 +0000 UTC"});
    let of = |handle: &str| json!({"handle_id": handle, "secondary": attributes});
    // Before Calico 3.6, there were no attributes.
    let old = json!({"handle_id": "net.d.web_init-7"});
    let records = [
        of("net.web_init-5"),
        of("lb-net.web_init-6"),
        old,
        json!({"handle_id": "lb-net.web_init-8"}),
    ];
    let mut cluster = etcd(records);
    for (container, address) in [
        ("5", "10.244.1.4"),
        ("6", "10.244.1.5"),
        ("7", "10.244.1.6"),
        ("8", "10.244.1.7"),
    ] {
        foreign_endpoint(
            &mut cluster,
            "cni",
            "node-1",
            &format!("web_init-{container}"),
            &[address],
        );
    }
    assert_eq!(verdict(&cluster), NOTHING);
    // A container without an address may be about to get the recorded one.
    let mut waiting = etcd([json!({"handle_id": "net.web_init-7"})]);
    foreign_endpoint(&mut waiting, "cni", "node-1", "web_init-7", &[]);
    assert_eq!(verdict(&waiting), NOTHING);
    foreign_endpoint(&mut waiting, "cni", "node-1", "web_init-7", &["10.244.1.4"]);
    let mut other = waiting;
    other
        .0
        .endpoints
        .retain(|e| e.value.container_id() != *"web_init-7");
    foreign_endpoint(&mut other, "cni", "node-1", "web_init-9", &["10.244.1.4"]);
    assert_eq!(verdict(&other), ["error owner-mismatch 10.244.1.4"]);
}

#[test]
fn both_spellings_of_the_status_of_networks_protect() {
    let status = r#"[{"name": "net", "ips": ["10.244.1.4"]}]"#;
    let other = || running("other", "");
    let new = PodParts {
        network_status: Some(status),
        ..other()
    };
    for parts in [
        new,
        PodParts {
            networks_status: Some(status),
            ..other()
        },
    ] {
        assert_eq!(verdict(&kubernetes([pod("node-1", "gone")], &[parts])), NOTHING);
    }
}

#[test]
fn addresses_that_bypass_ipam_are_subtracted_from_the_endpoint() {
    let parts = PodParts {
        request: no_ipam(r#"["10.244.9.9"]"#),
        container_id: "",
        ..running("fixed", "10.244.9.9")
    };
    let mut cluster = etcd_with_pods([], &[parts]);
    cluster.endpoint("node-1", "fixed", &["10.244.9.9/32"]);
    assert_eq!(verdict(&cluster), NOTHING);
    cluster.endpoint("node-1", "web-0", &["10.244.1.1/32", "10.244.9.8/32"]);
    assert_eq!(verdict(&cluster), ["critical unallocated-in-use 10.244.9.8"]);
}

#[test]
fn pods_that_another_plugin_networks_accuse_nobody() {
    let foreign = |address| PodParts {
        container_id: "",
        ..running("fargate", address)
    };
    for address in ["10.244.9.9", "192.168.7.7", "10.244.1.1"] {
        assert_eq!(
            verdict(&kubernetes([], &[foreign(address)])),
            NOTHING,
            "{address}"
        );
    }
    let found = verdict(&kubernetes([], &[running("calico", "10.244.9.9")]));
    assert_eq!(found, ["critical unallocated-in-use 10.244.9.9"]);
    let protected = kubernetes([pod("node-1", "gone")], &[foreign("10.244.1.4")]);
    assert_eq!(verdict(&protected), NOTHING, "what they name is not leaked");
}

#[test]
fn addresses_of_other_plugins_in_a_pool_are_reported_with_their_pods() {
    let record = &[pod("node-1", "gone")];
    let foreign = |address| PodParts {
        container_id: "",
        ..running("fargate", address)
    };
    let warned = |parts: PodParts<'_>| {
        let mut cluster = kubernetes(record.clone(), &[parts]);
        cluster.0.mark_read([Source::Reservations]);
        cluster
    };
    let story = |cluster: &Cluster, address: &str| {
        let view = views::address(&cluster.0, address.parse().unwrap());
        view.named_by
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    let named = "pod default/fargate on node-1 (status.podIPs)";
    for address in ["10.244.9.9", "10.244.1.6"] {
        let cluster = warned(foreign(address));
        let found = verdict(&cluster);
        assert!(
            found.contains(&format!("warning unrecorded-address {address}")),
            "{found:?}"
        );
        assert_eq!(story(&cluster, address), named);
    }
    let none = |cluster: &Cluster| verdict(cluster).iter().all(|f| !f.contains("unrecorded-address"));
    for address in ["192.168.7.7", "10.244.1.1", "10.244.1.4"] {
        assert!(
            none(&warned(foreign(address))),
            "{address}: in no pool, used by another, recorded"
        );
    }
    assert_eq!(
        story(&warned(foreign("10.244.1.4")), "10.244.1.4"),
        named,
        "the record is of a dead pod"
    );
    assert!(
        none(&warned(PodParts {
            ready: false,
            ..foreign("10.244.9.9")
        })),
        "of the sandbox before"
    );
    let mut reserved = warned(foreign("10.244.9.9"));
    reserved.resource(
        "ipreservations/flannel",
        json!({"reservedCIDRs": ["10.244.9.0/24"]}),
    );
    assert!(none(&reserved));
    let mut disabled = warned(foreign("10.244.9.9"));
    disabled.0.pools[0].value.disabled = true;
    assert!(none(&disabled));
    let mut unread = warned(foreign("10.244.9.9"));
    unread.0.coverage.remove(&Source::Reservations);
    assert!(none(&unread));

    let bypassing = PodParts {
        request: no_ipam(r#"["10.244.9.9"]"#),
        ..running("fixed", "10.244.9.9")
    };
    let cluster = warned(bypassing);
    assert!(!none(&cluster));
    let field = "pod default/fixed on node-1 (annotation cni.projectcalico.org/ipAddrsNoIpam)";
    assert_eq!(story(&cluster, "10.244.9.9"), field);
    let multus = r#"[{"name": "net1", "ips": ["10.244.9.9"]}]"#;
    let multus = warned(PodParts {
        network_status: Some(multus),
        ..running("multi", "10.244.1.5")
    });
    assert!(none(&multus), "a network of its own");
    assert!(story(&multus, "10.244.9.9").ends_with("(annotation k8s.v1.cni.cncf.io/network-status)"));
}

/// Calico's CNI plugin with host-local IPAM, and service addresses from Calico IPAM.
#[test]
fn pods_and_tunnels_are_ignored_if_calico_ipam_serves_only_services() {
    let mut cluster = Cluster::new();
    cluster.0.mark_read([
        Source::Pods,
        Source::Services,
        Source::Machines,
        Source::Affinities,
    ]);
    cluster.0.datastore = DatastoreKind::Kubernetes;
    cluster.0.coverage.remove(&Source::Endpoints);
    let spec = json!({"cidr": "10.250.0.0/28", "blockSize": 30, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb", spec);
    let record = json!({"handle_id": "lb-hash", "secondary": {"service": "web", "namespace": "default", "type": "LoadBalancer"}});
    cluster.block("10.250.0.0/30", "virtual:load-balancer", [record]);
    cluster.affinity(
        "virtual/load-balancer",
        "10.250.0.0/30",
        json!({"state": "confirmed"}),
    );
    cluster.handle("lb-hash", json!({"10.250.0.0/30": 1}));
    let mut cluster = with_pods(
        cluster,
        &[running("inside", "10.244.9.9"), running("outside", "192.168.7.7")],
    );
    assert_eq!(
        verdict(&cluster),
        ["error leaked-address 10.250.0.0"],
        "services are judged"
    );
    let notes = check(&cluster.0, &Options::default()).notes;
    assert!(notes[0].contains("LoadBalancer services only"), "{notes:?}");

    // A single handle of a pod shows that nodes had blocks, which have been lost.
    cluster.handle("k8s-pod-network.0123456789abcdef", json!({}));
    let expected = [
        "critical unallocated-in-use 10.244.1.0",
        "critical unallocated-in-use 10.244.9.9",
        "error leaked-address 10.250.0.0",
        "error in-use-outside-pools 192.168.7.7",
    ];
    assert_eq!(verdict(&cluster), expected);
    assert!(check(&cluster.0, &Options::default()).notes.is_empty());
}

#[test]
fn endpoints_of_openstack_protect_and_accuse_nobody() {
    let mut cluster = etcd([pod("node-1", "gone")]);
    for (node, port, addresses) in [
        ("node-1", "port-1", &["10.244.1.1/32", "192.168.9.1/32"][..]),
        (
            "compute-7",
            "port-2",
            &["192.168.9.1/32", "10.244.9.9/32", "10.244.1.4/32"][..],
        ),
    ] {
        foreign_endpoint(&mut cluster, "openstack", node, port, addresses);
    }
    assert_eq!(verdict(&cluster), NOTHING);
}

#[test]
fn calico_as_a_secondary_network() {
    let status = r#"[{"name": "cilium", "default": true, "ips": ["192.168.7.7"]},
        {"name": "calico", "interface": "net1", "ips": ["10.244.1.4"]}]"#;
    let parts = |status_ip| PodParts {
        cni_ip: Some("10.244.1.4/32"),
        network_status: Some(status),
        ..running("two", status_ip)
    };
    assert_eq!(
        verdict(&kubernetes([pod("node-1", "two")], &[parts("192.168.7.7")])),
        NOTHING
    );
    let alone = PodParts {
        network_status: None,
        ..parts("192.168.7.7")
    };
    let found = verdict(&kubernetes([pod("node-1", "two")], &[alone]));
    assert_eq!(found, ["warning pod-address-disagreement default/two"]);
}

/// A request that names addresses which bypass IPAM.
fn no_ipam(json: &str) -> PodRequest {
    Annotations {
        no_ipam: json.to_owned(),
        ..Annotations::default()
    }
    .into()
}
