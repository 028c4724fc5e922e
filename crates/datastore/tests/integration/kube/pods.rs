//! Every state of a pod in the fact sheet (2.12), as protobuf and as JSON.

use calipam_testkit::datastore::observe;
use calipam_testkit::kube::{Flavour, create_in_etcd};
use serde_json::{Value, json};

use super::support::{pod, seeded};
use crate::support::open_file;

/// A pod on node-1, modified by `change`.
fn with(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod(name, "node-1");
    pod["metadata"]["uid"] = format!("00000000-0000-0000-0000-{:012}", name.len()).into();
    pod["metadata"]["creationTimestamp"] = "2026-05-01T10:00:00Z".into();
    pod["status"] =
        json!({"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}]});
    change(&mut pod);
    pod
}

/// A pod on node-1 with these of Calico's annotations.
fn annotated(name: &str, annotations: &[(&str, &str)]) -> Value {
    with(name, |pod| {
        for (annotation, text) in annotations {
            pod["metadata"]["annotations"][format!("cni.projectcalico.org/{annotation}")] = (*text).into();
        }
    })
}

/// A pod that is being deleted.
fn deleting(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = "2026-05-01T10:00:00Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    pod
}

/// A pod with another status.
fn in_state(name: &str, status: Value) -> Value {
    with(name, |pod| pod["status"] = status)
}

fn cases() -> Vec<(Value, &'static [&'static str])> {
    let by_annotation = [
        ("podIP", "10.1.0.3/32"),
        ("podIPs", "10.1.0.3/32,fd00::3/128"),
        ("containerID", "3f9a"),
    ];
    let mut on_aws = in_state("on-aws", json!({"phase": "Running"}));
    on_aws["metadata"]["annotations"] = json!({"vpc.amazonaws.com/pod-ips": "10.1.0.5"});
    let machine = json!([{"apiVersion": "kubevirt.io/v1", "blockOwnerDeletion": true, "controller": true,
        "kind": "VirtualMachineInstance", "name": "vm-1", "uid": "u"}]);
    vec![
        (with("by-status", |_| {}), &["10.1.0.1", "fd00::1"]),
        (
            in_state(
                "by-single-status",
                json!({"phase": "Unknown", "podIP": "10.1.0.2"}),
            ),
            &["10.1.0.2"],
        ),
        (
            annotated("by-annotation", &by_annotation),
            &["10.1.0.3", "fd00::3"],
        ),
        (annotated("torn-down", &[("podIP", ""), ("podIPs", "")]), &[]),
        (
            deleting(annotated("terminating", &[("podIP", "10.1.0.4/32")])),
            &["10.1.0.4"],
        ),
        (
            deleting(annotated("gone-but-for-its-object", &[("podIP", "")])),
            &[],
        ),
        (
            with("succeeded", |pod| pod["status"]["phase"] = "Succeeded".into()),
            &[],
        ),
        (
            with("evicted", |pod| {
                pod["status"]["phase"] = "Failed".into();
                pod["status"]["reason"] = "Evicted".into();
            }),
            &[],
        ),
        (
            with("host-networked", |pod| pod["spec"]["hostNetwork"] = true.into()),
            &[],
        ),
        (in_state("pending", json!({"phase": "Pending"})), &[]),
        (on_aws, &["10.1.0.5"]),
        (
            annotated("past-ipam", &[("ipAddrsNoIpam", "[\"10.1.0.1\"]")]),
            &["fd00::1"],
        ),
        (
            with("virt-launcher-vm-1-x", |pod| {
                pod["metadata"]["ownerReferences"] = machine
            }),
            &["10.1.0.1", "fd00::1"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_gives_the_addresses_that_calico_sees() {
    let world = seeded(Flavour::Classic);
    let server = world.server();
    let (objects, expected): (Vec<Value>, Vec<&[&str]>) = cases().into_iter().unzip();
    create_in_etcd(server, "/registry/pods/", &objects).unwrap();
    let snapshot = observe(&world.open().await).await;
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    for (object, expected) in objects.iter().zip(expected) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let pod = snapshot
            .pods
            .iter()
            .find(|p| p.value.name() == *name)
            .unwrap_or_else(|| panic!("{name}"));
        let addresses: Vec<String> = pod.value.addresses().map(|a| a.to_string()).collect();
        assert_eq!(addresses, expected, "{name}");
    }
    let machine = snapshot
        .pods
        .iter()
        .find(|p| !p.value.machine().is_empty())
        .unwrap();
    assert!(machine.value.machine() == *"vm-1");

    // The same pods as JSON in the form of the API server.
    let folder = tempfile::tempdir().unwrap();
    for (file, path) in [
        ("pods.json", "/api/v1/pods"),
        ("pools.json", &Flavour::Classic.path("ippools")),
    ] {
        std::fs::write(
            folder.path().join(file),
            server.request("GET", path, "").unwrap().body,
        )
        .unwrap();
    }
    let from_json = observe(&open_file(folder.path()).await.unwrap()).await;
    assert_eq!(from_json.pods, snapshot.pods);
}
