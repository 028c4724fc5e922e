//! Nodes of Kubernetes, whose annotations hold what Calico keeps about them (facts 2.11).

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::cidr::parse_address;
use calipam_model::key::Key;
use calipam_model::node::{Node, TunnelKind};
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};
use serde::{Deserialize, Serialize};

use super::ObjectError;
use super::list_splitter::Encoding;
use super::meta::{Meta, Wanted, identify};
use super::wire::each;
use super::{export, note_fields, note_value, path};

const IPIP: &str = "projectcalico.org/IPv4IPIPTunnelAddr";
const VXLAN: &str = "projectcalico.org/IPv4VXLANTunnelAddr";
const VXLAN_V6: &str = "projectcalico.org/IPv6VXLANTunnelAddr";
const WIREGUARD: &str = "projectcalico.org/IPv4WireguardInterfaceAddr";
const WIREGUARD_V6: &str = "projectcalico.org/IPv6WireguardInterfaceAddr";
/// Labels that Calico adds to those of Kubernetes: a JSON object.
const LABELS: &str = "projectcalico.org/labels";

/// The annotations in the order of [`TunnelKind::ALL`].
const TUNNELS: [&str; 5] = [IPIP, VXLAN, VXLAN_V6, WIREGUARD, WIREGUARD_V6];

const WANTED: Wanted = Wanted {
    labels: true,
    annotations: &[IPIP, VXLAN, VXLAN_V6, WIREGUARD, WIREGUARD_V6, LABELS],
    owners: false,
};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct NodeObject<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

pub(crate) fn add_node(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) {
    match read(object, encoding) {
        Ok(node) => add(snapshot, &node.metadata),
        Err(error) => {
            let (_, name) = identify(object, encoding);
            note_value(snapshot, path("nodes", "", &name), Some(Key::Node(name)), &error);
        }
    }
}

/// Adds a node of which the name alone is of interest, since etcd holds the rest.
pub(crate) fn add_node_name(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) {
    if let Ok(node) = read(object, encoding) {
        let name = node.metadata.name.to_string();
        let value = Node { kubernetes_name: Some(name.clone()), name, ..Node::default() };
        snapshot.nodes.push(Versioned { value, revision: node.metadata.revision() });
    }
}

/// What an export keeps of a node.
pub(crate) fn export_node(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>, ObjectError> {
    let metadata = read(object, encoding)?.metadata.for_export(WANTED);
    export("Node", NodeObject { metadata })
}

fn read(object: &[u8], encoding: Encoding) -> Result<NodeObject<'_>, ObjectError> {
    if encoding == Encoding::Json {
        return Ok(serde_json::from_slice(object)?);
    }
    let mut node = NodeObject::default();
    each(object, |field, value| {
        if field == 1 {
            node.metadata = Meta::from_protobuf(value.bytes(), WANTED)?;
        }
        Ok(())
    })?;
    Ok(node)
}

fn add(snapshot: &mut Snapshot, meta: &Meta<'_>) {
    let name = meta.name.to_string();
    let mut defects = Vec::new();
    let mut node = Node { kubernetes_name: Some(name.clone()), name: name.clone(), ..Node::default() };
    node.labels = labels(meta, &mut defects);
    for (kind, annotation) in TunnelKind::ALL.into_iter().zip(TUNNELS) {
        let Some(text) = meta.annotation(annotation).filter(|text| !text.is_empty()) else { continue };
        let v6 = matches!(kind, TunnelKind::VxlanV6 | TunnelKind::WireguardV6);
        match parse_address(text).filter(|address| matches!(address, IpAddr::V6(_)) == v6) {
            Some(address) => node.tunnels.push((kind, address)),
            None => {
                let family = if v6 { "IPv6" } else { "IPv4" };
                let reason = format!("annotation {annotation}: {text:?} is not an {family} address");
                defects.push(FieldDefect::new(kind.field(), reason));
            }
        }
    }
    note_fields(snapshot, path("nodes", "", &name), Key::Node(name), defects);
    snapshot.newest_creation = snapshot.newest_creation.max(meta.created_at());
    snapshot.nodes.push(Versioned { value: node, revision: meta.revision() });
}

/// Labels of Kubernetes win over those that Calico keeps.
fn labels(meta: &Meta<'_>, defects: &mut Vec<FieldDefect>) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = match meta.annotation(LABELS).map(serde_json::from_str) {
        None => BTreeMap::new(),
        Some(Ok(labels)) => labels,
        Some(Err(error)) => {
            defects.push(FieldDefect::new(LABELS, format!("no JSON object of strings: {error}")));
            BTreeMap::new()
        }
    };
    labels.extend(meta.labels.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    labels
}
