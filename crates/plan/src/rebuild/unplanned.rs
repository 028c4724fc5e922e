//! Findings that a rebuild cannot repair, with advice.

use std::collections::HashSet;

use calipam_check::{Code, Evidence, Finding, OwnerKind, Severity, Subject};
use calipam_model::cidr::is_v4;
use calipam_model::key::Key;

use super::request::Request;
use crate::basis::Basis;
use crate::plan::{Action, Verb};
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

/// Returns `skipped_so_far` and all other findings in scope that the plan does not repair, except informational ones.
pub(super) fn skipped(
    basis: &Basis<'_>,
    request: &Request,
    skipped_so_far: Vec<Skipped>,
    actions: &[Action],
) -> Vec<Skipped> {
    let mut handled: HashSet<(Code, &Subject)> = HashSet::new();
    // An object that the plan deletes has no other faults left.
    let mut deleted: HashSet<&Subject> = HashSet::new();
    for change in actions.iter().flat_map(|action| &action.changes) {
        handled.extend(change.repairs.iter().map(|(code, subject)| (*code, subject)));
        if matches!(
            change.action,
            Verb::DeleteAffinity | Verb::DeleteBlock | Verb::DeleteHandle
        ) {
            deleted.insert(&change.subject);
        }
    }
    for skipped in &skipped_so_far {
        handled.extend(skipped.code.map(|code| (code, &skipped.subject)));
    }

    let mut all_skipped = Vec::new();
    for finding in &basis.report.findings {
        let is_handled = handled.contains(&finding.key_ref()) || deleted.contains(&finding.subject);
        let is_informational = finding.severity >= Severity::Info;
        if is_handled || is_informational || !request.has(finding, &basis.context.index) {
            continue;
        }
        all_skipped.push(skip_unplanned(basis, finding));
    }

    all_skipped.extend(skipped_so_far);
    all_skipped.sort();
    all_skipped.dedup_by(|a, b| a.code.is_some() && (a.code, &a.subject) == (b.code, &b.subject));
    all_skipped
}

/// Skips a finding that the plan leaves, with advice.
fn skip_unplanned(basis: &Basis<'_>, finding: &Finding) -> Skipped {
    let message = finding.message();
    let Some((reason, advice)) = advice(basis, finding) else {
        let detail = format!("{message}; nothing is planned for it");
        let skipped = Skipped::finding(finding, SkipReason::NeedsDecision, detail);
        return skipped.suggesting(SuggestedAction::ListFindings);
    };
    Skipped {
        suggested_action: suggested_action(finding),
        ..Skipped::finding(finding, reason, format!("{message}; {advice}"))
    }
}

