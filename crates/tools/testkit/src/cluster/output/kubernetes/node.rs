//! Nodes, with Calico's fields in annotations (facts 2.11).

use serde_json::{Map, Value, json};

/// The path of a value in etcd, and the annotation for it.
const ANNOTATIONS: [(&str, &str); 8] = [
    ("/spec/bgp/ipv4Address", "projectcalico.org/IPv4Address"),
    ("/spec/bgp/ipv6Address", "projectcalico.org/IPv6Address"),
    ("/spec/bgp/ipv4IPIPTunnelAddr", "projectcalico.org/IPv4IPIPTunnelAddr"),
    ("/spec/ipv4VXLANTunnelAddr", "projectcalico.org/IPv4VXLANTunnelAddr"),
    ("/spec/ipv6VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr"),
    ("/spec/wireguard/interfaceIPv4Address", "projectcalico.org/IPv4WireguardInterfaceAddr"),
    ("/spec/wireguard/interfaceIPv6Address", "projectcalico.org/IPv6WireguardInterfaceAddr"),
    ("/status/wireguardPublicKey", "projectcalico.org/WireguardPublicKey"),
];

/// A node. It has its Calico name, even if etcd links it to a Kubernetes node of another name.
pub(super) fn node(value: &Value) -> Value {
    let stored = &value["metadata"];
    let mut annotations = Map::new();
    for (place, annotation) in ANNOTATIONS {
        if let Some(text) = value.pointer(place).filter(|text| text.is_string()) {
            annotations.insert(annotation.to_owned(), text.clone());
        }
    }
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
