//! Releases leaked addresses.

use calipam_check::{Code, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::snapshot::DatastoreKind;

use super::block_plan::{AddressPlan, RecordEdit};
use super::planner::Planner;
use crate::basis::handles::Allocated;
use crate::basis::preconditions::Preconditions;
use crate::release::may_release::{
    Choice, Chosen, allocations, in_corrupt_block, keep_whole_handles, too_early, unknown_owner,
};
use crate::skipped::{Refusal, SkipReason, Skipped, SuggestedAction};

/// Plans the release of every leaked address that may be released.
pub(super) fn plan(planner: &mut Planner<'_, '_>) {
    let choice = choose(planner);
    let findings = choice.values().filter_map(|chosen| chosen.finding);
    let preconditions = Preconditions::new(planner.basis.snapshot, findings);
    for ((block, ordinal), chosen) in choice {
        let Some(finding) = chosen.finding else { continue };
        let address = chosen.allocated.address;
        let change = chosen.change();
        let edit = RecordEdit::Release(chosen.allocated.guard);
        let planned = AddressPlan {
            address,
            edit,
            evidence: preconditions.of_finding(finding),
            change,
        };
        planner
            .blocks
            .entry(block)
            .or_default()
            .addresses
            .insert(ordinal, planned);
    }
}

/// Chooses the leaked addresses to release, and skips the others.
fn choose<'s>(planner: &mut Planner<'_, 's>) -> Choice<'s> {
    let mut choice = Choice::new();
    for finding in planner.findings(Code::LeakedAddress) {
        let held = allocations(planner.basis, finding);
        if let Some(skipped) = why_kept(planner, finding, &held) {
            planner.skipped.push(skipped);
            continue;
        }

        for allocated in held {
            let record = (allocated.block, allocated.guard.ordinal);
            let finding = Some(finding);
            choice.insert(record, Chosen { allocated, finding });
        }
    }

    keep_handles_whole(planner, &mut choice);
    choice
}

/// Returns a finding as skipped if the plan cannot count the handle of its address, or leaves one of its blocks alone.
fn why_not_writable(planner: &Planner<'_, '_>, finding: &Finding, held: &[Allocated]) -> Option<Skipped> {
    let address = &finding.subject;
    let mut handles = held.iter().filter_map(Allocated::handle);
    if let Some(refusal) = handles.find_map(|id| planner.uncountable.refusal(&id)) {
        let detail = format!("{address}: {}", refusal.detail);
        return Some(Skipped::finding(finding, refusal.reason, detail));
    }

    let is_in_scope = |allocated: &Allocated| planner.may_change_at(allocated.block);
    if held.iter().all(is_in_scope) {
        return None;
    }
    let detail = format!("{address} is also recorded in a block that this plan does not rebuild");
    Some(Skipped::finding(finding, SkipReason::Overlap, detail))
}

/// Returns a finding as skipped if its addresses stay allocated, whatever else their handles hold.
fn why_kept(planner: &Planner<'_, '_>, finding: &Finding, held: &[Allocated]) -> Option<Skipped> {
    if let Subject::Address(address) = finding.subject
        && let Some(refusal) = in_corrupt_block(planner.index(), address)
    {
        return Some(Skipped::refused(finding, refusal));
    }

    if let Some(refusal) = unknown_owner(finding) {
        let refusal = tunnel_of_calico2(planner, held).unwrap_or(refusal);
        let suggested_action = finding
            .remedy()
            .map_or(SuggestedAction::ReleaseByName, SuggestedAction::Remedy);
        return Some(Skipped::refused(finding, refusal).suggesting(suggested_action));
    }

    let not_writable = why_not_writable(planner, finding, held);
    if not_writable.is_some() {
        return not_writable;
    }

    let refusal = too_early(planner.basis, finding, held)?;
    let mut blocks = held.iter().map(|allocated| allocated.block);
    if !blocks.any(|block| planner.corrupt.blocks.contains_key(&block)) {
        return Some(Skipped::refused(finding, refusal));
    }
    // No earlier read could have seen the address in the repaired block.
    let detail = format!(
        "{}: its block is repaired first; then rebuild again",
        finding.message()
    );
    Some(Skipped::finding(finding, SkipReason::Unchecked, detail))
}

/// Explains why an address that a Calico 2.x host holds without a handle, as for its tunnel, is unused: the host does
/// not exist, or its tunnel has no address in the block.
fn tunnel_of_calico2(planner: &Planner<'_, '_>, held: &[Allocated]) -> Option<Refusal> {
    if planner.basis.snapshot.datastore != DatastoreKind::EtcdV2 {
        return None;
    }
    let [
        Allocated {
            block,
            address,
            guard,
        },
    ] = held
    else {
        return None;
    };

    // The host of such an address is known only from its block.
    let record = guard.record.as_ref();
    let is_anonymous = record.handle().is_none() && record.owner().is_empty();
    let host = planner.index().block(*block)?.host().filter(|_| is_anonymous)?;
    let about = format!("{address} is held without a handle, like the tunnel address of {host},");
    let Some(node) = planner.index().node(host) else {
        let detail = format!("{about} but there is no host {host}");
        return Some(Refusal::new(SkipReason::NodeUnknown, detail));
    };

    let tunnels = node.tunnels.iter().map(|(_, tunnel)| *tunnel);
    let of_family = tunnels.filter(|tunnel| tunnel.is_ipv4() == address.is_ipv4());
    let Some(tunnel) = of_family.min() else {
        let detail = format!("{about} whose IpInIpTunnelAddr is not set");
        return Some(Refusal::new(SkipReason::TunnelAddressNotSet, detail));
    };
    if block.contains(&tunnel) {
        return None;
    }

    let reason = if tunnel < block.network() {
        SkipReason::TunnelAddressTooLow
    } else {
        SkipReason::TunnelAddressTooHigh
    };
    let detail = format!("{about} whose IpInIpTunnelAddr is {tunnel}, outside the block {block}");
    Some(Refusal::new(reason, detail))
}

/// Keeps the addresses of handles that cannot be released completely. An address that gets another owner counts as
/// released from its handle.
fn keep_handles_whole<'s>(planner: &mut Planner<'_, 's>, choice: &mut Choice<'s>) {
    let leaves_handle = |id: &str, (block, ordinal): (IpNet, u32)| {
        let planned_block = planner.blocks.get(&block);
        let planned = planned_block.and_then(|planned| planned.addresses.get(&ordinal));
        planned.is_some_and(|planned| planned.edit.handles()[1].as_deref() != Some(id))
    };
    let insists = |_| false;
    let in_scope = |allocated: &Allocated| planner.may_change_at(allocated.block);
    let (_, skipped) = keep_whole_handles(planner.basis, choice, insists, leaves_handle, in_scope);
    planner.skipped.extend(skipped);
}
