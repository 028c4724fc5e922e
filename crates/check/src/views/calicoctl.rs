//! The counts and lists of `calicoctl ipam check`, based on calipam's findings.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::block::{Allocation, Block, BlockOwner};
use calipam_model::names::pod_endpoint_name;
use calipam_model::snapshot::{Revision, Snapshot, Source};
use calipam_model::words::joined;
use serde::{Serialize, Serializer};

use crate::index::Owner;
use crate::{Code, Context, Options, Report};

/// The number of bytes of a UID.
const UID_BYTES: usize = 16;
/// The positions of the bytes that contain a UID's version and variant.
const VERSION_AND_VARIANT: [usize; 2] = [6, 8];
/// The positions of the bytes before which a UID has a dash.
const AFTER_DASHES: [usize; 4] = [4, 6, 8, 10];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CalicoctlView {
    /// Blocks whose addresses can be read, ascending.
    pub blocks: Vec<CalicoctlBlock>,
    /// CIDRs of pools that are not disabled.
    pub pools: Vec<IpNet>,
    /// Tunnel addresses of all five kinds; calicoctl lists only three kinds.
    pub tunnels: Vec<AddressOwner>,
    /// The number of services that get addresses from Calico; `None` if Calico serves none, or services were not read.
    pub services: Option<usize>,
    /// The addresses of services that get their addresses from Calico.
    pub service_addresses: Vec<AddressOwner>,
    pub workloads: Vec<AddressOwner>,
    /// The number of addresses in use, with those that Windows reserves.
    pub in_use: usize,
    /// The number of handles that something refers to.
    pub good_handles: usize,
    /// Handles that nothing refers to.
    pub leaked_handles: Vec<LeakedHandle>,
}

/// A block with its allocations.
#[derive(Clone, Debug, PartialEq)]
pub struct CalicoctlBlock {
    pub cidr: IpNet,
    pub owner: Option<BlockOwner>,
    pub allocations: Vec<CalicoctlAllocation>,
}

/// An allocated address, as in calicoctl's report file (facts 5.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CalicoctlAllocation {
    #[serde(rename = "ip")]
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    #[serde(rename = "sequenceNumber")]
    pub sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The attribute `timestamp`, verbatim.
    #[serde(rename = "creationTimestamp", skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// True unless calipam finds the address leaked, or it is cooling down and has no owner. Young addresses count as in
    /// use.
    pub in_use: bool,
    /// True if the address's node does not own the block.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub borrowed: bool,
    #[serde(rename = "coolingDown", skip_serializing_if = "std::ops::Not::not")]
    pub cooling: bool,
    #[serde(serialize_with = "null_if_empty")]
    pub owners: Vec<String>,
    /// `Main:<handle> Extra:<attributes> Alternate:<attributes>`, without the last part if it is empty.
    #[serde(skip)]
    pub attributes: String,
}

/// Writes null for an empty list, as Go does.
fn null_if_empty<S: Serializer>(list: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    Some(list).filter(|list| !list.is_empty()).serialize(serializer)
}

/// The user of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressOwner {
    pub address: IpAddr,
    /// The user's name in calicoctl: `Node(<name>)`, `Workload(<namespace>/<endpoint>)`, or a service.
    pub owner: String,
}

/// A handle that nothing refers to, with the field names from calicoctl's report file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakedHandle {
    #[serde(rename = "ID")]
    pub id: String,
    /// The UID as calicoctl shows it; see [`shown_uid`].
    #[serde(rename = "UID")]
    pub uid: Option<String>,
    #[serde(rename = "Revision")]
    pub revision: String,
}

