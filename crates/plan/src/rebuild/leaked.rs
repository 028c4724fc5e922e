//! Releases leaked addresses.

use calipam_check::{Code, Subject};
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
        let edit = RecordEdit::Release(chosen.allocated.held);
        let planned = AddressPlan {
            address,
            edit,
            evidence: preconditions.of(finding),
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

fn choose<'s>(planner: &mut Planner<'_, 's>) -> Choice<'s> {
    let mut choice = Choice::new();
    for finding in planner.findings(Code::LeakedAddress) {
        let held = allocations(planner.basis, finding);
        let uncountable = held
            .iter()
            .filter_map(|held| held.handle())
            .find_map(|id| planner.uncountable.refusal(&id));
        let in_scope = held.iter().all(|held| planner.may_change_at(held.block));
        let address = &finding.subject;
        if let Subject::Address(address) = finding.subject
            && let Some((reason, detail)) = in_corrupt_block(planner.index(), address)
        {
            planner.skip(finding, reason, detail);
        } else if let Some(refusal) = unknown_owner(finding) {
            let (reason, detail) = tunnel_of_calico2(planner, &held).unwrap_or(refusal);
            let skipped = Skipped::finding(finding, reason, detail);
            let suggested_action = finding
                .remedy()
                .map_or(SuggestedAction::ReleaseByName, SuggestedAction::Remedy);
            planner.skipped.push(skipped.suggesting(suggested_action));
        } else if let Some((reason, why)) = uncountable {
            planner.skip(finding, reason, format!("{address}: {why}"));
        } else if !in_scope {
            let detail = format!("{address} is also recorded in a block that this plan does not rebuild");
            planner.skip(finding, SkipReason::Overlap, detail);
        } else if let Some((reason, detail)) = too_early(planner.basis, finding, &held) {
            if held
                .iter()
                .any(|held| planner.corrupt.blocks.contains_key(&held.block))
            {
                // No earlier read could have seen the address in the repaired block.
                let detail = format!(
                    "{}: its block is repaired first; then rebuild again",
                    finding.message()
                );
                planner.skip(finding, SkipReason::Unchecked, detail);
            } else {
                planner.skip(finding, reason, detail);
            }
        } else {
            for allocated in held {
                let record = (allocated.block, allocated.held.ordinal);
                choice.insert(
                    record,
                    Chosen {
                        allocated,
                        finding: Some(finding),
                    },
                );
            }
        }
    }

    whole_handles(planner, &mut choice);
    choice
}

/// Explains why an address that a Calico 2.x host holds without a handle, as for its tunnel, is unused: the host does
/// not exist, or its tunnel has no address in the block.
fn tunnel_of_calico2(planner: &Planner<'_, '_>, held: &[Allocated]) -> Option<Refusal> {
    if planner.basis.snapshot.datastore != DatastoreKind::EtcdV2 {
        return None;
    }
    let [Allocated { block, address, held }] = held else {
        return None;
    };

    let record = held.record.as_ref();
    let is_anonymous = record.handle().is_none() && record.owner().is_empty();
    let host = planner.index().block(*block)?.host().filter(|_| is_anonymous)?;
    let about = format!("{address} is held without a handle, like the tunnel address of {host},");
    let Some(node) = planner.index().node(host) else {
        return Some((
            SkipReason::NodeUnknown,
            format!("{about} but there is no host {host}"),
        ));
    };

    let tunnels = node.tunnels.iter().map(|(_, address)| *address);
    let Some(tunnel) = tunnels
        .filter(|tunnel| tunnel.is_ipv4() == address.is_ipv4())
        .min()
    else {
        let detail = format!("{about} whose IpInIpTunnelAddr is not set");
        return Some((SkipReason::TunnelAddressNotSet, detail));
    };

    let reason = match tunnel {
        tunnel if block.contains(&tunnel) => return None,
        tunnel if tunnel < block.network() => SkipReason::TunnelAddressTooLow,
        _ => SkipReason::TunnelAddressTooHigh,
    };
    Some((
        reason,
        format!("{about} whose IpInIpTunnelAddr is {tunnel}, outside the block {block}"),
    ))
}

/// Keeps the addresses of handles that cannot be released completely. An address that gets another owner counts as
/// released from its handle.
fn whole_handles<'s>(planner: &mut Planner<'_, 's>, choice: &mut Choice<'s>) {
    let leaves = |id: &str, (block, ordinal): (IpNet, u32)| {
        let planned = planner
            .blocks
            .get(&block)
            .and_then(|planned| planned.addresses.get(&ordinal));
        planned.is_some_and(|planned| planned.edit.handles()[1].as_deref() != Some(id))
    };
    let in_scope = |held: &Allocated| planner.may_change_at(held.block);
    let (_, skipped) = keep_whole_handles(planner.basis, choice, |_| false, leaves, in_scope);
    planner.skipped.extend(skipped);
}
