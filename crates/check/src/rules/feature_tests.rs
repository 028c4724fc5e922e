//! Clusters that use rare features of Calico, made of a few hand-written entries.

use calipam_model::config::{AssignIps, KubeControllersConfiguration};
use calipam_model::service::Service;
use calipam_model::snapshot::{DatastoreKind, ObjectVersion, Revision, Source, Versioned};
use calipam_testkit::values;
use serde_json::{Value, json};

use super::structure_tests::{evidence, findings, pod, verdict, whole};
use crate::test_cluster::{Cluster, tunnel};
use crate::{Code, Options, Severity, check};

/// The findings with this code, each as `severity subject`.
fn severities(cluster: &Cluster, code: Code) -> Vec<String> {
    let found = findings(cluster).into_iter().filter(|f| f.code == code);
    found.map(|f| format!("{} {}", f.severity, f.subject)).collect()
}

#[test]
fn keys_that_a_get_does_not_find() {
    let mut cluster = whole();
    let record = json!({"handle_id": "k8s-pod-network.gone"});
    let block = values::block("10.244.1.4/30", "host:node-1", [record]);
    cluster.put("/calico/ipam/v2/assignment/ipv4/block/10.244.1.6-30", block);
    cluster.affinity("host/node-1", "10.244.1.9/30", json!({"state": "confirmed"}));
    cluster.handle("k8s-pod-network.gone", json!({"10.244.1.4/30": 1}));
    let upper = values::block("fd00::a:0/126", Value::Null, []);
    cluster.put("/calico/ipam/v2/assignment/ipv6/block/FD00::A:0-126", upper);
    let expected = [
        "undecodable-object /calico/ipam/v2/assignment/ipv4/block/10.244.1.6-30",
        "undecodable-object /calico/ipam/v2/assignment/ipv6/block/FD00::A:0-126",
        "undecodable-object /calico/ipam/v2/host/node-1/ipv4/block/10.244.1.9-30",
        "block-outside-pools fd00::a:0/126",
    ];
    assert_eq!(verdict(&cluster), expected, "neither what the block records nor the handle is judged");
    let message = &findings(&cluster)[0].message();
    assert!(message.contains("Calico looks for it by the name 10.244.1.4-30"), "{message}");
}

#[test]
fn a_timestamp_in_the_future_counts_as_old() {
    let leaked = |timestamp: &str| {
        let mut record = pod("gone");
        record["secondary"]["timestamp"] = timestamp.into();
        let mut cluster = whole();
        cluster.block("10.244.1.4/30", "host:node-1", [record]);
        severities(&cluster, Code::LeakedAddress).len()
    };
    assert_eq!(leaked("2026-05-01 12:00:59 +0000 UTC"), 0, "clocks differ");
    assert_eq!(leaked("2026-05-01 12:01:01 +0000 UTC"), 1);
    assert_eq!(leaked("2027-05-01 12:00:00 +0000 UTC"), 1);
}

#[test]
fn pools_that_overlap_where_the_pool_controller_allows_it() {
    let overlap = |native: bool, spec: Value, status: Value| {
        let mut cluster = whole();
        cluster.0.datastore = DatastoreKind::Kubernetes;
        cluster.0.is_native = native;
        let mut all = json!({"cidr": "10.244.0.0/17", "blockSize": 30});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let key = "/calico/resources/v3/projectcalico.org/ippools/second";
        cluster.put(key, json!({"metadata": status["metadata"], "spec": all, "status": status["status"]}));
        severities(&cluster, Code::OverlappingPools).len()
    };
    let refused = json!({"status": {"conditions": [{"type": "Allocatable", "status": "False", "reason": "CIDROverlap"}]}});
    let states = [
        (json!({"disabled": true}), json!({})),
        (json!({}), json!({"metadata": {"deletionTimestamp": "2026-05-01T11:00:00Z"}})),
        (json!({}), refused),
    ];
    for (spec, status) in states {
        assert_eq!(overlap(true, spec.clone(), status.clone()), 0, "{spec} {status}");
        assert_eq!(overlap(false, spec, status), 2, "the classic mode refuses pools that overlap");
    }
    assert_eq!(overlap(true, json!({}), json!({})), 2);
}