/// Returns the reason why a finding stays, and the action that a person has to take. `None` if a rebuild should have
/// repaired the finding.
fn advice(basis: &Basis<'_>, finding: &Finding) -> Option<(SkipReason, &'static str)> {
    let advice = match finding.code {
        Code::DuplicateAddress => "decide which owner keeps it, and recreate the others",
        Code::AddressInSeveralBlocks => "decide which block to keep, and recreate the workloads of the other",
        Code::OverlappingBlocks => {
            "move the workloads of one block elsewhere, and delete that block when it is empty"
        }
        Code::OverlappingPools => "change or delete one of the pools",
        Code::InUseOutsidePools | Code::BlockOutsidePools => {
            "create a pool that contains it, or move its workloads to another pool"
        }
        Code::BorrowedTunnelAddress => {
            "release it and restart calico-node on the tunnel's node, which then takes an address from its own block"
        }
        Code::TunnelAddressMissing => "restart calico-node there, so that it takes an address",
        Code::BorrowedUnderStrictAffinity => "recreate what uses it, or switch strict affinity off",
        Code::UnrecordedAddress => "reserve it with an IPReservation, or restart the pod under Calico",
        Code::SharedLegacyHandle => "recreate the pod, or release the handle's unused addresses",
        Code::AffinityConflict => "delete the affinities of all nodes but one",
        Code::UnexpectedBlockOwner => "find out which node should own the block, and set its owner",
        Code::UnexpectedAffinityType => "delete it unless one of your own tools wrote it",
        Code::HandleCaseCollision => "recreate the pods of one of the handles",
        Code::EndpointOfMissingNode => "recreate the node object, or delete what refers to it",
        Code::EndpointWithoutPod => "delete the endpoint",
        Code::NodeObjectMissing => "restart calico-node there, which creates the object",
        Code::PodWithoutEndpoint | Code::PodAddressDisagreement | Code::EndpointNodeMismatch => {
            "recreate the pod"
        }
        Code::ServiceWithoutAddress => "see why Calico's controller ignores it",
        Code::ServiceAddressExtra => "release the address if nothing uses it",
        Code::PoolOverlapsNodes | Code::PoolOverlapsServices => {
            "move its users to a pool with another range, and disable this one"
        }
        Code::InvalidPoolSelector => "correct the pool's selector",
        Code::PoolNearlyFull => "add a pool",
        Code::NodeWithoutAddresses | Code::PodWithoutAddress => {
            "give the affected nodes a pool or a block that they can use"
        }
        Code::PodsWithoutCalicoIpam => {
            "release what is left over, unless nodes are about to change to Calico IPAM"
        }
        Code::AutoAllocationOff | Code::ConfigurationMismatch => {
            "change the configuration unless it is intended"
        }
        Code::NoClusterInformation => "restart calico-node, which writes the cluster information",
        Code::DatastoreLocked => {
            "if a killed run of calipam left the lock (`calipam undo --list`), undo it; else unlock it with `calicoctl \
             datastore migrate unlock` if no migration is running"
        }
        Code::UndecodableObject => return Some(undecodable(basis, finding)),
        _ => return None,
    };
    let reason = match finding.code {
        Code::DuplicateAddress => SkipReason::DuplicateOwners,
        Code::AddressInSeveralBlocks
        | Code::OverlappingBlocks
        | Code::OverlappingPools
        | Code::PoolOverlapsNodes
        | Code::PoolOverlapsServices => SkipReason::Overlap,
        Code::InUseOutsidePools | Code::BlockOutsidePools => SkipReason::OutsidePools,
        Code::EndpointOfMissingNode => SkipReason::NodeUnknown,
        Code::BorrowedTunnelAddress => side_of_own_block(basis, finding).unwrap_or(SkipReason::NeedsDecision),
        _ => SkipReason::NeedsDecision,
    };
    Some((reason, advice))
}

/// Returns an action that helps with a finding that a rebuild does not repair.
fn suggested_action(finding: &Finding) -> Option<SuggestedAction> {
    match finding.code {
        Code::SharedLegacyHandle => Some(SuggestedAction::ReleaseByName),
        Code::DuplicateAddress | Code::PodWithoutEndpoint | Code::ServiceAddressExtra => {
            finding.remedy().map(SuggestedAction::Remedy)
        }
        Code::NodeWithoutAddresses => match &finding.subject {
            Subject::Node(node) => Some(SuggestedAction::ExplainNode(node.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the reason that tells whether a tunnel address in another node's block is below or above the own block of
/// the tunnel's node.
fn side_of_own_block(basis: &Basis<'_>, finding: &Finding) -> Option<SkipReason> {
    let (Subject::Address(address), Evidence::Address(evidence)) = (&finding.subject, &finding.evidence)
    else {
        return None;
    };
    let tunnel = evidence
        .owners
        .iter()
        .find(|owner| owner.kind == OwnerKind::Tunnel)?;
    let mut blocks = basis.context.index.blocks.iter();
    let own_block = blocks
        .find(|block| block.host() == Some(tunnel.node.as_str()) && is_v4(block.key) == address.is_ipv4())?;
    if *address < own_block.key.network() {
        Some(SkipReason::TunnelAddressTooLow)
    } else {
        Some(SkipReason::TunnelAddressTooHigh)
    }
}

/// Advises about an undecodable object, which has no version that could guard a write.
fn undecodable(basis: &Basis<'_>, finding: &Finding) -> (SkipReason, &'static str) {
    let path = finding.subject.to_string();
    if matches!(basis.undecodable().by_path.get(&*path), Some(Key::Block(_))) {
        return (
            SkipReason::CorruptBeyondRepair,
            "repair the value by hand, or delete it and rebuild the records of its addresses in use",
        );
    }
    (SkipReason::NeedsDecision, "repair or delete it by hand")
}
