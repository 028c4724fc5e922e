//! Addresses in use that are not recorded, or recorded for somebody who is gone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::owner::{Doubt, RecordedOwner, is_unnamed};
use calipam_check::record::Claim;
use calipam_check::{Code, Finding, LeakReason, Subject};
use calipam_model::IpNet;
use calipam_model::cidr::ordinal_of;
use calipam_model::edit::Expect;
use calipam_model::key::Key;
use calipam_model::names::endpoint_name;
use calipam_model::snapshot::Source;

use super::desk::{Desk, blocks_around};
use super::draft::{AddressDraft, What};
use super::lost::LostBlocks;
use super::networks::Networks;
use super::record::{Wanted, sandbox, wanted};
use crate::handles::{Allocated, clean};
use crate::plan::{Change, Verb};
use crate::skipped::SkipReason;

/// Drafts the records of addresses in use.
pub(super) fn draft(desk: &mut Desk<'_, '_>) {
    let unrecorded = desk.findings(Code::UnallocatedInUse);
    let mismatched = desk.findings(Code::OwnerMismatch);
    let networks = networks(desk, unrecorded.iter().chain(&mismatched).copied());
    let mut lost = LostBlocks::default();
    for finding in unrecorded {
        let Subject::Address(address) = finding.subject else { continue };
        if let Err((reason, why)) = record(desk, &networks, &mut lost, finding, address) {
            lost.hold(desk, address);
            desk.skip(finding, reason, format!("{address}: {why}"));
        }
    }
    lost.draft(desk);
    let places: Vec<Option<Allocated>> = mismatched.iter().map(|f| only_record(desk, f)).collect();
    let known: Vec<(IpNet, u32)> =
        places.iter().flatten().map(|held| (held.block, held.held.ordinal)).collect();
    let mut owners = desk.basis.context.recorded_owners(&known).into_iter();
    for (finding, held) in mismatched.into_iter().zip(places) {
        let rewritten = match held {
            Some(held) => {
                let owner = owners.next().unwrap_or(RecordedOwner::Unknown(Doubt::NotRead));
                rewrite(desk, &networks, finding, held, owner)
            }
            None => Err((SkipReason::Overlap, "more than one block records it".into())),
        };
        if let Err((reason, why)) = rewritten {
            desk.skip(finding, reason, format!("{}; {why}", finding.message));
        }
    }
    as_read(desk);
}

/// What is expected to be absent may be there all the same, such as an endpoint whose pod is gone: then it
/// has to be the version that was read.
fn as_read(desk: &mut Desk<'_, '_>) {
    let drafts = || desk.drafts.values().flat_map(|draft| draft.addresses.values());
    let absent = drafts().flat_map(|draft| &draft.evidence).filter(|(_, expect)| *expect == Expect::Absent);
    let absent: BTreeSet<Key> = absent.map(|(key, _)| key.clone()).collect();
    if absent.is_empty() {
        return;
    }
    let found = calipam_check::revisions(desk.basis.snapshot, &absent);
    let drafts = desk.drafts.values_mut().flat_map(|draft| draft.addresses.values_mut());
    for (key, expect) in drafts.flat_map(|draft| &mut draft.evidence) {
        if let (Expect::Absent, Some(revision)) = (&*expect, found.get(key)) {
            *expect = Expect::At((*revision).clone());
        }
    }
}

type Refusal = (SkipReason, String);

