//! Every state of a pod in the fact sheet (2.12), as protobuf and as JSON.

use calipam_testkit::kube::{Flavour, create_in_etcd};
use serde_json::{Value, json};

use super::support::{open, pod, seed, server};
use crate::support::observe;

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

fn cases() -> Vec<(Value, &'static [&'static str])> {
    let annotate = |pod: &mut Value, annotations: Value| pod["metadata"]["annotations"] = annotations;
    let deleting = |pod: &mut Value| {
        pod["metadata"]["deletionTimestamp"] = "2026-05-01T10:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    };
    vec![
        (with("by-status", |_| {}), &["10.1.0.1", "fd00::1"]),
        (
            with("by-single-status", |p| p["status"] = json!({"phase": "Unknown", "podIP": "10.1.0.2"})),
            &["10.1.0.2"],
        ),
        (
            with("by-annotation", |p| {
                annotate(
                    p,
                    json!({"cni.projectcalico.org/podIP": "10.1.0.3/32",
                    "cni.projectcalico.org/podIPs": "10.1.0.3/32,fd00::3/128", "cni.projectcalico.org/containerID": "3f9a"}),
                );
            }),
            &["10.1.0.3", "fd00::3"],
        ),
        (
            with("torn-down", |p| {
                annotate(p, json!({"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""}))
            }),
            &[],
        ),
        (
            with("terminating", |p| {
                deleting(p);
                annotate(p, json!({"cni.projectcalico.org/podIP": "10.1.0.4/32"}));
            }),
            &["10.1.0.4"],
        ),
        (
            with("gone-but-for-its-object", |p| {
                deleting(p);
                annotate(p, json!({"cni.projectcalico.org/podIP": ""}));
            }),
            &[],
        ),
        (with("succeeded", |p| p["status"]["phase"] = "Succeeded".into()), &[]),
        (
            with("evicted", |p| {
                p["status"]["phase"] = "Failed".into();
                p["status"]["reason"] = "Evicted".into();
            }),
            &[],
        ),
        (with("host-networked", |p| p["spec"]["hostNetwork"] = true.into()), &[]),
        (with("pending", |p| p["status"] = json!({"phase": "Pending"})), &[]),
        (
            with("on-aws", |p| {
                p["status"] = json!({"phase": "Running"});
                annotate(p, json!({"vpc.amazonaws.com/pod-ips": "10.1.0.5"}));
            }),
            &["10.1.0.5"],
        ),
        (
            with("past-ipam", |p| {
                annotate(p, json!({"cni.projectcalico.org/ipAddrsNoIpam": "[\"10.1.0.1\"]"}))
            }),
            &["fd00::1"],
        ),
        (
            with("virt-launcher-vm-1-x", |p| {
                p["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "blockOwnerDeletion": true,
                    "controller": true, "kind": "VirtualMachineInstance", "name": "vm-1", "uid": "u"}]);
            }),
            &["10.1.0.1", "fd00::1"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_gives_the_addresses_that_calico_sees() {
    let server = server(Flavour::Classic);
    seed(&server, Flavour::Classic);
    let (objects, expected): (Vec<Value>, Vec<&[&str]>) = cases().into_iter().unzip();
    create_in_etcd(&server, "/registry/pods/", &objects).unwrap();
    let snapshot = observe(&open(&server).await).await.unwrap();
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    for (object, expected) in objects.iter().zip(expected) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let pod = snapshot.pods.iter().find(|p| p.value.name() == *name).unwrap_or_else(|| panic!("{name}"));
        let addresses: Vec<String> = pod.value.addresses().map(|a| a.to_string()).collect();
        assert_eq!(addresses, expected, "{name}");
    }
    let machine = snapshot.pods.iter().find(|p| !p.value.machine().is_empty()).unwrap();
    assert!(machine.value.machine() == *"vm-1");

    // The same pods as JSON in the form of the API server.
    let folder = tempfile::tempdir().unwrap();
    for (file, path) in [("pods.json", "/api/v1/pods"), ("pools.json", &Flavour::Classic.path("ippools"))] {
        std::fs::write(folder.path().join(file), server.request("GET", path, "").unwrap().body).unwrap();
    }
    let overrides = calipam_datastore::settings::Overrides {
        datastore: Some(folder.path().display().to_string()),
        ..Default::default()
    };
    let files = calipam_datastore::settings::LocalFiles;
    let settings =
        calipam_datastore::settings::Settings::resolve(&overrides, &Default::default(), &files).unwrap();
    let from_json = observe(&calipam_datastore::Datastore::open(&settings).await.unwrap()).await.unwrap();
    assert_eq!(from_json.pods, snapshot.pods);
}
