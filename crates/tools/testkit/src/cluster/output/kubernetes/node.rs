//! Nodes, with Calico's fields in annotations (facts 2.11).

use serde_json::{Map, Value, json};

/// Fields of nodes that are annotations in Kubernetes.
const ANNOTATIONS: [(&str, &str); 7] = [
    ("/spec/bgp/ipv4Address", "IPv4Address"),
    ("/spec/bgp/ipv4IPIPTunnelAddr", "IPv4IPIPTunnelAddr"),
    ("/spec/ipv4VXLANTunnelAddr", "IPv4VXLANTunnelAddr"),
    ("/spec/ipv6VXLANTunnelAddr", "IPv6VXLANTunnelAddr"),
    ("/spec/wireguard/interfaceIPv4Address", "IPv4WireguardInterfaceAddr"),
    ("/spec/wireguard/interfaceIPv6Address", "IPv6WireguardInterfaceAddr"),
    ("/status/wireguardPublicKey", "WireguardPublicKey"),
];

/// A node. It has its Calico name, even if etcd links it to a Kubernetes node of another name.
pub(super) fn node(value: &Value) -> Value {
    let stored = &value["metadata"];
    let annotation = |(place, name): (&str, &str)| {
        let text = value.pointer(place).filter(|text| text.is_string())?;
        Some((format!("projectcalico.org/{name}"), text.clone()))
    };
    let annotations: Map<_, _> = ANNOTATIONS.into_iter().filter_map(annotation).collect();
    let hostname = json!({"type": "Hostname", "address": stored["name"]});
    let known = value.pointer("/spec/addresses").and_then(Value::as_array).into_iter().flatten();
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