/// The networks of everybody who needs a record.
fn networks<'f>(desk: &Desk<'_, '_>, findings: impl Iterator<Item = &'f Finding>) -> Networks {
    let (mut containers, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for finding in findings {
        let Subject::Address(address) = finding.subject else { continue };
        if let Some((container, node)) = sandbox(desk.basis, desk.index().uses_of(address)) {
            containers.insert(container);
            nodes.insert(node);
        }
    }
    Networks::new(desk.basis, &containers, &nodes)
}

/// What the record of an address in use should be.
fn wanted_for(desk: &Desk<'_, '_>, networks: &Networks, address: IpAddr) -> Result<Wanted, Refusal> {
    if let Some(twice) = desk.basis.finding(Code::DuplicateAddress, &Subject::Address(address)) {
        let detail = format!("{}; delete all but one of them first", twice.message);
        return Err((SkipReason::DuplicateOwners, detail));
    }
    let wanted = wanted(desk.basis, networks, desk.index().uses_of(address))?;
    let handle = wanted.record.handle.as_deref().map(clean);
    match handle.and_then(|id| desk.frozen.why(id)) {
        Some(refusal) => Err(refusal),
        None => Ok(wanted),
    }
}

/// Records an address that no block records, or only as cooling.
fn record(
    desk: &mut Desk<'_, '_>,
    networks: &Networks,
    lost: &mut LostBlocks,
    finding: &Finding,
    address: IpAddr,
) -> Result<(), Refusal> {
    let wanted = wanted_for(desk, networks, address)?;
    let change = Change {
        action: Verb::AssignAddress,
        subject: Subject::Address(address),
        detail: finding.says().to_owned(),
        repairs: vec![(finding.code, finding.subject.clone())],
    };
    let blocks = blocks_around(desk.index(), address);
    let block = match blocks.as_slice() {
        [] => {
            let what = What::Assign(wanted.record);
            return lost.add(desk, AddressDraft { address, what, evidence: wanted.evidence, change });
        }
        [block] => *block,
        [first, second, ..] => {
            let detail = format!("it lies in {} and in {}, which overlap", first.key, second.key);
            return Err((SkipReason::Overlap, detail));
        }
    };
    if !desk.may_change(block) {
        return Err((SkipReason::NeedsDecision, format!("{} is not to be rebuilt", block.key)));
    }
    let Some(ordinal) = ordinal_of(block.key, address) else { return Ok(()) };
    let what = match block.sound.and_then(|sound| sound.allocation(ordinal)) {
        Some(cooling) => What::Record(Allocated::new(block.key, &cooling).held, wanted.record),
        None => What::Assign(wanted.record),
    };
    let draft = AddressDraft { address, what, evidence: wanted.evidence, change };
    desk.drafts.entry(block.key).or_default().addresses.insert(ordinal, draft);
    Ok(())
}

/// The one record that the finding is about; `None` where several blocks have one.
fn only_record(desk: &Desk<'_, '_>, finding: &Finding) -> Option<Allocated> {
    let Subject::Address(address) = finding.subject else { return None };
    let blocks = blocks_around(desk.index(), address);
    let [block] = blocks.as_slice() else { return None };
    Some(Allocated::new(block.key, &block.sound?.allocation_of(address)?))
}

/// Gives an address the record of the one who uses it, where the recorded owner does not exist.
fn rewrite(
    desk: &mut Desk<'_, '_>,
    networks: &Networks,
    finding: &Finding,
    held: Allocated,
    owner: RecordedOwner,
) -> Result<(), Refusal> {
    let index = desk.index();
    let block = index.block(held.block);
    let sound = block.and_then(|block| block.sound);
    let Some(allocation) = sound.and_then(|sound| sound.allocation(held.held.ordinal)) else {
        return Ok(());
    };
    let claim = Claim::of(&allocation.attribute);
    if claim == Claim::WindowsReserved {
        let detail = "the ordinal is reserved; recreate the one who uses it".into();
        return Err((SkipReason::WindowsReserved, detail));
    }
    let wanted = wanted_for(desk, networks, held.address)?;
    if let Some(refusal) = held.handle().and_then(|id| desk.frozen.why(&id)) {
        return Err(refusal);
    }
    if !is_gone(desk, &owner, &claim) {
        let detail = "the recorded owner may exist: find out which of them owns the address, recreate the other, \
                      and rebuild again";
        return Err((SkipReason::OwnerMayLive, detail.into()));
    }
    let mut evidence = wanted.evidence;
    for ground in absences(desk, &claim) {
        if !evidence.iter().any(|(key, _)| *key == ground.0) {
            evidence.push(ground);
        }
    }
    let change = Change {
        action: Verb::RewriteOwner,
        subject: Subject::Address(held.address),
        detail: format!("{}, who is gone", finding.says()),
        repairs: vec![(finding.code, finding.subject.clone())],
    };
    let ordinal = held.held.ordinal;
    let what = What::Record(held.held, wanted.record);
    let draft = AddressDraft { address: held.address, what, evidence, change };
    desk.drafts.entry(held.block).or_default().addresses.insert(ordinal, draft);
    Ok(())
}

/// True where the recorded owner does not exist any more. One that exists and has another address might come
/// back to this one, or release it by its handle.
fn is_gone(desk: &Desk<'_, '_>, owner: &RecordedOwner, claim: &Claim<'_>) -> bool {
    let index = desk.index();
    let node = match claim {
        Claim::Pod { node, .. } => node.map(|node| node.to_string()),
        Claim::Tunnel { node, .. } => Some(node.clone()),
        _ => None,
    };
    // Endpoints or pods that name a node show that it may exist although its object does not.
    if node.is_some_and(|node| !index.node_exists(&node) && index.workloads_name_node(&node)) {
        return false;
    }
    match owner {
        // Endpoints name their containers, pods only where an annotation is there.
        RecordedOwner::Gone(reasons) => {
            !is_unnamed(reasons) || desk.basis.snapshot.has_read(Source::Endpoints)
        }
        RecordedOwner::Elsewhere(reasons) => reasons
            .iter()
            .all(|reason| !matches!(reason, LeakReason::PodHasOtherAddress | LeakReason::TunnelMoved)),
        _ => false,
    }
}

/// What must still be absent: the recorded owner, or its node.
fn absences(desk: &Desk<'_, '_>, claim: &Claim<'_>) -> Vec<(Key, Expect)> {
    let index = desk.index();
    let snapshot = desk.basis.snapshot;
    let mut absent = Vec::new();
    let node = match claim {
        Claim::Pod { node, .. } => node.map(|node| node.to_string()),
        Claim::Tunnel { node, .. } => Some(node.clone()),
        _ => None,
    };
    if let Some(node) = node {
        if !index.node_exists(&node) {
            absent.push(Key::Node(node.clone()));
        }
        if let (true, Claim::Pod { namespace, pod, .. }) = (snapshot.has_read(Source::Endpoints), claim) {
            let name = endpoint_name(&node, "k8s", &pod.to_string(), "eth0");
            absent.push(Key::Endpoint { namespace: namespace.to_string(), name });
        }
    }
    if let (true, Claim::Pod { namespace, pod, .. }) = (snapshot.has_read(Source::Pods), claim)
        && index.pod(*namespace, *pod).is_none()
    {
        absent.push(Key::Pod { namespace: namespace.to_string(), name: pod.to_string() });
    }
    absent.into_iter().map(|key| (key, Expect::Absent)).collect()
}
