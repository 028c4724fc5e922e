//! Every state of a pod (facts 2.12), with the verdict on its record, and whether it uses the address.

use calipam_testkit::kube::Flavour;
use serde_json::{Value, json};

use super::kube_cluster::{KubeCluster, Record, cni_annotations, pod};

/// The verdict of a check on the record of a pod.
#[derive(Clone, Copy)]
enum Recorded {
    Kept,
    Leaked(&'static str),
}

use Recorded::{Kept, Leaked};

const FINISHED: Recorded = Leaked("pod-finished");
const POD_IP: &str = "cni.projectcalico.org/podIP";
const AWS_POD_IPS: &str = "vpc.amazonaws.com/pod-ips";

/// A state: its name, how it changes a running pod with an address, the verdict on the record, and true if the pod uses
/// the address. If the pod uses it, a missing record is a finding.
type State = (&'static str, fn(&mut Value, &str), Recorded, bool);

const STATES: [State; 22] = [
    // Calico annotates its pods, so an address that is only in the status is from another plugin. It keeps the pod's
    // record from counting as leaked. Against other pods, it is no evidence that the pod uses the address.
    ("all-statuses", |_, _| {}, Kept, false),
    (
        "pod-ips-only",
        |pod, ip| status(pod, json!({"phase": "Running", "podIPs": [{"ip": ip}]})),
        Kept,
        false,
    ),
    (
        "pod-ip-only",
        |pod, ip| status(pod, json!({"phase": "Running", "podIP": ip})),
        Kept,
        false,
    ),
    (
        "annotations-only",
        |pod, ip| without_status(pod, cni_annotations("3f9a", ip)),
        Kept,
        true,
    ),
    (
        "one-annotation-only",
        |pod, ip| without_status(pod, json!({POD_IP: ip})),
        Kept,
        true,
    ),
    (
        "aws-annotation-only",
        |pod, ip| without_status(pod, json!({AWS_POD_IPS: ip})),
        Kept,
        false,
    ),
    (
        "network-status-only",
        |pod, ip| without_status(pod, network_status(ip)),
        Kept,
        false,
    ),
    ("pending", |pod, _| pending(pod, json!({})), Kept, false),
    (
        "pending-with-sandbox",
        |pod, ip| pending(pod, cni_annotations("3f9a", ip)),
        Kept,
        true,
    ),
    (
        "not-scheduled",
        |pod, _| {
            pending(pod, json!({}));
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
        },
        Leaked("pod-moved"),
        false,
    ),
    (
        "unknown",
        |pod, _| pod["status"]["phase"] = "Unknown".into(),
        Kept,
        false,
    ),
    (
        "succeeded",
        |pod, ip| finished(pod, "Succeeded", ip),
        FINISHED,
        false,
    ),
    ("failed", |pod, ip| finished(pod, "Failed", ip), FINISHED, false),
    (
        "completed",
        |pod, ip| finished(pod, "Completed", ip),
        FINISHED,
        false,
    ),
    (
        "evicted",
        |pod, _| status(pod, json!({"phase": "Failed", "reason": "Evicted"})),
        FINISHED,
        false,
    ),
    ("terminating", |pod, _| deleting(pod, json!({})), Kept, false),
    (
        "terminating-annotated",
        |pod, ip| deleting(pod, cni_annotations("3f9a", ip)),
        Kept,
        true,
    ),
    (
        "torn-down",
        |pod, _| deleting(pod, blank_annotations()),
        FINISHED,
        false,
    ),
    (
        "torn-down-on-aws",
        |pod, _| deleting(pod, json!({AWS_POD_IPS: ""})),
        FINISHED,
        false,
    ),
    // Between two sandboxes: the annotation is blank, but the status still has the address.
    (
        "between-sandboxes",
        |pod, _| annotate(pod, blank_annotations()),
        Kept,
        false,
    ),
    (
        "host-networked",
        |pod, _| pod["spec"]["hostNetwork"] = true.into(),
        Leaked("pod-has-other-address"),
        false,
    ),
    (
        "past-ipam",
        |pod, ip| {
            annotate(
                pod,
                json!({"cni.projectcalico.org/ipAddrsNoIpam": json!([ip]).to_string()}),
            )
        },
        Kept,
        false,
    ),
];

fn status(pod: &mut Value, status: Value) {
    pod["status"] = status;
}

fn annotate(pod: &mut Value, annotations: Value) {
    pod["metadata"]["annotations"] = annotations;
}

fn without_status(pod: &mut Value, annotations: Value) {
    status(pod, json!({"phase": "Running"}));
    annotate(pod, annotations);
}

fn network_status(ip: &str) -> Value {
    json!({"k8s.v1.cni.cncf.io/network-status": json!([{"name": "k8s-pod-network", "ips": [ip]}]).to_string()})
}

fn blank_annotations() -> Value {
    json!({"cni.projectcalico.org/containerID": "3f9a", "cni.projectcalico.org/podIP": "",
        "cni.projectcalico.org/podIPs": ""})
}

/// Finishes a pod. Its annotations keep the address until its sandbox is removed.
fn finished(pod: &mut Value, phase: &str, ip: &str) {
    pod["status"]["phase"] = phase.into();
    annotate(pod, cni_annotations("3f9a", ip));
}

fn pending(pod: &mut Value, annotations: Value) {
    status(pod, json!({"phase": "Pending"}));
    annotate(pod, annotations);
}

fn deleting(pod: &mut Value, annotations: Value) {
    annotate(pod, annotations);
    pod["metadata"]["deletionTimestamp"] = "2026-05-01T11:00:00Z".into();
    pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
}

/// Tests each state twice: with an address that is recorded for the pod, and with one that is free in a block.
fn every_state(flavour: Flavour) {
    let cluster = KubeCluster::with_nodes(flavour, &["node-1"]);
    let mut pods = Vec::new();
    let mut expected = Vec::new();
    for (number, (name, change, recorded, uses)) in STATES.iter().enumerate() {
        for (third, suffix) in [(0, ""), (1, "-unrecorded")] {
            let address = format!("10.0.{third}.{number}");
            let mut made = pod(
                "default",
                &format!("{name}{suffix}"),
                "node-1",
                &address,
                pods.len(),
            );
            change(&mut made, &address);
            pods.push(made);
        }
        if *uses {
            expected.push(format!("critical unallocated-in-use 10.0.1.{number} # {name}"));
        }
        if let Leaked(reason) = recorded {
            expected.push(format!("error leaked-address 10.0.0.{number} {reason} # {name}"));
        }
    }
    let record =
        |(number, (name, ..)): (usize, &State)| Record::of_pod(number as u64, "default", name, "node-1");
    cluster.add_block(
        "10.0.0.0/26",
        "node-1",
        &STATES.iter().enumerate().map(record).collect::<Vec<_>>(),
    );
    cluster.add_block("10.0.1.0/26", "node-1", &[]);
    cluster.add_pods(&pods);

    // Adds the name of the state to each line, so that failures show it.
    let named = |line: String| {
        let address = line.split(' ').nth(2).unwrap_or_default();
        let number = address
            .rsplit('.')
            .next()
            .and_then(|last| last.parse::<usize>().ok());
        let name = number
            .and_then(|number| STATES.get(number))
            .map_or("no state", |state| state.0);
        format!("{line} # {name}")
    };
    let mut found: Vec<String> = cluster.findings().into_iter().map(named).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn in_each_api_group() {
    every_state(Flavour::Classic);
    every_state(Flavour::Native);
}
