//! Plans correct records for addresses in use that have no record, the record of an owner that no longer exists, or a
//! record with a wrong node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_check::index::IndexedBlock;
use calipam_check::is_unnamed;
use calipam_check::owner::{RecordedOwner, UnknownReason};
use calipam_check::{Code, Finding, LeakReason, Subject};
use calipam_model::IpNet;
use calipam_model::cidr::ordinal_of;
use calipam_model::edit::Precondition;
use calipam_model::key::Key;
use calipam_model::names::pod_endpoint_name;
use calipam_model::snapshot::Source;

use super::block_plan::{AddressPlan, RecordEdit};
use super::missing_blocks::MissingBlocks;
use super::networks::Networks;
use super::planner::Planner;
use super::record::{Wanted, sandbox, wanted};
use super::stored::blocks_around;
use crate::basis::handles::{Allocated, clean};
use crate::basis::preconditions::{self, Users};
use crate::plan::{Change, Verb};
use crate::release::may_release::in_corrupt_block;
use crate::skipped::{Refusal, Result, SkipReason};

/// Plans the records of addresses in use.
pub(super) fn plan(planner: &mut Planner<'_, '_>) {
    let unrecorded = planner.findings(Code::UnallocatedInUse);
    let mismatched = planner.findings(Code::OwnerMismatch);
    let sources = Sources {
        networks: networks(planner, unrecorded.iter().chain(&mismatched).copied()),
        users: Users::new(planner.basis.snapshot),
    };

    let mut missing = MissingBlocks::default();
    for finding in unrecorded {
        let Subject::Address(address) = finding.subject else {
            continue;
        };
        if let Err(refusal) = record(planner, &sources, &mut missing, finding, address) {
            missing.hold(planner, address);
            planner.skip(finding, refusal.reason, format!("{address}: {}", refusal.detail));
        }
    }

    missing.plan(planner);

    // The owners of all records are looked up together, in one pass.
    let records: Vec<Result<Allocated>> = mismatched
        .iter()
        .map(|finding| only_record(planner, finding))
        .collect();
    let mut positions: Vec<(IpNet, u32)> = Vec::new();
    for allocated in records.iter().flatten() {
        positions.push((allocated.block, allocated.guard.ordinal));
    }
    let mut owners = planner.basis.context.recorded_owners(&positions).into_iter();

    for (finding, record) in mismatched.into_iter().zip(records) {
        let rewritten = record.and_then(|allocated| {
            let owner = owners
                .next()
                .unwrap_or(RecordedOwner::Unknown(UnknownReason::NotRead));
            rewrite(planner, &sources, finding, allocated, owner)
        });
        if let Err(refusal) = rewritten {
            skip_after_message(planner, finding, &refusal);
        }
    }

    for finding in planner.findings(Code::WrongNodeRecorded) {
        if let Err(refusal) = correct_node(planner, &sources, finding) {
            skip_after_message(planner, finding, &refusal);
        }
    }

    expect_as_read(planner);
}

/// Skips a finding with its message and the reason why nothing is planned for it.
fn skip_after_message(planner: &mut Planner<'_, '_>, finding: &Finding, refusal: &Refusal) {
    let detail = format!("{}; {}", finding.message(), refusal.detail);
    planner.skip(finding, refusal.reason, detail);
}

/// Returns the objects that must be absent when addresses are written.
fn expected_absent(planner: &Planner<'_, '_>) -> BTreeSet<Key> {
    let mut absent: BTreeSet<Key> = BTreeSet::new();
    for block in planner.blocks.values() {
        for (key, expected) in block.addresses.values().flat_map(|planned| &planned.evidence) {
            if *expected == Precondition::Absent {
                absent.insert(key.clone());
            }
        }
    }
    absent
}

/// Expects objects that were read to be unchanged instead of absent. An endpoint may remain after its pod was deleted.
fn expect_as_read(planner: &mut Planner<'_, '_>) {
    let absent = expected_absent(planner);
    if absent.is_empty() {
        return;
    }

    let as_read = preconditions::as_read(planner.basis.snapshot, &absent);
    for block in planner.blocks.values_mut() {
        let addresses = block.addresses.values_mut();
        for (key, expected) in addresses.flat_map(|planned| &mut planned.evidence) {
            if *expected == Precondition::Absent
                && let Some(precondition) = as_read.get(key)
            {
                *expected = precondition.clone();
            }
        }
    }
}

/// The data from which records are made, besides the uses of addresses.
struct Sources<'s> {
    networks: Networks,
    users: Users<'s>,
}

/// Looks up the networks of all users that need a record.
fn networks<'f>(planner: &Planner<'_, '_>, findings: impl Iterator<Item = &'f Finding>) -> Networks {
    let mut containers = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for finding in findings {
        let Subject::Address(address) = finding.subject else {
            continue;
        };
        if let Some((container, node)) = sandbox(planner.basis, planner.index().uses_of(address)) {
            containers.insert(container);
            nodes.insert(node);
        }
    }
    Networks::new(planner.basis, &containers, &nodes)
}

