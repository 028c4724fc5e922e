//! Addresses in use by another than the one recorded, and addresses on the wrong node.

use calipam_model::block::BlockOwner;

use super::addresses::Address;
use super::in_use::finding;
use crate::Context;
use crate::claim::Claim;
use crate::code::Code;
use crate::finding::Finding;
use crate::index::{Owner, Use};
use crate::message::{name_of_claim, names_of_owners, short};
use crate::record::{Record, names_owner};

/// Judges whether an address in use is recorded for one of its users. All its records are looked at
/// together; one that names a user clears the address.
pub(crate) fn judge(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    let named = |r: &Record<'_, '_>| {
        address.uses.iter().any(|used| names_owner(&r.allocation.attribute, used.owner, &context.index))
    };
    let Some(first) = address.holding().next() else { return };
    let is_right = |r: &Record<'_, '_>| named(r) || is_windows_tunnel(context, address, r);
    if address.holding().any(|r| is_right(r) || context.is_young(&r.allocation.attribute)) {
        return;
    }
    let evidence = address.evidence(context);
    let says =
        format!("used by {}, but recorded for {}", names_of_owners(&evidence.owners), name_of_claim(first));
    out.push(finding(context, Code::OwnerMismatch, address, evidence, &says));
}

/// True for the VXLAN address of a Windows node: an ordinal of its own block that Windows reserves.
fn is_windows_tunnel(context: &Context<'_>, address: &Address<'_, '_, '_>, record: &Record<'_, '_>) -> bool {
    let host = record.block.owner.and_then(BlockOwner::host);
    let is_hosts = |used: &Use| {
        matches!(used.owner, Owner::Tunnel(position, _)
            if host == Some(context.snapshot.nodes[position as usize].value.name.as_str()))
    };
    record.allocation.attribute.is_windows_reserved() && address.uses.iter().any(is_hosts)
}

/// Judges whether an address lies in a block of another node where it must not.
pub(crate) fn judge_borrowing(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    judge_tunnel(context, address, out);
    if !context.strict_affinity {
        return;
    }
    for record in address.holding() {
        let (Some(BlockOwner::Host(host)), Some(node)) =
            (record.block.owner, node_of(context, address, record))
        else {
            continue;
        };
        // A live migration leaves the address of a machine in the block of the node on which it was.
        if *host != node && Claim::of(&record.allocation.attribute) != Claim::Machine {
            let says =
                format!("held on {} in {}, a block of {}", short(&node), record.block.key, short(host));
            let evidence = address.evidence(context);
            out.push(finding(context, Code::BorrowedUnderStrictAffinity, address, evidence, &says));
            return;
        }
    }
}

fn judge_tunnel(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    for used in address.uses {
        let Owner::Tunnel(position, kind) = used.owner else { continue };
        let node = &context.snapshot.nodes[position as usize].value.name;
        let hosts = || address.containing_blocks().filter_map(|b| b.owner?.host());
        if let Some(host) = hosts().next()
            && hosts().all(|host| host != node)
        {
            let says = format!(
                "a tunnel address of {} ({}) in a block of {}",
                short(node),
                kind.field(),
                short(host)
            );
            let evidence = address.evidence(context);
            out.push(
                finding(context, Code::BorrowedTunnelAddress, address, evidence, &says).on_nodes([host]),
            );
            return;
        }
    }
}

/// The node of the owner: as recorded, else that of the one who uses the address.
fn node_of(context: &Context<'_>, address: &Address<'_, '_, '_>, record: &Record<'_, '_>) -> Option<String> {
    if let Some(node) = record.allocation.attribute.get("node") {
        return Some(node.to_string());
    }
    let node = match address.uses.first()?.owner {
        Owner::Tunnel(position, _) => context.snapshot.nodes[position as usize].value.name.clone(),
        owner => context.index.workload(owner)?.node.to_string(),
    };
    (!node.is_empty()).then_some(node)
}
