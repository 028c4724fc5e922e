//! LoadBalancer services and the records of their addresses.

use calipam_model::config::{AssignIps, KubeControllersConfiguration};
use calipam_model::service::Service;
use serde_json::{Value, json};

use super::kubernetes_tests::{kubernetes, running, verdict, versioned, with_pods};
use crate::test_cluster::Cluster;

fn service_record(name: &str) -> Value {
    json!({"handle_id": "lb-x", "secondary": {"type": "LoadBalancer", "namespace": "default", "service": name}})
}

fn with_service(record: Value, pool: &str, service: Service) -> Cluster {
    let mut cluster = kubernetes(record);
    cluster.resource("ippools/lb", json!({"cidr": pool, "blockSize": 30, "allowedUses": ["LoadBalancer"]}));
    let controllers =
        KubeControllersConfiguration { assign_ips: Some(AssignIps::AllServices), ..Default::default() };
    cluster.0.kube_controllers = Some(controllers);
    cluster.0.services.push(versioned(Service { namespace: "default".into(), ..service }));
    cluster
}

#[test]
fn services_and_their_records() {
    let created = "2026-05-01T08:00:00Z".parse().ok();
    let web = |ingress: &[&str]| Service {
        name: "web".into(),
        created,
        ingress: ingress.iter().map(|a| a.parse().unwrap()).collect(),
        ..Service::default()
    };
    let expect = |record, service, expected: &[&str], what: &str| {
        let mut cluster = with_service(record, "10.250.0.0/24", service);
        cluster.block("10.250.0.0/30", "virtual:load-balancer", []);
        assert_eq!(verdict(&cluster), expected, "{what}");
    };
    expect(service_record("web"), web(&["10.244.1.0"]), &[], "a record of the service holds it");
    expect(
        service_record("gone"),
        web(&["10.9.9.9"]),
        &["leaked-address 10.244.1.0 [\"service-gone\"]"],
        "gone; a cloud's address is not Calico's",
    );
    expect(service_record("web"), web(&["10.9.9.9"]), &["service-address-extra 10.244.1.0"], "extra");
    expect(
        service_record("web"),
        web(&[]),
        &["service-without-address default/web"],
        "its status comes later",
    );
    let given_up = Service { class: Some("cloud".into()), ..web(&[]) };
    expect(service_record("web"), given_up, &["service-address-extra 10.244.1.0"], "of another class by now");
    expect(Value::Null, web(&["10.250.0.9"]), &["unallocated-in-use 10.250.0.9"], "in the pool, no record");
    expect(Value::Null, web(&[]), &["service-without-address default/web"], "no address");
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
    let service = Service { name: "web".into(), ingress, ..Service::default() };
    let cluster = with_service(service_record("web"), "10.250.0.0/24", service);
    let cluster = with_pods(cluster, &[running("pod", "10.244.1.0")]);
    assert_eq!(verdict(&cluster), ["duplicate-address 10.244.1.0"]);
}

#[test]
fn a_cloud_with_load_balancers_is_healthy() {
    let mut cluster = kubernetes(Value::Null);
    let ingress = vec!["10.244.1.2".parse().unwrap(), "203.0.113.7".parse().unwrap()];
    cluster.0.services.push(versioned(Service { name: "web".into(), ingress, ..Service::default() }));
    assert_eq!(verdict(&cluster), [""; 0]);
}
