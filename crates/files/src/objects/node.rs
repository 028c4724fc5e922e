//! Kubernetes nodes, with Calico's data in their annotations (facts 2.11).

use std::collections::BTreeMap;

use calipam_model::cidr::{parse_address, parse_cidr};
use calipam_model::node::{Node, TunnelKind};
use calipam_model::plugin::INSTALLED;
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};

use super::list_splitter::Encoding;
use super::meta::{Labels, Meta, Parts, Wanted};
use super::wire::{Text, message};
use super::{Added, Result, export};

/// The annotation with the address of the IPIP tunnel.
pub const IPIP: &str = "projectcalico.org/IPv4IPIPTunnelAddr";
const VXLAN: &str = "projectcalico.org/IPv4VXLANTunnelAddr";
const VXLAN_V6: &str = "projectcalico.org/IPv6VXLANTunnelAddr";
const WIREGUARD: &str = "projectcalico.org/IPv4WireguardInterfaceAddr";
const WIREGUARD_V6: &str = "projectcalico.org/IPv6WireguardInterfaceAddr";
/// The annotation with labels that Calico adds to those from Kubernetes: a JSON object.
const LABELS: &str = "projectcalico.org/labels";

/// The annotations with the WireGuard public keys for IPv4 and IPv6.
const KEYS: [&str; 2] = [
    "projectcalico.org/WireguardPublicKey",
    "projectcalico.org/WireguardPublicKeyV6",
];

/// The annotations with tunnel addresses, in the order of [`TunnelKind::ALL`].
const TUNNELS: [&str; 5] = [IPIP, VXLAN, VXLAN_V6, WIREGUARD, WIREGUARD_V6];

const WANTED: Wanted = Wanted {
    labels: Labels::All,
    annotations: &[
        IPIP,
        VXLAN,
        VXLAN_V6,
        WIREGUARD,
        WIREGUARD_V6,
        KEYS[0],
        KEYS[1],
        LABELS,
        OWN[0],
        OWN[1],
        INSTALLED,
    ],
    owners: false,
};

/// The annotations with the node's own addresses.
const OWN: [&str; 2] = ["projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address"];

type NodeObject<'a> = Parts<'a, Spec<'a>, Status<'a>>;

message! {
    Spec {
        #[serde(skip_serializing_if = "str::is_empty")]
        1 "podCIDR" pod_cidr: Text<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        7 "podCIDRs" pod_cidrs: Option<Vec<Text<'a>>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        5 "taints" taints: Option<Vec<Taint<'a>>>,
    }
}