/// Returns calicoctl's counts and lists for a snapshot, based on the findings in the unfiltered `report`.
pub fn calicoctl(snapshot: &Snapshot, report: &Report) -> CalicoctlView {
    let context = Context::new(snapshot, &Options::default());
    let leaked: HashSet<IpAddr> = report.leaked().collect();
    let mut blocks = Vec::new();
    let mut in_use: HashSet<IpAddr> = HashSet::new();
    for indexed in &context.index.blocks {
        let Some(block) = indexed.usable else { continue };
        let mut allocations = Vec::new();
        for allocation in block.allocations() {
            if allocation.attribute.is_windows_reserved() {
                in_use.insert(allocation.address);
            }
            let is_leaked = leaked.contains(&allocation.address);
            allocations.push(describe_allocation(&context, block, &allocation, is_leaked));
        }
        blocks.push(CalicoctlBlock {
            cidr: indexed.key,
            owner: indexed.owner.cloned(),
            allocations,
        });
    }

    let mut tunnels = Vec::new();
    let mut service_addresses = Vec::new();
    let mut workloads = Vec::new();
    for used in &context.index.uses {
        in_use.insert(used.address);
        let owner = AddressOwner {
            address: used.address,
            owner: name_of(&context, used.owner),
        };
        match used.owner {
            Owner::Tunnel(..) => tunnels.push(owner),
            Owner::Service(_) => service_addresses.push(owner),
            Owner::Endpoint(_) | Owner::Pod(_) => workloads.push(owner),
        }
    }
    tunnels.dedup();
    service_addresses.dedup();
    // A pod and its endpoint have the same name, and count as one workload.
    workloads.dedup();

    let mut orphans: HashSet<&str> = HashSet::new();
    for finding in &report.findings {
        if finding.code == Code::OrphanHandle {
            orphans.extend(finding.subject.handle());
        }
    }
    let pools = snapshot.pools.iter().filter(|pool| !pool.value.disabled);
    let mut view = CalicoctlView {
        blocks,
        pools: pools.map(|pool| pool.value.cidr).collect(),
        tunnels,
        services: count_services(snapshot),
        service_addresses,
        workloads,
        in_use: in_use.len(),
        ..CalicoctlView::default()
    };
    for handle in &snapshot.handles {
        let id = handle.value.id().to_string();
        if orphans.contains(id.as_str()) {
            let uid = shown_uid(&handle.revision, snapshot.is_native);
            let revision = handle.revision.to_string();
            view.leaked_handles.push(LeakedHandle { id, uid, revision });
        } else {
            view.good_handles += 1;
        }
    }
    view
}

/// The number of services that get addresses from Calico; `None` if Calico serves none, or services were not read.
fn count_services(snapshot: &Snapshot) -> Option<usize> {
    let controller = snapshot.serves_services()?.ok()?;
    if !snapshot.has_read(Source::Services) {
        return None;
    }
    let services = snapshot.services.iter();
    Some(
        services
            .filter(|service| service.value.is_managed(controller))
            .count(),
    )
}

/// Describes an allocation as `calicoctl ipam check` reports it.
fn describe_allocation(
    context: &Context<'_>,
    block: &Block,
    allocation: &Allocation<'_>,
    is_leaked: bool,
) -> CalicoctlAllocation {
    let address = allocation.address;
    let attribute = &allocation.attribute;
    let value_of = |name: &str| {
        attribute
            .get(name)
            .map(|value| value.to_string())
            .filter(|value| !value.is_empty())
    };
    let host = block.host().unwrap_or_default();
    let node = value_of("node").unwrap_or_else(|| host.to_owned());

    let mut owners: Vec<String> = Vec::new();
    for used in context.index.uses_of(address) {
        owners.push(name_of(context, used.owner));
    }
    owners.dedup();
    let is_windows_reserved = attribute.is_windows_reserved();
    if is_windows_reserved {
        owners.push("Reserved for Windows".to_owned());
    }

    let handle = attribute.handle().map(|handle| handle.to_string());
    CalicoctlAllocation {
        address: address.to_string(),
        attributes: format_attributes(attribute),
        // Addresses that Windows reserves are listed without their handle, so that nothing releases them.
        handle: handle.filter(|handle| !handle.is_empty() && !is_windows_reserved),
        sequence: allocation.sequence,
        pod: value_of("pod"),
        namespace: value_of("namespace"),
        borrowed: node != host,
        node,
        kind: value_of("type"),
        timestamp: value_of("timestamp"),
        cooling: attribute.is_cooling(),
        in_use: !is_leaked && (!attribute.is_cooling() || !owners.is_empty()),
        owners,
    }
}

