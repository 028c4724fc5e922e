//! Building evidence, and naming things in messages.

use std::collections::HashMap;
use std::sync::Arc;

use calipam_model::text::TextRef;

use super::addresses::{Address, Record};
use crate::Context;
use crate::finding::{AddressEvidence, LISTED_FIELDS, OwnerEvidence, OwnerField, OwnerKind, RecordEvidence};
use crate::index::{Index, Owner, Use};
use crate::record::Claim;

/// Characters of a container ID that a finding shows. A real one has 64; the annotation of a pod may say anything.
const LONGEST_ID: usize = 256;

/// All that is known about an address.
pub(crate) fn of_address(context: &Context<'_>, address: &Address<'_, '_, '_>) -> AddressEvidence {
    AddressEvidence {
        reasons: Vec::new(),
        pool: context.index.pools_around(address.address.into()).next().map(|p| p.name.clone()),
        owners: of_owners(&context.index, address.uses),
        records: address.records.iter().map(of_record).collect(),
        last_in_use: None,
    }
}

/// Who uses an address, in the order of their names.
pub(crate) fn of_owners(index: &Index<'_>, uses: &[Use]) -> Vec<Arc<OwnerEvidence>> {
    let mut owners: Vec<Arc<OwnerEvidence>> = uses.iter().map(|used| of_owner(index, used.owner)).collect();
    owners.sort();
    owners
}

/// An owner, with its first addresses.
pub(crate) fn of_owner(index: &Index<'_>, owner: Owner) -> Arc<OwnerEvidence> {
    index.large_owners.get(&owner).cloned().unwrap_or_else(|| Arc::new(describe(index, owner)))
}

/// The owners that have more addresses than are listed: they are described once.
pub(crate) fn large_owners(index: &Index<'_>) -> HashMap<Owner, Arc<OwnerEvidence>> {
    let snapshot = index.snapshot;
    let is_large = |count: usize| count > LISTED_FIELDS;
    let endpoints = (0..).zip(&snapshot.endpoints).filter(|(_, e)| is_large(e.value.address_count()));
    let pods = (0..).zip(&snapshot.pods).filter(|(_, pod)| is_large(pod.value.evidence().len()));
    let services = (0..).zip(&snapshot.services).filter(|(_, s)| is_large(s.value.ingress.len()));

    let owners = endpoints.map(|(position, _)| Owner::Endpoint(position));
    let owners = owners.chain(pods.map(|(position, _)| Owner::Pod(position)));
    let owners = owners.chain(services.map(|(position, _)| Owner::Service(position)));
    owners.map(|owner| (owner, Arc::new(describe(index, owner)))).collect()
}

fn describe(index: &Index<'_>, owner: Owner) -> OwnerEvidence {
    match owner {
        Owner::Endpoint(position) => endpoint(index, position, LISTED_FIELDS),
        Owner::Pod(position) => pod(index, position, LISTED_FIELDS),
        Owner::Service(position) => {
            let service = index.service(position);
            let ingress = &service.ingress;
            OwnerEvidence::new(OwnerKind::Service, format!("{}/{}", service.namespace, service.name)).naming(
                ingress.iter().copied(),
                ingress.len(),
                LISTED_FIELDS,
            )
        }
        Owner::Tunnel(position, kind) => {
            let node = index.snapshot.nodes[position as usize].value.name.clone();
            let fields = vec![OwnerField::Tunnel(kind)];
            OwnerEvidence { node: node.clone(), fields, ..OwnerEvidence::new(OwnerKind::Tunnel, node) }
        }
    }
}

/// An endpoint with all its addresses.
pub(crate) fn of_endpoint(index: &Index<'_>, position: u32) -> OwnerEvidence {
    endpoint(index, position, usize::MAX)
}

fn endpoint(index: &Index<'_>, position: u32, most: usize) -> OwnerEvidence {
    let endpoint = index.endpoint(position);
    let namespace = endpoint.namespace();
    let pod = endpoint.pod();
    let evidence = OwnerEvidence {
        node: endpoint.node().to_string(),
        pod: if pod.is_empty() { String::new() } else { format!("{namespace}/{pod}") },
        container_id: container_id(endpoint.container_id()),
        ..OwnerEvidence::new(OwnerKind::Endpoint, format!("{namespace}/{}", endpoint.name()))
    };
    evidence.naming(endpoint.addresses(), endpoint.address_count(), most)
}

/// A pod with all addresses that any evidence names.
pub(crate) fn of_pod(index: &Index<'_>, position: u32) -> OwnerEvidence {
    pod(index, position, usize::MAX)
}

fn pod(index: &Index<'_>, position: u32, most: usize) -> OwnerEvidence {
    let pod = &index.snapshot.pods[position as usize].value;
    let name = format!("{}/{}", pod.namespace(), pod.name());
    let evidence = OwnerEvidence {
        node: pod.node().to_string(),
        pod: name.clone(),
        container_id: container_id(pod.container_id()),
        finished_at: pod.finished_at,
        ..OwnerEvidence::new(OwnerKind::Pod, name)
    };
    let named = pod.evidence();
    evidence.naming(named.iter().map(|(address, _)| *address), named.len(), most)
}

fn container_id(id: TextRef<'_>) -> String {
    let mut id = id.to_string();
    if let Some((end, _)) = id.char_indices().nth(LONGEST_ID) {
        id.truncate(end);
        id.push('…');
    }
    id
}

/// What a block records about an address.
pub(crate) fn of_record(record: &Record<'_, '_>) -> RecordEvidence {
    RecordEvidence {
        block: record.block.key,
        block_owner: record.block.owner.cloned(),
        ordinal: record.allocation.ordinal,
        record: record.allocation.attribute.to_packed(),
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
pub(crate) fn names_of_owners(owners: &[Arc<OwnerEvidence>]) -> String {
    let mut names: Vec<String> = owners.iter().map(|owner| name_of_owner(owner)).collect();
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
        Claim::Anonymous => "an owner that is not recorded".to_owned(),
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
        Claim::Foreign { handle } => format!("handle {handle}"),
        Claim::Unknown => format!("handle {}", handle()),
    }
}

/// The nodes that an address concerns: those of its users, of its records and of its blocks.
pub(crate) fn nodes_of(evidence: &AddressEvidence) -> Vec<String> {
    let owners = evidence.owners.iter().map(|o| o.node.clone());
    let blocks = evidence.records.iter().filter_map(|r| r.block_owner.as_ref()?.host()).map(str::to_owned);
    owners.chain(evidence.recorded_nodes()).chain(blocks).filter(|n| !n.is_empty()).collect()
}
