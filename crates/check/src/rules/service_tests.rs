//! LoadBalancer services and the records of their addresses.

use calipam_model::config::{AssignIps, KubeControllersConfiguration};
use calipam_model::service::Service;
use calipam_model::snapshot::Source;
use serde_json::{Value, json};

use super::kubernetes_tests::{kubernetes, running, verdict, versioned, with_pods};
use super::structure_tests::{self, evidence, findings, whole};
use crate::Code;
use crate::test_cluster::Cluster;

fn service_record(name: &str) -> Value {
    json!({"handle_id": "lb-x", "secondary": {"type": "LoadBalancer", "namespace": "default", "service": name}})
}

/// Adds a pool for services and a service in the namespace default, for a controller that serves all services.
pub(super) fn add_service(cluster: &mut Cluster, service: Service) {
    let spec = json!({"cidr": "10.250.0.0/24", "blockSize": 30, "allowedUses": ["LoadBalancer"]});
    cluster.resource("ippools/lb", spec);
    let assign_ips = Some(AssignIps::AllServices);
    cluster.0.kube_controllers = Some(KubeControllersConfiguration { assign_ips, ..Default::default() });
    cluster.0.services.push(versioned(Service { namespace: "default".into(), ..service }));
    cluster.0.mark_read([Source::Services]);
}

fn with_service(record: Value, service: Service) -> Cluster {
    let mut cluster = kubernetes(record);
    add_service(&mut cluster, service);
    cluster
}

/// A service that was created hours ago.
pub(super) fn web() -> Service {
    let created = "2026-05-01T08:00:00Z".parse().ok();
    Service { name: "web".into(), created, ..Service::default() }
}

#[test]
fn services_and_their_records() {
    let web =
        |ingress: &[&str]| Service { ingress: ingress.iter().map(|a| a.parse().unwrap()).collect(), ..web() };
    let expect = |record, service, expected: &[&str], what: &str| {
        let mut cluster = with_service(record, service);
        cluster.block("10.250.0.0/30", "virtual:load-balancer", []);
        assert_eq!(verdict(&cluster), expected, "{what}");
    };
    expect(service_record("web"), web(&["10.244.1.0"]), &[], "a record of the service holds it");
    let gone = ["leaked-address 10.244.1.0 [\"service-gone\"]"];
    expect(service_record("gone"), web(&["10.9.9.9"]), &gone, "gone; a cloud's address is not Calico's");
    expect(service_record("web"), web(&["10.9.9.9"]), &["service-address-extra 10.244.1.0"], "extra");
    let without = ["service-without-address default/web"];
    expect(service_record("web"), web(&[]), &without, "its status comes later");
    let given_up = Service { class: Some("cloud".into()), ..web(&[]) };
    expect(service_record("web"), given_up, &["service-address-extra 10.244.1.0"], "of another class by now");
    let going = Service { deleting: true, ..web(&[]) };
    expect(Value::Null, going, &[], "somebody has deleted it");
    let foreign = Service { class: Some("cloud".into()), ..web(&["10.250.0.9"]) };
    expect(Value::Null, foreign, &[], "of another class");
    let young = Service { created: "2026-05-01T11:55:00Z".parse().ok(), ..web(&[]) };
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
fn a_cloud_with_load_balancers_is_healthy() {
    let mut cluster = kubernetes(Value::Null);
    let ingress = vec!["10.244.1.2".parse().unwrap(), "203.0.113.7".parse().unwrap()];
    cluster.0.services.push(versioned(Service { ingress, ..web() }));
    assert_eq!(verdict(&cluster), [""; 0]);
}

#[test]
fn services_where_the_controller_is_off() {
    let mut cluster = whole();
    add_service(&mut cluster, web());
    let controllers = |serves: bool, no_section: bool| {
        let assign_ips = serves.then_some(AssignIps::AllServices);
        Some(KubeControllersConfiguration { assign_ips, no_section, ..Default::default() })
    };
    cluster.0.kube_controllers = controllers(false, false);
    assert_eq!(structure_tests::verdict(&cluster), [""; 0], "it gets its address elsewhere, or by hand");
    cluster.0.services[0].value.names_calico = true;
    let states = [
        (controllers(false, false), "v3.32.1", Some("controller-off")),
        (controllers(false, true), "v3.32.1", Some("no-section")),
        (controllers(true, false), "v3.30.0", None),
        (controllers(true, true), "v3.30.0", Some("only-by-environment")),
        (controllers(true, true), "v3.30.7", None),
    ];
    let causes = |cluster: &Cluster| -> Vec<Value> {
        let found = findings(cluster).into_iter().filter(|f| f.code == Code::ServiceWithoutAddress);
        found.map(|f| evidence(&f)["cause"].clone()).collect()
    };
    for (controllers, version, cause) in states {
        cluster.resource("clusterinformations/default", json!({"calicoVersion": version}));
        cluster.0.kube_controllers = controllers;
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