/// Returns calicoctl's name for an owner. A pod has the name that its endpoint has in etcd.
fn name_of(context: &Context<'_>, owner: Owner) -> String {
    let snapshot = context.snapshot;
    match owner {
        Owner::Tunnel(position, _) => format!("Node({})", snapshot.nodes[position as usize].value.name),
        Owner::Service(position) => context.index.service(position).name.clone(),
        Owner::Endpoint(position) => {
            let endpoint = context.index.endpoint(position);
            format!("Workload({}/{})", endpoint.namespace(), endpoint.name())
        }
        Owner::Pod(position) => {
            let pod = &snapshot.pods[position as usize].value;
            let node = context.index.calico_node(pod.node());
            let name = pod_endpoint_name(&node, &pod.name().to_string());
            format!("Workload({}/{name})", pod.namespace())
        }
    }
}

/// Writes `Main:<handle> Extra:<k=v,k=v> Alternate:<k=v>`, each list ordered by name (facts 7.5).
fn format_attributes(attribute: &AttributeRef<'_>) -> String {
    let handle = match attribute.handle() {
        Some(handle) => handle.to_string(),
        None => "<none>".to_owned(),
    };
    let owner = format_pairs(attribute.owner());
    let alternate = attribute.alternate().map(format_pairs).unwrap_or_default();

    let mut text = format!("Main:{handle} Extra:{owner}");
    if !alternate.is_empty() {
        text.push_str(&format!(" Alternate:{alternate}"));
    }
    text
}

fn format_pairs(owner: OwnerMap<'_>) -> String {
    let pairs = owner.to_map().into_iter();
    joined(pairs.map(|(name, value)| format!("{name}={value}")), ",")
}

/// Returns the UID as calicoctl shows it; `None` if the object is in etcd, or if its UID is not a usual one. In the
/// classic API group, the bits of each byte are reversed, except in the two bytes with version and variant (facts 2.8).
fn shown_uid(revision: &Revision, is_native: bool) -> Option<String> {
    let Revision::Kubernetes(version) = revision else {
        return None;
    };
    if is_native {
        return Some(version.uid.clone());
    }
    let digits = version.uid.replace('-', "");
    let mut shown = String::new();
    for position in 0..UID_BYTES {
        let two_digits = digits.get(2 * position..2 * position + 2)?;
        let byte = u8::from_str_radix(two_digits, 16).ok()?;
        let has_version_or_variant = VERSION_AND_VARIANT.contains(&position);
        let shown_byte = if has_version_or_variant {
            byte
        } else {
            byte.reverse_bits()
        };
        if AFTER_DASHES.contains(&position) {
            shown.push('-');
        }
        shown.push_str(&format!("{shown_byte:02x}"));
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::ObjectVersion;

    use super::*;

    #[test]
    fn uids_are_shown_as_calicoctl_shows_them() {
        let of = |uid: &str| {
            let version = ObjectVersion {
                uid: uid.into(),
                ..ObjectVersion::default()
            };
            Revision::Kubernetes(Box::new(version))
        };
        let (kubectl, calicoctl) = (
            "ded9ba71-f45c-4cb8-9ef0-8844cc22aa66",
            "7b9b5d8e-2f3a-4c1d-9e0f-112233445566",
        );
        assert_eq!(shown_uid(&of(kubectl), false).as_deref(), Some(calicoctl));
        assert_eq!(shown_uid(&of(calicoctl), false).as_deref(), Some(kubectl));
        assert_eq!(shown_uid(&of(kubectl), true).as_deref(), Some(kubectl));
        assert_eq!(shown_uid(&of("no UID"), false), None);
        assert_eq!(shown_uid(&Revision::Etcd(7), false), None);
    }
}
