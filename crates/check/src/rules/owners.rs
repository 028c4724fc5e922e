//! Addresses used by an owner other than the one recorded, and addresses on the wrong node.

use super::address::{Address, new_finding};
use crate::Context;
use crate::claim::Claim;
use crate::code::Code;
use crate::finding::{AddressEvidence, Finding, RecordEvidence};
use crate::index::{Owner, Record, Use};
use crate::names::short;
use crate::record::{Naming, is_same_node, naming};

/// Checks whether an address in use is recorded for one of its users. One such record is enough.
pub(crate) fn check(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    if address.holding().next().is_none() {
        return;
    }
    let mut on_other_node = None;
    for record in address.holding() {
        for used in address.uses {
            match naming(&record.allocation.attribute, used.owner, &context.index) {
                Some(Naming::Whole) => return,
                Some(Naming::OnOtherNode) => on_other_node = Some((record, used.owner)),
                None => {}
            }
        }
    }
    if let Some((record, owner)) = on_other_node {
        out.extend(wrong_node(context, address, record, owner));
        return;
    }

    // The user that a young record names may not have appeared yet.
    for record in address.holding() {
        if context.is_young(&record.allocation.attribute) || is_windows_tunnel(context, address, record) {
            return;
        }
    }
    out.push(new_finding(context, Code::OwnerMismatch, address, other_owner));
}

/// Describes the users of an address that is recorded for another owner.
fn other_owner(evidence: &AddressEvidence) -> String {
    let record = evidence.holding().next();
    let recorded_owner = record.map(RecordEvidence::holder).unwrap_or_default();
    let node = record.and_then(|record| record.record.as_ref().get("node"));

    // If the user and the recorded owner have the same name, the node distinguishes them.
    let is_namesake = evidence.owners.iter().any(|user| user.pod == recorded_owner);
    let on_node = match node {
        Some(node) if is_namesake => format!(" on {node}"),
        _ => String::new(),
    };
    format!(
        "is used by {}, but recorded for {recorded_owner}{on_node}",
        evidence.users()
    )
}

/// Reports a pod's record with a different node than the one the pod is running on. If Calico's collector knows the
/// recorded node, it compares the two nodes and considers the address leaked.
pub(super) fn wrong_node(
    context: &Context<'_>,
    address: &Address<'_, '_, '_>,
    record: &Record<'_, '_>,
    owner: Owner,
) -> Option<Finding> {
    let index = &context.index;
    let position = index.pod_of(owner)?;
    let node = context.snapshot.pods[position as usize].value.node();
    let recorded = record.allocation.attribute.get("node")?;
    let is_known = index.node(&recorded.to_string()).is_some();
    if node.is_empty() || !is_known || is_same_node(recorded, node, index) {
        return None;
    }
    let node = node.to_string();
    let finding = new_finding(context, Code::WrongNodeRecorded, address, |evidence| {
        let pod = evidence.owners.iter().find(|owner| !owner.pod.is_empty());
        format!(
            "is used by {} on {}, but recorded on {}, so Calico considers it leaked",
            short(pod.map_or("its pod", |owner| &owner.pod)),
            short(&node),
            short(&evidence.recorded_nodes().next().unwrap_or_default())
        )
    });
    Some(finding.on_nodes([node]))
}

/// Returns true for a Windows node's VXLAN address: an ordinal in its own block that Windows reserves.
fn is_windows_tunnel(context: &Context<'_>, address: &Address<'_, '_, '_>, record: &Record<'_, '_>) -> bool {
    let host = record.block.host();
    let is_tunnel_of_host = |used: &Use| match used.owner {
        Owner::Tunnel(position, _) => {
            host == Some(context.snapshot.nodes[position as usize].value.name.as_str())
        }
        _ => false,
    };
    record.allocation.attribute.is_windows_reserved() && address.uses.iter().any(is_tunnel_of_host)
}

/// Checks whether an address is in another node's block, although it must not be.
pub(crate) fn check_borrowing(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    check_tunnel(context, address, out);
    if context.strict_affinity
        && let Some(Borrowing { record, node, host }) = borrowing(context, address)
    {
        let problem = format!(
            "is allocated on {} from {}, which belongs to {}",
            short(&node),
            record.block.key,
            short(host)
        );
        out.push(new_finding(
            context,
            Code::BorrowedUnderStrictAffinity,
            address,
            |_| problem,
        ));
    }
}

/// An address that a node holds in another node's block.
pub(super) struct Borrowing<'a, 'c, 's> {
    record: &'a Record<'c, 's>,
    node: String,
    /// The owner of the block.
    host: &'s str,
}

/// Returns the first record of an address that strict affinity does not allow where it is, in another node's block;
/// `None` if all are allowed or their nodes are not known.
pub(super) fn borrowing<'a, 'c, 's>(
    context: &Context<'_>,
    address: &Address<'a, 'c, 's>,
) -> Option<Borrowing<'a, 'c, 's>> {
    for record in address.holding() {
        let Some(host) = record.block.host() else {
            continue;
        };
        let Some(node) = node_of(context, address, record) else {
            continue;
        };
        // A live migration leaves a machine's address in the block of its earlier node.
        let is_allowed = host == node || Claim::of(&record.allocation.attribute) == Claim::Machine;
        if !is_allowed {
            return Some(Borrowing { record, node, host });
        }
    }
    None
}

/// Reports a tunnel's address that is only in blocks of other nodes. One finding is enough for an address.
fn check_tunnel(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    for used in address.uses {
        let Owner::Tunnel(position, kind) = used.owner else {
            continue;
        };
        let node = &context.snapshot.nodes[position as usize].value.name;
        let mut hosts = address.containing_blocks().filter_map(|block| block.host());
        let Some(host) = hosts.next() else {
            continue;
        };
        if host == node || hosts.any(|other| other == node) {
            continue;
        }

        let problem = format!(
            "is a tunnel address of {} ({}), but in {}'s block",
            short(node),
            kind.field(),
            short(host)
        );
        let finding = new_finding(context, Code::BorrowedTunnelAddress, address, |_| problem);
        out.push(finding.on_nodes([host]));
        return;
    }
}

/// Returns the recorded node, or else the node of the address's first user; `None` if neither is known.
fn node_of(context: &Context<'_>, address: &Address<'_, '_, '_>, record: &Record<'_, '_>) -> Option<String> {
    if let Some(node) = record.allocation.attribute.get("node") {
        return Some(node.to_string());
    }
    let node = match address.uses.first()?.owner {
        Owner::Tunnel(position, _) => context.snapshot.nodes[position as usize].value.name.clone(),
        owner => context.index.workload(owner)?.node.to_string(),
    };
    if node.is_empty() {
        return None;
    }
    Some(node)
}