/// Refuses an address that several owners use.
fn check_single_owner(planner: &Planner<'_, '_>, address: IpAddr) -> Result<()> {
    let subject = Subject::Address(address);
    let Some(duplicate) = planner.basis.finding(Code::DuplicateAddress, &subject) else {
        return Ok(());
    };
    let detail = format!("{}; delete all but one of them first", duplicate.message());
    Err(Refusal::new(SkipReason::DuplicateOwners, detail))
}

/// Returns the right record of an address in use.
fn wanted_for(planner: &Planner<'_, '_>, sources: &Sources<'_>, address: IpAddr) -> Result<Wanted> {
    check_single_owner(planner, address)?;
    let wanted = wanted(
        planner.basis,
        &sources.networks,
        &sources.users,
        planner.index().uses_of(address),
    )?;
    if let Some(id) = &wanted.record.handle
        && let Some(refusal) = planner.uncountable.refusal(clean(id))
    {
        return Err(refusal);
    }
    Ok(wanted)
}

/// Records an address that no block records, or that a block records only as cooling down.
fn record(
    planner: &mut Planner<'_, '_>,
    sources: &Sources<'_>,
    missing: &mut MissingBlocks,
    finding: &Finding,
    address: IpAddr,
) -> Result<()> {
    if let Some(refusal) = in_corrupt_block(planner.index(), address) {
        return Err(refusal);
    }

    let wanted = wanted_for(planner, sources, address)?;
    let subject = finding.subject.clone();
    let change = Change::new(Verb::AssignAddress, subject, finding.text(), &[finding.code]);
    let blocks = blocks_around(planner.index(), address);

    let block = match blocks.as_slice() {
        [] => {
            let edit = RecordEdit::Assign(wanted.record);
            return missing.add(
                planner,
                AddressPlan {
                    address,
                    edit,
                    evidence: wanted.evidence,
                    change,
                },
            );
        }
        [block] => *block,
        [first, second, ..] => return Err(in_two_blocks(first, second)),
    };

    if !planner.may_change(block) {
        return Err(Refusal::new(
            SkipReason::NeedsDecision,
            format!("this plan does not rebuild {}", block.key),
        ));
    }
    let Some(ordinal) = ordinal_of(block.key, address) else {
        return Ok(());
    };

    let edit = match block.sound.and_then(|sound| sound.allocation(ordinal)) {
        Some(cooling) => RecordEdit::Rewrite(Allocated::new(block.key, &cooling).guard, wanted.record),
        None => RecordEdit::Assign(wanted.record),
    };

    let planned = AddressPlan {
        address,
        edit,
        evidence: wanted.evidence,
        change,
    };
    planner
        .blocks
        .entry(block.key)
        .or_default()
        .addresses
        .insert(ordinal, planned);
    Ok(())
}

fn in_two_blocks(first: &IndexedBlock<'_>, second: &IndexedBlock<'_>) -> Refusal {
    Refusal::new(
        SkipReason::Overlap,
        format!("it is in {} and in {}, which overlap", first.key, second.key),
    )
}

/// Returns the record of the finding's address if exactly one sound block contains the address.
fn only_record(planner: &Planner<'_, '_>, finding: &Finding) -> Result<Allocated> {
    let not_recorded = || Refusal::new(SkipReason::NotAllocated, "no block records it");
    let address = finding.subject.address().ok_or_else(not_recorded)?;
    let blocks = blocks_around(planner.index(), address);
    if let [block] = blocks.as_slice()
        && let Some(allocation) = block.sound.and_then(|sound| sound.allocation_of(address))
    {
        return Ok(Allocated::new(block.key, &allocation));
    }
    if let Some(refusal) = in_corrupt_block(planner.index(), address) {
        return Err(refusal);
    }
    Err(match blocks.as_slice() {
        [first, second, ..] => in_two_blocks(first, second),
        _ => not_recorded(),
    })
}