#[test]
fn affinities_of_a_node_that_is_not_upgraded_yet() {
    let mut cluster = whole();
    cluster.0.datastore = DatastoreKind::Kubernetes;
    cluster.resource("clusterinformations/default", json!({"calicoVersion": "v3.31.0"}));
    for (node, cidr) in
        [("node-1", "10.244.1.4/30"), ("node-2", "10.244.1.8/30"), ("node-2", "10.244.1.12/30")]
    {
        cluster.resource(&format!("nodes/{node}"), json!({}));
        cluster.block(cidr, format!("host:{node}"), []);
        cluster.affinity(&format!("host/{node}"), cidr, json!({}));
    }
    let label = |cluster: &mut Cluster, place: usize| {
        let affinity = &mut cluster.0.affinities[place];
        let labels = affinity.value.key.labels().map(|(name, value)| (name.to_owned(), value));
        let version = ObjectVersion { labels: labels.into(), ..ObjectVersion::default() };
        affinity.revision = Revision::Kubernetes(Box::new(version));
    };
    label(&mut cluster, 0);
    let wanted = ["warning node-1/10.244.1.4/30", "info node-2/10.244.1.8/30", "info node-2/10.244.1.12/30"];
    assert_eq!(severities(&cluster, Code::AffinityLabels), wanted);
    label(&mut cluster, 2);
    let expected = ["warning node-1/10.244.1.4/30", "warning node-2/10.244.1.12/30"];
    assert_eq!(severities(&cluster, Code::AffinityLabels), expected);
}

#[test]
fn services_where_the_controller_is_off() {
    let mut cluster = whole();
    cluster.resource("ippools/lb", json!({"cidr": "10.250.0.0/24", "allowedUses": ["LoadBalancer"]}));
    let created = "2026-05-01T08:00:00Z".parse().ok();
    let value = Service { namespace: "default".into(), name: "web".into(), created, ..Service::default() };
    cluster.0.services.push(Versioned { value, revision: Revision::Etcd(1) });
    cluster.0.mark_read([Source::Services]);
    let assign_ips = Some(AssignIps::AllServices);
    let off = KubeControllersConfiguration::default();
    cluster.0.kube_controllers = Some(off.clone());
    assert_eq!(verdict(&cluster), [""; 0], "it gets its address elsewhere, or by hand");
    cluster.0.services[0].value.names_calico = true;
    let states = [
        (off.clone(), "v3.32.1", Some("controller-off")),
        (KubeControllersConfiguration { no_section: true, ..off.clone() }, "v3.32.1", Some("no-section")),
        (KubeControllersConfiguration { assign_ips, ..off.clone() }, "v3.30.0", None),
        (
            KubeControllersConfiguration { assign_ips, no_section: true, ..off.clone() },
            "v3.30.0",
            Some("only-by-environment"),
        ),
        (KubeControllersConfiguration { assign_ips, no_section: true, ..off }, "v3.30.7", None),
    ];
    let causes = |cluster: &Cluster| -> Vec<Value> {
        let found = findings(cluster).into_iter().filter(|f| f.code == Code::ServiceWithoutAddress);
        found.map(|f| evidence(&f)["cause"].clone()).collect()
    };
    for (controllers, version, cause) in states {
        cluster.resource("clusterinformations/default", json!({"calicoVersion": version}));
        cluster.0.kube_controllers = Some(controllers);
        assert_eq!(causes(&cluster), [json!(cause)], "{version}");
    }
    cluster.0.pools.last_mut().unwrap().value.automatic = false;
    assert_eq!(causes(&cluster), [json!("pools-manual")]);
    let web = &mut cluster.0.services[0].value;
    web.requests_addresses = true;
    assert_eq!(causes(&cluster), [Value::Null], "it names its pool");
    cluster.0.pools.pop();
    assert_eq!(causes(&cluster), [json!("no-pool")]);
    cluster.0.services[0].value.names_calico = false;
    assert_eq!(causes(&cluster), [Value::Null; 0], "it may be a cloud's");
    cluster.0.kube_controllers = None;
    assert_eq!(causes(&cluster), [Value::Null; 0]);
}

#[test]
fn a_borrowed_tunnel_address_is_drift() {
    let mut cluster = whole();
    cluster.resource("nodes/node-2", json!({"ipv4VXLANTunnelAddr": "10.244.1.2"}));
    let record = json!({"handle_id": "vxlan-tunnel-addr-node-2", "secondary": {"node": "node-2", "type": "vxlanTunnelAddress"}});
    cluster.0.blocks.clear();
    cluster.block("10.244.1.0/30", "host:node-1", [tunnel("node-1"), pod("web-0"), record]);
    cluster.handle("vxlan-tunnel-addr-node-2", json!({"10.244.1.0/30": 1}));
    let report = check(&cluster.0, &Options::default());
    let found: Vec<(Code, Severity)> = report.findings.iter().map(|f| (f.code, f.severity)).collect();
    assert_eq!(found, [(Code::BorrowedTunnelAddress, Severity::Warning)]);
}