message! { Taint { 3 "effect" effect: Text<'a> } }
message! { Status { 5 "addresses" addresses: Option<Vec<NodeAddress<'a>>> } }
message! { NodeAddress { 2 "address" address: Text<'a>, 1 "type" kind: Text<'a> } }

/// The taint effects that keep pods away.
const KEEPS_AWAY: [&str; 2] = ["NoSchedule", "NoExecute"];

pub(crate) fn add_node(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    Ok(add(snapshot, &NodeObject::read(object, encoding, WANTED)?))
}

/// Adds only the name and creation time of a node: Calico's data about it is in etcd. Skips an object that does not
/// parse, which no API server sends.
pub(crate) fn add_node_name(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let Ok(node) = NodeObject::read(object, encoding, WANTED) else {
        return Ok(Vec::new());
    };
    let name = node.metadata.name.to_string();
    let created = node.metadata.created_at();
    let value = Node {
        kubernetes_name: Some(name.clone()),
        created,
        name,
        ..Node::default()
    };
    snapshot.kubernetes_nodes.push(Versioned {
        value,
        revision: node.metadata.revision(),
    });
    Ok(Vec::new())
}

/// Reduces a node to the part that an export keeps.
pub(crate) fn export_node(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let mut node = NodeObject::read(object, encoding, WANTED)?;
    node.metadata = node.metadata.for_export(WANTED);
    export("Node", node)
}

/// Adds a node to the snapshot. Returns its fields that cannot be read.
fn add(snapshot: &mut Snapshot, object: &NodeObject<'_>) -> Vec<FieldDefect> {
    let meta = &object.metadata;
    let name = meta.name.to_string();
    let mut defects = Vec::new();
    let mut node = Node {
        kubernetes_name: Some(name.clone()),
        name,
        created: meta.created_at(),
        labels: labels(meta, &mut defects),
        plugin: meta.annotation(INSTALLED).map(str::to_owned),
        wireguard_keys: KEYS.map(|key| meta.annotation(key).is_some_and(|key| !key.is_empty())),
        ..Node::default()
    };

    for (kind, annotation) in TunnelKind::ALL.into_iter().zip(TUNNELS) {
        let text = meta.annotation(annotation).unwrap_or_default();
        if text.is_empty() {
            continue;
        }
        match parse_address(text) {
            Some(address) if address.is_ipv6() == kind.is_v6() => node.tunnels.push((kind, address)),
            _ => {
                let family = if kind.is_v6() { "IPv6" } else { "IPv4" };
                let reason = format!("annotation {annotation}: {text:?} is not an {family} address");
                defects.push(FieldDefect::new(kind.field(), reason));
            }
        }
    }

    let mut taints = object.spec.taints.iter().flatten();
    node.tainted = taints.any(|taint| KEEPS_AWAY.contains(&&*taint.effect));
    match &object.spec.pod_cidrs {
        Some(cidrs) => node
            .pod_cidrs
            .extend(cidrs.iter().filter_map(|text| parse_cidr(text))),
        None => node.pod_cidrs.extend(parse_cidr(&object.spec.pod_cidr)),
    }

    for annotation in OWN {
        if let Some(text) = meta.annotation(annotation) {
            node.add_address("CalicoNodeIP", text);
        }
    }
    for NodeAddress { address, kind } in object.status.addresses.iter().flatten() {
        node.add_address(kind, address);
    }

    snapshot.newest_creation = snapshot.newest_creation.max(meta.created_at());
    snapshot.nodes.push(Versioned {
        value: node,
        revision: meta.revision(),
    });
    defects
}

/// Returns the node's labels. Kubernetes labels override those that Calico keeps in an annotation. If the annotation
/// cannot be read, this is a defect, and only the Kubernetes labels are returned.
fn labels(meta: &Meta<'_>, defects: &mut Vec<FieldDefect>) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    if let Some(annotation) = meta.annotation(LABELS) {
        match serde_json::from_str(annotation) {
            Ok(calico_labels) => labels = calico_labels,
            Err(error) => {
                let reason = format!("no JSON object of strings: {error}");
                defects.push(FieldDefect::new(LABELS, reason));
            }
        }
    }
    for (name, value) in &meta.labels {
        labels.insert(name.to_string(), value.to_string());
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a string or an embedded message as a field.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    #[test]
    fn ranges_of_pods_and_keys_of_wireguard_are_read_from_both_encodings() {
        let ranges = [
            field(1, b"10.2.0.0/24"),
            field(7, b"10.2.0.0/24"),
            field(7, b"fd00::/112"),
        ]
        .concat();
        let key = field(12, &[field(1, KEYS[1].as_bytes()), field(2, b"YooZ")].concat());
        let metadata = [field(1, b"node-1"), key].concat();
        let protobuf = [field(1, &metadata), field(2, &ranges)].concat();
        let json = serde_json::json!({"metadata": {"name": "node-1", "annotations": {KEYS[1]: "YooZ"}},
            "spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24", "fd00::/112"]}});
        let mut snapshot = Snapshot::default();
        add_node(&mut snapshot, &protobuf, Encoding::Protobuf).unwrap();
        add_node(&mut snapshot, json.to_string().as_bytes(), Encoding::Json).unwrap();
        let exported = export_node(&protobuf, Encoding::Protobuf).unwrap().unwrap();
        add_node(&mut snapshot, &exported, Encoding::Json).unwrap();
        assert_eq!((snapshot.nodes.len(), &snapshot.defects[..]), (3, &[][..]));
        for node in snapshot.nodes.iter().map(|node| &node.value) {
            let ranges: Vec<String> = node.pod_cidrs.iter().map(ToString::to_string).collect();
            assert_eq!(ranges, ["10.2.0.0/24", "fd00::/112"]);
            assert_eq!(node.wireguard_keys, [false, true]);
        }
        let old = br#"{"metadata": {"name": "node-2"}, "spec": {"podCIDR": "10.2.1.0/24"}}"#;
        add_node(&mut snapshot, old, Encoding::Json).unwrap();
        assert_eq!(snapshot.nodes[3].value.pod_cidrs.len(), 1);
    }
}
