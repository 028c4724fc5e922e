//! Objects of each kind, as controllers, the kubelet and Calico write them.

use calipam_model::affinity::{AffinityKey, AffinityType};
use serde_json::{Map, Value, json};

use super::names;

const API_VERSION: &str = "crd.projectcalico.org/v1";

fn calico(kind: &str, name: &str, spec: Value) -> Value {
    let annotations = json!({"projectcalico.org/metadata": "{}"});
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

/// A pod of a Deployment, as its controller creates it: about 6 KB when it runs.
pub(super) fn pod(pod: usize, node: usize) -> Value {
    let environment: Vec<Value> = (0..5)
        .map(|i| json!({"name": format!("CHECKOUT_SETTING_{i:02}"), "value": format!("value-of-setting-{i}-for-this-service")}))
        .collect();
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 8080}, "periodSeconds": 10});
    let container = |name: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:v2.31.4"), "env": environment,
            "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 9090, "name": "metrics"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
            "volumeMounts": [{"name": "config", "mountPath": "/etc/checkout"}, {"name": "token", "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": names::pod(pod), "namespace": names::namespace(pod), "generateName": "checkout-5d4f8c7b9d-",
            "labels": {"app": "checkout", "pod-template-hash": "5d4f8c7b9d", "tier": "backend", "version": "v2.31.4"},
            "annotations": annotations(pod, node),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-5d4f8c7b9d",
                "uid": "7b9b5d8e-2f3a-4c1d-9e0f-112233445566", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": names::node(node), "serviceAccountName": "checkout",
            "containers": [container("checkout")],
            "volumes": [{"name": "config", "configMap": {"name": "checkout"}}, {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300}],
        },
    })
}

fn annotations(pod: usize, node: usize) -> Value {
    let address = format!("{}/32", names::address(node, 1 + pod % names::PODS));
    json!({"cni.projectcalico.org/containerID": names::container(pod), "cni.projectcalico.org/podIP": address,
        "cni.projectcalico.org/podIPs": address, "prometheus.io/scrape": "true", "prometheus.io/port": "9090"})
}

/// The status from the kubelet of a pod.
pub(super) fn pod_status(pod: usize, node: usize) -> Value {
    let ip = names::address(node, 1 + pod % names::PODS);
    let time = "2026-05-01T10:12:03Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = conditions.map(condition);
    let container = |name: &str| {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": time}},
            "lastState": {}, "image": format!("registry.example.com/shop/{name}:v2.31.4"),
            "imageID": format!("registry.example.com/shop/{name}@sha256:{}", names::container(7)),
            "containerID": format!("containerd://{}", names::container(pod))})
    };
    json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": names::host(node),
        "hostIPs": [{"ip": names::host(node)}], "startTime": time, "qosClass": "Burstable",
        "conditions": conditions,
        "containerStatuses": [container("checkout")],
    })
}

pub(super) fn node(node: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": names::node(node),
            "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": names::node(node), "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "eu-west-1", "topology.kubernetes.io/zone": "eu-west-1a"},
            "annotations": {"projectcalico.org/IPv4Address": format!("{}/16", names::host(node)),
                "projectcalico.org/IPv4IPIPTunnelAddr": names::address(node, 0)}},
        "spec": {"providerID": format!("example:///eu-west-1a/{}", names::node(node))},
    })
}

/// The status from the kubelet of a node, mostly a list of images.
pub(super) fn node_status(node: usize) -> Value {
    let image = |i: usize| {
        let name = format!("registry.example.com/shop/image-{i:02}");
        json!({"names": [format!("{name}@sha256:{}", names::container(i)), format!("{name}:v1.0.{i}")], "sizeBytes": 48_000_000 + i})
    };
    json!({
        "addresses": [{"type": "InternalIP", "address": names::host(node)}, {"type": "Hostname", "address": names::node(node)}],
        "capacity": {"cpu": "16", "memory": "65536Mi", "pods": "110"},
        "allocatable": {"cpu": "15", "memory": "60000Mi", "pods": "110"},
        "images": (0..30).map(image).collect::<Vec<_>>(),
    })
}

pub(super) fn namespace(pod: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::namespace(pod)}})
}

/// A service inside the cluster.
pub(super) fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "checkout", "namespace": "default"},
        "spec": {"selector": {"app": "checkout"}, "ports": [{"port": 80, "targetPort": 8080}]}})
}

pub(super) fn block(node: usize) -> Value {
    let name = names::node(node);
    let pods = node * names::PODS..(node + 1) * names::PODS;
    let mut attributes = vec![json!({"handle_id": names::tunnel_handle(node),
        "secondary": {"node": name, "type": "ipipTunnelAddress"}})];
    attributes.extend(pods.map(|pod| {
        json!({"handle_id": names::handle(pod), "secondary": {"namespace": names::namespace(pod), "node": name,
            "pod": names::pod(pod), "timestamp": "2026-05-01 10:12:00.123456789 +0000 UTC"}})
    }));
    let taken = attributes.len();
    let place = |ordinal| (ordinal < taken).then_some(ordinal);
    let numbers: Map<String, Value> =
        (0..taken).map(|o| (o.to_string(), json!(1_777_630_272_123_456_789_u64 + o as u64))).collect();
    calico(
        "IPAMBlock",
        &names::block_object(node),
        json!({
            "cidr": names::block(node), "affinity": format!("host:{name}"), "strictAffinity": false, "deleted": false,
            "allocations": (0..64).map(place).collect::<Vec<_>>(), "unallocated": (taken..64).collect::<Vec<_>>(),
            "attributes": attributes, "sequenceNumber": 1_777_630_272_123_457_000_u64,
            "sequenceNumberForAllocation": numbers,
        }),
    )
}

/// The hash of the node's name in the labels of an affinity.
pub(super) fn affinity_hash(node: usize) -> String {
    let cidr = names::block(node).parse().expect("a block has a CIDR");
    let key = AffinityKey { kind: AffinityType::Host, node: names::node(node), cidr };
    let labels = key.labels().into_iter();
    labels.map(|(_, value)| value).max_by_key(String::len).unwrap_or_default()
}

pub(super) fn affinity(node: usize) -> Value {
    let spec = json!({"cidr": names::block(node), "node": names::node(node), "state": "confirmed", "type": "host", "deleted": "false"});
    let mut object = calico("BlockAffinity", &names::affinity(node), spec);
    object["metadata"]["labels"] = json!({"projectcalico.org/affinity-type": "host",
        "projectcalico.org/hostname-hash": affinity_hash(node), "projectcalico.org/ip-version": "4"});
    object
}

pub(super) fn handle(id: &str, node: usize) -> Value {
    calico("IPAMHandle", id, json!({"handleID": id, "block": {names::block(node): 1}, "deleted": false}))
}

/// The pool, the configuration and the cluster information, with their plurals.
pub(super) fn configuration() -> [(&'static str, Value); 3] {
    [
        (
            "ippools",
            calico(
                "IPPool",
                "default-ipv4-ippool",
                json!({"cidr": "10.0.0.0/8", "blockSize": 26, "ipipMode": "Always"}),
            ),
        ),
        (
            "ipamconfigs",
            calico("IPAMConfig", "default", json!({"strictAffinity": false, "autoAllocateBlocks": true})),
        ),
        (
            "clusterinformations",
            calico(
                "ClusterInformation",
                "default",
                json!({"clusterGUID": "0f0e1d2c3b4a59687786951423324150",
                "calicoVersion": "v3.32.1", "datastoreReady": true}),
            ),
        ),
    ]
}