/// Rewrites the record of an address for its user, if the recorded owner does not exist.
fn rewrite(
    planner: &mut Planner<'_, '_>,
    sources: &Sources<'_>,
    finding: &Finding,
    held: Allocated,
    owner: RecordedOwner,
) -> Result<()> {
    let index = planner.index();
    let block = index.block(held.block);
    let sound = block.and_then(|block| block.sound);
    let Some(allocation) = sound.and_then(|sound| sound.allocation(held.guard.ordinal)) else {
        return Ok(());
    };

    let claim = Claim::of(&allocation.attribute);
    if claim == Claim::WindowsReserved {
        let detail = "the address is reserved by Windows; recreate whatever uses it";
        return Err(Refusal::new(SkipReason::WindowsReserved, detail));
    }

    let wanted = wanted_for(planner, sources, held.address)?;
    if let Some(refusal) = held.handle().and_then(|id| planner.uncountable.refusal(&id)) {
        return Err(refusal);
    }
    if !is_gone(planner, &owner, &claim) {
        let detail = "the recorded owner could still exist: find out whether that owner or the user keeps the address, \
                      recreate the other, and rebuild again";
        return Err(Refusal::new(SkipReason::OwnerMayLive, detail));
    }

    let mut evidence = wanted.evidence;
    for (key, absent) in absences(planner, &claim) {
        if !evidence.iter().any(|(other, _)| *other == key) {
            evidence.push((key, absent));
        }
    }

    let detail = format!("{}, which is gone", finding.text());
    let change = Change::new(
        Verb::RewriteOwner,
        finding.subject.clone(),
        detail,
        &[finding.code],
    );
    let ordinal = held.guard.ordinal;
    let edit = RecordEdit::Rewrite(held.guard, wanted.record);
    let planned = AddressPlan {
        address: held.address,
        edit,
        evidence,
        change,
    };
    planner
        .blocks
        .entry(held.block)
        .or_default()
        .addresses
        .insert(ordinal, planned);
    Ok(())
}

/// Corrects only the node in a live pod's record.
fn correct_node(planner: &mut Planner<'_, '_>, sources: &Sources<'_>, finding: &Finding) -> Result<()> {
    let held = only_record(planner, finding)?;
    check_single_owner(planner, held.address)?;
    let index = planner.index();
    let mut uses = index.uses_of(held.address).iter();
    let Some(position) = uses.find_map(|used| index.pod_of(used.owner)) else {
        return Err(Refusal::new(SkipReason::OwnerNotFound, "nothing uses it"));
    };
    let pod = &planner.basis.snapshot.pods[position as usize].value;
    let node = index.calico_node(pod.node());
    if !index.node_exists(&node) {
        return Err(Refusal::new(
            SkipReason::NodeUnknown,
            format!("{node}, on which it is running, does not exist in Calico"),
        ));
    }

    let mut record = held.guard.record.as_ref().to_attribute();
    record
        .owner
        .get_or_insert_default()
        .insert("node".to_owned(), node);
    let evidence = vec![(pod.key(), sources.users.pod(position))];
    let subject = finding.subject.clone();
    let change = Change::new(Verb::RewriteOwner, subject, finding.text(), &[finding.code]);
    let ordinal = held.guard.ordinal;
    let block = held.block;
    let address = held.address;
    let planned = AddressPlan {
        address,
        edit: RecordEdit::Rewrite(held.guard, record),
        evidence,
        change,
    };
    let block_plan = planner.blocks.entry(block).or_default();
    block_plan.addresses.insert(ordinal, planned);
    Ok(())
}

/// Returns true if the recorded owner no longer exists. An owner that still exists, but with another address, might
/// return to this address, or release it by its handle.
fn is_gone(planner: &Planner<'_, '_>, owner: &RecordedOwner, claim: &Claim<'_>) -> bool {
    let index = planner.index();
    // A node that endpoints or pods name may exist although its object does not.
    if let Some(node) = claim.node()
        && !index.node_exists(&node)
        && index.workloads_name_node(&node)
    {
        return false;
    }

    match owner {
        // Endpoints name their containers. Pods do so only in an annotation that some of them lack.
        RecordedOwner::Gone(reasons) => {
            !is_unnamed(reasons) || planner.basis.snapshot.has_read(Source::Endpoints)
        }
        RecordedOwner::Elsewhere(reasons) => {
            !reasons.contains(&LeakReason::PodHasOtherAddress) && !reasons.contains(&LeakReason::TunnelMoved)
        }
        _ => false,
    }
}

/// Requires that the recorded owner's node, endpoint or pod still does not exist, if it did not exist when the cluster
/// was read.
fn absences(planner: &Planner<'_, '_>, claim: &Claim<'_>) -> Vec<(Key, Precondition)> {
    let index = planner.index();
    let snapshot = planner.basis.snapshot;
    let node = claim.node();
    let mut absent = Vec::new();
    if let Some(node) = &node
        && !index.node_exists(node)
    {
        absent.push(Key::Node(node.clone()));
    }
    if let Claim::Pod { namespace, pod, .. } = claim {
        let name = pod.to_string();
        if let Some(node) = &node
            && snapshot.has_read(Source::Endpoints)
        {
            absent.push(Key::Endpoint {
                namespace: namespace.to_string(),
                name: pod_endpoint_name(node, &name),
            });
        }
        if snapshot.has_read(Source::Pods) && index.pod(*namespace, *pod).is_none() {
            let namespace = namespace.to_string();
            absent.push(Key::Pod { namespace, name });
        }
    }
    absent
        .into_iter()
        .map(|key| (key, Precondition::Absent))
        .collect()
}
