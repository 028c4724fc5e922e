//! Building evidence, and naming things in messages.

use std::collections::BTreeMap;

use calipam_model::attributes::OwnerMap;

use super::addresses::{Address, Record};
use crate::Context;
use crate::finding::{AddressEvidence, OwnerEvidence, OwnerField, OwnerKind, RecordEvidence};
use crate::index::{Index, Owner, Use};
use crate::record::Claim;

/// All that is known about an address.
pub(crate) fn of_address(context: &Context<'_>, address: &Address<'_, '_, '_>) -> AddressEvidence {
    let mut owners: Vec<OwnerEvidence> = address.uses.iter().map(|u| of_owner(&context.index, u)).collect();
    owners.sort();
    AddressEvidence {
        reasons: Vec::new(),
        pool: context.index.pools_around(address.address.into()).next().map(|p| p.name.clone()),
        owners,
        records: address.records.iter().map(of_record).collect(),
    }
}

/// Who uses an address.
pub(crate) fn of_owner(index: &Index<'_>, used: &Use) -> OwnerEvidence {
    match used.owner {
        Owner::Endpoint(position) => of_endpoint(index, position),
        Owner::Pod(position) => of_pod(index, position),
        Owner::Service(position) => {
            let service = index.service(position);
            OwnerEvidence {
                fields: service.ingress.iter().copied().map(OwnerField::Address).collect(),
                ..OwnerEvidence::new(OwnerKind::Service, format!("{}/{}", service.namespace, service.name))
            }
        }
        Owner::Tunnel(position, kind) => {
            let node = index.snapshot.nodes[position as usize].value.name.clone();
            let fields = vec![OwnerField::Tunnel(kind)];
            OwnerEvidence { node: node.clone(), fields, ..OwnerEvidence::new(OwnerKind::Tunnel, node) }
        }
    }
}

/// An endpoint and its addresses.
pub(crate) fn of_endpoint(index: &Index<'_>, position: u32) -> OwnerEvidence {
    let endpoint = index.endpoint(position);
    let namespace = endpoint.namespace();
    let pod = endpoint.pod();
    OwnerEvidence {
        kind: OwnerKind::Endpoint,
        name: format!("{namespace}/{}", endpoint.name()),
        node: endpoint.node().to_string(),
        pod: if pod.is_empty() { String::new() } else { format!("{namespace}/{pod}") },
        container_id: endpoint.container_id().to_string(),
        fields: endpoint.addresses().map(OwnerField::Address).collect(),
        finished_at: None,
        pod_state: None,
    }
}

/// A pod, its addresses and the evidence that names them.
pub(crate) fn of_pod(index: &Index<'_>, position: u32) -> OwnerEvidence {
    let pod = &index.snapshot.pods[position as usize].value;
    let name = format!("{}/{}", pod.namespace(), pod.name());
    OwnerEvidence {
        kind: OwnerKind::Pod,
        name: name.clone(),
        node: pod.node().to_string(),
        pod: name,
        container_id: pod.container_id().to_string(),
        finished_at: pod.finished_at,
        pod_state: None,
        fields: pod.evidence().iter().map(|(address, _)| OwnerField::Address(*address)).collect(),
    }
}

/// What a block records about an address.
pub(crate) fn of_record(record: &Record<'_, '_>) -> RecordEvidence {
    let attribute = record.allocation.attribute;
    let map = |m: OwnerMap<'_>| -> BTreeMap<String, String> {
        m.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    RecordEvidence {
        block: record.block.key,
        block_owner: record.block.owner.cloned(),
        ordinal: record.allocation.ordinal,
        handle: attribute.handle().map(|h| h.to_string()),
        attributes: map(attribute.owner()),
        alternate_attributes: attribute.alternate().map(map).unwrap_or_default(),
        released_at: attribute.released_at().map(|t| t.to_string()),
        sequence_number: record.allocation.sequence,
    }
}

/// How a message names an owner: `default/web-0 (node-1)` or `a tunnel of node-1`.
pub(crate) fn name_of_owner(owner: &OwnerEvidence) -> String {
    let on_node =
        |name: &str| if owner.node.is_empty() { name.to_owned() } else { format!("{name} ({})", owner.node) };
    match owner.kind {
        OwnerKind::Tunnel => format!("a tunnel of {}", owner.node),
        OwnerKind::Service => format!("service {}", owner.name),
        OwnerKind::Endpoint | OwnerKind::Pod if owner.pod.is_empty() => on_node(&owner.name),
        OwnerKind::Endpoint | OwnerKind::Pod => on_node(&owner.pod),
    }
}

/// How a message names the owners: `a and b`.
pub(crate) fn names_of_owners(owners: &[OwnerEvidence]) -> String {
    let mut names: Vec<String> = owners.iter().map(name_of_owner).collect();
    names.dedup();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "nobody".to_owned(),
    }
}

/// How a message names the one whose address a record says it is.
pub(crate) fn name_of_claim(record: &Record<'_, '_>) -> String {
    let attribute = record.allocation.attribute;
    let handle = || attribute.clean_handle().map(|h| h.to_string()).unwrap_or_default();
    match Claim::of(&attribute) {
        Claim::Cooling => "nobody, it is cooling".to_owned(),
        Claim::WindowsReserved => "Windows".to_owned(),
        Claim::Anonymous => "nobody in particular".to_owned(),
        Claim::Tunnel { node, .. } => format!("a tunnel of {node}"),
        Claim::Pod { namespace, pod, .. } => format!("{namespace}/{pod}"),
        Claim::LegacyPod { namespace, pod } => format!("{namespace}/{pod}"),
        Claim::Container(id) => format!("container {id}"),
        Claim::Service => match (attribute.get("namespace"), attribute.get("service")) {
            (Some(namespace), Some(service)) => format!("service {namespace}/{service}"),
            _ => format!("the service of {}", handle()),
        },
        Claim::Machine => match (attribute.get("namespace"), attribute.get("vmi-name")) {
            (Some(namespace), Some(machine)) => format!("virtual machine {namespace}/{machine}"),
            _ => format!("the virtual machine of {}", handle()),
        },
        Claim::Unknown => format!("handle {}", handle()),
    }
}

/// The nodes that an address concerns: those of its users, of its records and of its blocks.
pub(crate) fn nodes_of(evidence: &AddressEvidence) -> Vec<String> {
    let owners = evidence.owners.iter().map(|o| o.node.as_str());
    let blocks = evidence.records.iter().filter_map(|r| r.block_owner.as_ref()?.host());
    owners
        .chain(evidence.recorded_nodes())
        .chain(blocks)
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect()
}
