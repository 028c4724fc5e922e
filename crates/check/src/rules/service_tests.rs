//! LoadBalancer services and the records of their addresses.

use calipam_model::config::{AssignIps, KubeControllersConfiguration};
use calipam_model::service::Service;
use calipam_model::service::request::ServiceRequest;
use calipam_model::snapshot::Source;
use serde_json::{Value, json};

use super::kubernetes_tests::{kubernetes, running, verdict, versioned, with_pods};
use super::structure_tests::{self, evidence, findings, whole};
use crate::Code;
use crate::test_cluster::Cluster;
use crate::views::{explain_service, of_earlier_services};

fn service_record(name: &str) -> Value {
    json!({"handle_id": "lb-x", "secondary": {"type": "LoadBalancer", "namespace": "default", "service": name}})
}

/// Adds a pool for services and a service in the namespace default, for a controller that serves all services.
pub(super) fn add_service(cluster: &mut Cluster, service: Service) {
    let spec = json!({"cidr": "10.250.0.0/24", "blockSize": 30, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb", spec);
    let assign_ips = Some(AssignIps::AllServices);
    cluster.0.kube_controllers = Some(KubeControllersConfiguration {
        assign_ips,
        ..Default::default()
    });
    cluster.0.services.push(versioned(Service {
        namespace: "default".into(),
        ..service
    }));
    cluster.0.mark_read([Source::Services]);
}

fn with_service(record: Value, service: Service) -> Cluster {
    let mut cluster = kubernetes(record);
    add_service(&mut cluster, service);
    cluster
}

/// A service that was created hours ago, and asks for an IPv4 address.
pub(super) fn web() -> Service {
    let created = "2026-05-01T08:00:00Z".parse().ok();
    let request = ServiceRequest {
        v4: true,
        ..ServiceRequest::default()
    };
    Service {
        name: "web".into(),
        created,
        request,
        ..Service::default()
    }
}

#[test]
fn services_and_their_records() {
    let web = |ingress: &[&str]| Service {
        ingress: ingress.iter().map(|a| a.parse().unwrap()).collect(),
        ..web()
    };
    let expect = |record, service, expected: &[&str], what: &str| {
        let mut cluster = with_service(record, service);
        cluster.block("10.250.0.0/30", "virtual:load-balancer", []);
        assert_eq!(verdict(&cluster), expected, "{what}");
    };
    expect(
        service_record("web"),
        web(&["10.244.1.0"]),
        &[],
        "a record of the service holds it",
    );
    let gone = ["leaked-address 10.244.1.0 [\"service-gone\"]"];
    expect(
        service_record("gone"),
        web(&["10.9.9.9"]),
        &gone,
        "gone; a cloud's address is not Calico's",
    );
    expect(
        service_record("web"),
        web(&["10.9.9.9"]),
        &["service-address-extra 10.244.1.0"],
        "extra",
    );
    let without = ["service-without-address default/web"];
    expect(
        service_record("web"),
        web(&[]),
        &without,
        "its status comes later",
    );
    let of_cloud = |service: Service| {
        let request = ServiceRequest {
            class: Some("cloud".into()),
            ..service.request.clone()
        };
        Service { request, ..service }
    };
    let given_up = of_cloud(web(&[]));
    expect(
        service_record("web"),
        given_up,
        &["service-address-extra 10.244.1.0"],
        "of another class by now",
    );
    let going = Service {
        deleting: true,
        ..web(&[])
    };
    expect(Value::Null, going, &[], "somebody has deleted it");
    let foreign = of_cloud(web(&["10.250.0.9"]));
    expect(Value::Null, foreign, &[], "of another class");
    let young = Service {
        created: "2026-05-01T11:55:00Z".parse().ok(),
        ..web(&[])
    };
    expect(Value::Null, young, &[], "young");
}

#[test]
fn an_address_that_is_recorded_for_a_service_is_its_own_outside_of_the_pools() {
    let ingress = vec!["10.244.1.0".parse().unwrap()];
    let cluster = with_service(service_record("web"), Service { ingress, ..web() });
    let cluster = with_pods(cluster, &[running("pod", "10.244.1.0")]);
    assert_eq!(verdict(&cluster), ["duplicate-address 10.244.1.0"]);
}

#[test]
fn an_address_of_a_cloud_is_a_risk_only_in_a_pool_for_pods() {
    let mut cluster = kubernetes(Value::Null);
    cluster.0.mark_read([Source::Services, Source::Reservations]);
    let ingress = vec!["203.0.113.7".parse().unwrap()];
    cluster.0.services.push(versioned(Service { ingress, ..web() }));
    assert_eq!(verdict(&cluster), [""; 0]);
    let service = &mut cluster.0.services[0].value;
    service.ingress.push("10.244.1.2".parse().unwrap());
    assert_eq!(verdict(&cluster), ["unrecorded-address 10.244.1.2"]);
    cluster.0.services[0].value.deleting = true;
    assert_eq!(verdict(&cluster), [""; 0]);
}

#[test]
fn services_where_the_controller_is_off() {
    let mut cluster = whole();
    add_service(&mut cluster, web());
    let controllers = |serves: bool, no_section: bool| {
        let assign_ips = serves.then_some(AssignIps::AllServices);
        Some(KubeControllersConfiguration {
            assign_ips,
            no_section,
            ..Default::default()
        })
    };
    cluster.0.mark_read([Source::KubeControllersConfiguration]);
    let states = [
        (controllers(false, false), "v3.32.1", Some("controller-off")),
        (controllers(false, true), "v3.32.1", Some("no-section")),
        (controllers(true, false), "v3.30.0", None),
        (controllers(true, true), "v3.30.0", Some("only-by-environment")),
        (controllers(true, true), "v3.30.7", None),
        (controllers(true, false), "v3.29.3", Some("too-old")),
        (None, "v3.32.1", Some("no-configuration")),
    ];
    let causes = |cluster: &Cluster| -> Vec<Value> {
        let found = findings(cluster)
            .into_iter()
            .filter(|f| f.code == Code::ServiceWithoutAddress);
        found.map(|f| evidence(&f)["cause"].clone()).collect()
    };
    for names_calico in [false, true] {
        cluster.0.services[0].value.request.pools_v4 = names_calico.then(|| "[\"lb\"]".into());
        for (controllers, version, cause) in states.clone() {
            cluster.resource("clusterinformations/default", json!({"calicoVersion": version}));
            cluster.0.kube_controllers = controllers;
            assert_eq!(causes(&cluster), [json!(cause)], "{version} {names_calico}");
        }
    }

    // Another load balancer serves services that name none.
    let mut other = Service {
        name: "other".into(),
        ..web()
    };
    other.ingress.push("203.0.113.9".parse().unwrap());
    cluster.0.services.push(versioned(other));
    assert_eq!(
        causes(&cluster),
        [json!("no-configuration")],
        "the service names Calico"
    );
    cluster.0.services[0].value.request.pools_v4 = None;
    assert_eq!(causes(&cluster), [Value::Null; 0]);
    cluster.0.services.pop();

    cluster.0.kube_controllers = controllers(true, false);
    cluster.0.pools.last_mut().unwrap().value.automatic = false;
    assert_eq!(causes(&cluster), [json!("pools-manual")]);
    cluster.0.services[0].value.request.pools_v4 = Some("[\"lb\"]".into());
    assert_eq!(causes(&cluster), [Value::Null], "it names its pool");
    cluster.0.services[0].value.request.pools_v4 = Some("lb".into());
    assert_eq!(causes(&cluster), [json!("unreadable-request")]);
    cluster.0.services[0].value.request.pools_v4 = Some("[\"10.250.0.0/25\"]".into());
    assert_eq!(causes(&cluster), [json!("refused")]);
    cluster.0.pools.pop();
    assert_eq!(causes(&cluster), [json!("no-pool")]);
    cluster.0.services[0].value.request.pools_v4 = None;
    assert_eq!(causes(&cluster), [Value::Null; 0], "it may be a cloud's");
    cluster.0.kube_controllers = None;
    assert_eq!(causes(&cluster), [Value::Null; 0]);
}

/// The controller leaves a service as it is if it cannot read an annotation, and serves none if it is off.
#[test]
fn a_service_with_its_address_lacks_none_whatever_the_controller_does() {
    let cluster = |addresses: &str| {
        let mut service = web();
        service.ingress = vec!["10.250.0.0".parse().unwrap()];
        service.request.addresses = Some(addresses.to_owned());
        let handle = service.handle();
        let record = json!({"handle_id": handle, "secondary":
            {"type": "LoadBalancer", "namespace": "default", "service": "web"}});
        let mut cluster = whole();
        add_service(&mut cluster, service);
        cluster.block("10.250.0.0/30", "virtual:load-balancer", [record]);
        cluster
    };
    let messages = |cluster: &Cluster| -> Vec<String> {
        let found = findings(cluster).into_iter();
        let about = found.filter(|finding| finding.code == Code::ServiceWithoutAddress);
        about.map(|finding| finding.message()).collect()
    };
    let healthy = cluster("[\"10.250.0.0\"]");
    assert_eq!(messages(&healthy), [""; 0]);
    assert_eq!(messages(&cluster("")), [""; 0], "the annotation cannot be read");

    let mut off = cluster("[\"10.250.0.0\"]");
    off.0.kube_controllers = None;
    off.0.mark_read([Source::KubeControllersConfiguration]);
    assert_eq!(messages(&off), [""; 0], "the controller is off");
    off.0.services[0].value.request.addresses = Some("[\"10.250.0.0\", \"fd00::9\"]".into());
    let lacks = "default/web is a LoadBalancer service without an IPv6 address: ";
    let found = messages(&off);
    assert!(found.len() == 1 && found[0].starts_with(lacks), "{found:?}");

    let mut two = cluster("x");
    two.0.services[0].value.request.dual_stack = true;
    let found = messages(&two);
    assert!(found.len() == 1 && found[0].starts_with(lacks), "{found:?}");
}

#[test]
fn a_service_of_two_families_needs_both_addresses() {
    let mut cluster = whole();
    let request = ServiceRequest {
        v4: true,
        v6: true,
        dual_stack: true,
        ..ServiceRequest::default()
    };
    add_service(&mut cluster, Service { request, ..web() });
    let v6 = json!({"cidr": "fd00:250::/112", "blockSize": 122, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb6", v6);
    let mut service = cluster.0.services[0].value.clone();
    service.uid = "u-1".into();
    service.ingress = vec!["10.250.0.0".parse().unwrap()];
    let record = json!({"handle_id": service.handle(),
        "secondary": {"type": "LoadBalancer", "namespace": "default", "service": "web"}});
    cluster.0.services[0].value = service;
    cluster.block("10.250.0.0/30", "virtual:load-balancer", [record]);
    let found = findings(&cluster);
    let found = found
        .iter()
        .find(|found| found.code == Code::ServiceWithoutAddress)
        .unwrap();
    assert!(
        found
            .message()
            .contains("without an IPv6 address: the controller asks for no IPv6"),
        "{found:?}"
    );
    let refusal = &evidence(found)["refusals"][0];
    assert_eq!(
        (&refusal["family"], &refusal["reason"]),
        (&json!("ipv6"), &json!("has-other-family"))
    );

    cluster.0.services[0]
        .value
        .ingress
        .push("fd00:250::1".parse().unwrap());
    let verdict = structure_tests::verdict(&cluster);
    assert!(
        verdict
            .iter()
            .all(|found| !found.contains("service-without-address")),
        "{verdict:?}"
    );
}

/// A cluster with a service for which these addresses are recorded in blocks of the controller.
fn recorded(service: Service, addresses: &[&str]) -> Cluster {
    let mut cluster = whole();
    add_service(&mut cluster, service);
    let v6 = json!({"cidr": "fd00:250::/112", "blockSize": 126, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb6", v6);
    let service = &mut cluster.0.services[0].value;
    service.uid = "u-1".into();
    service.ingress = addresses.iter().map(|a| a.parse().unwrap()).collect();
    let record = json!({"handle_id": service.handle(),
        "secondary": {"type": "LoadBalancer", "namespace": "default", "service": "web"}});
    for address in addresses {
        let length = if address.contains(':') { 126 } else { 30 };
        let block = format!("{address}/{length}");
        cluster.block(&block, "virtual:load-balancer", [record.clone()]);
    }
    cluster
}

fn explained(cluster: &Cluster) -> String {
    explain_service(&cluster.0, "default", "web").unwrap().sentence()
}

#[test]
fn the_controller_counts_addresses_without_comparing_their_families() {
    let request = ServiceRequest {
        v6: true,
        spec_address: "10.250.0.9".into(),
        ..ServiceRequest::default()
    };
    let cluster = recorded(Service { request, ..web() }, &["fd00:250::"]);
    assert_eq!(
        explained(&cluster),
        "default/web has fd00:250::; default/web gets no IPv4 address: the controller asks for no further address, since the service has as many as its ipFamilyPolicy asks for"
    );
}

#[test]
fn the_controller_releases_the_addresses_of_services_that_it_does_not_serve() {
    let of_another_class = Service {
        request: ServiceRequest {
            class: Some("other.io/x".into()),
            ..web().request
        },
        ..web()
    };
    let mut cluster = recorded(of_another_class, &["10.250.0.0"]);
    assert_eq!(
        explained(&cluster),
        "Calico does not serve default/web: its loadBalancerClass is \"other.io/x\"; the controller releases 10.250.0.0"
    );
    cluster.0.services[0].value.deleting = true;
    assert_eq!(
        explained(&cluster),
        "Calico does not serve default/web: its loadBalancerClass is \"other.io/x\"; the controller releases 10.250.0.0"
    );
    cluster.0.services[0].value.is_internal = true;
    assert_eq!(
        explained(&cluster),
        "default/web is not a LoadBalancer service, so it needs no address; the controller releases 10.250.0.0"
    );
    cluster.0.kube_controllers = None;
    assert_eq!(
        explained(&cluster),
        "default/web is not a LoadBalancer service, so it needs no address"
    );
}

#[test]
fn a_service_that_is_being_deleted_is_served_until_it_is_gone() {
    let deleted = Service {
        deleting: true,
        ..web()
    };
    assert_eq!(
        explained(&recorded(deleted, &["10.250.0.0"])),
        "default/web is being deleted: until its finalizers are done, Calico treats it like any other service"
    );
}

#[test]
fn an_earlier_service_of_the_same_name_leaves_an_address_under_its_own_handle() {
    let mut cluster = recorded(web(), &["10.250.0.0"]);
    assert_eq!(explained(&cluster), "default/web has 10.250.0.0");
    let service = Service {
        uid: "u-0".into(),
        ..cluster.0.services[0].value.clone()
    };
    let record = json!({"handle_id": service.handle(),
        "secondary": {"type": "LoadBalancer", "namespace": "default", "service": "web"}});
    cluster.block("10.250.0.4/30", "virtual:load-balancer", [record]);
    assert_eq!(
        explained(&cluster),
        "default/web has 10.250.0.0; 10.250.0.4 is still recorded for an earlier service of this name"
    );
    assert_eq!(of_earlier_services(&cluster.0).len(), 1);
    cluster.0.services[0].value.is_internal = true;
    assert_eq!(
        of_earlier_services(&cluster.0).len(),
        0,
        "the controller releases the address"
    );
}
