//! Nodes, with Calico's fields in annotations (facts 2.11), and pods, which replace endpoints (facts 2.12).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

/// Fields of nodes that are annotations in Kubernetes.
const ANNOTATIONS: [(&str, &str); 7] = [
    ("/spec/bgp/ipv4Address", "IPv4Address"),
    ("/spec/bgp/ipv4IPIPTunnelAddr", "IPv4IPIPTunnelAddr"),
    ("/spec/ipv4VXLANTunnelAddr", "IPv4VXLANTunnelAddr"),
    ("/spec/ipv6VXLANTunnelAddr", "IPv6VXLANTunnelAddr"),
    (
        "/spec/wireguard/interfaceIPv4Address",
        "IPv4WireguardInterfaceAddr",
    ),
    (
        "/spec/wireguard/interfaceIPv6Address",
        "IPv6WireguardInterfaceAddr",
    ),
    ("/status/wireguardPublicKey", "WireguardPublicKey"),
];

/// A node. It has its Calico name, even if etcd links it to a Kubernetes node of another name.
pub(super) fn node_of(value: &Value) -> Value {
    let stored = &value["metadata"];
    let annotation = |(place, name): (&str, &str)| {
        let text = value.pointer(place).filter(|text| text.is_string())?;
        Some((format!("projectcalico.org/{name}"), text.clone()))
    };
    let annotations: Map<_, _> = ANNOTATIONS.into_iter().filter_map(annotation).collect();
    let hostname = json!({"type": "Hostname", "address": stored["name"]});
    let known = value
        .pointer("/spec/addresses")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let internal = known.filter(|address| address["type"] == "InternalIP").cloned();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": stored["name"],
            "uid": stored["uid"],
            "creationTimestamp": stored["creationTimestamp"],
            "labels": stored["labels"],
            "annotations": annotations,
        },
        "spec": {},
        "status": {"addresses": internal.chain([hostname]).collect::<Vec<_>>()},
    })
}

/// Length of a sandbox ID in the name of a pod that replaces another orchestrator's endpoint.
const SHORT: usize = 12;

/// Creates the running pod of an endpoint.
pub(in crate::cluster) fn pod_of(endpoint: &Value) -> Option<Value> {
    let stored = &endpoint["metadata"];
    let spec = &endpoint["spec"];
    // Kubernetes has no ports of OpenStack.
    let orchestrator = spec["orchestrator"]
        .as_str()
        .filter(|orchestrator| *orchestrator != "openstack")?;
    let container = spec["containerID"]
        .as_str()
        .or(spec["endpoint"].as_str())
        .unwrap_or_default();
    let name = match spec["pod"].as_str() {
        Some(pod) => pod.to_owned(),
        None => format!("{orchestrator}-{}", container.get(..SHORT)?),
    };
    let networks = texts(&spec["ipNetworks"]);
    let mut metadata = json!({
        "name": name,
        "namespace": stored["namespace"],
        "uid": stored["uid"],
        "creationTimestamp": stored["creationTimestamp"],
        "labels": labels(&stored["labels"]),
        "annotations": annotations(container, &networks),
    });
    if let Some(prefix) = stored["generateName"].as_str() {
        metadata["generateName"] = prefix.into();
    }
    if let Some(machine) = machine(&name) {
        metadata["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "name": machine, "uid": stored["uid"], "controller": true, "blockOwnerDeletion": true}]);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": spec["node"],
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "containers": [{"name": "main", "image": "registry.example.com/main:1"}],
        },
        "status": status(&networks, &stored["creationTimestamp"]),
    }))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|text| Some(text.as_str()?.to_owned()))
        .collect()
}

/// The labels of a pod: those of the endpoint without Calico's own.
fn labels(stored: &Value) -> Value {
    let own = stored
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !name.contains("projectcalico.org/"));
    own.map(|(name, value)| (name.clone(), value.clone()))
        .collect::<Map<_, _>>()
        .into()
}

/// The annotations of the CNI plugin: the sandbox, and every address with a full-length mask.
fn annotations(container: &str, networks: &[String]) -> Value {
    let mut annotations = json!({"cni.projectcalico.org/containerID": container});
    if let Some(first) = networks.first() {
        annotations["cni.projectcalico.org/podIP"] = first.as_str().into();
        annotations["cni.projectcalico.org/podIPs"] = networks.join(",").into();
    }
    annotations
}

/// The kubelet's status, with the first address of each family.
fn status(networks: &[String], since: &Value) -> Value {
    let address = |network: &String| network.split('/').next()?.parse::<IpAddr>().ok();
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in networks.iter().filter_map(address) {
        if !ips.iter().any(|known| known.is_ipv4() == ip.is_ipv4()) {
            ips.push(ip);
        }
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let conditions = [condition("PodReadyToStartContainers"), condition("Ready")];
    let mut status =
        json!({"phase": "Running", "qosClass": "BestEffort", "startTime": since, "conditions": conditions});
    if let Some(first) = ips.first() {
        status["podIP"] = json!(first);
        status["podIPs"] = ips
            .iter()
            .map(|ip| json!({ "ip": ip }))
            .collect::<Vec<_>>()
            .into();
    }
    status
}

/// The virtual machine of a pod, from its name: `virt-launcher-<machine>-<suffix>`.
fn machine(pod: &str) -> Option<&str> {
    Some(pod.strip_prefix("virt-launcher-")?.rsplit_once('-')?.0)
}
