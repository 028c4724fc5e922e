//! The rules by which addresses are released, for `release` and `rebuild`.
//!
//! The check determines which addresses are leaked ([`calipam_check::owner`]). A leaked address is released if it was
//! seen unused twice, or its node or pod certainly no longer exists ([`too_early`]); if its record names an owner
//! ([`unknown_owner`]); and if its handle is released completely ([`keep_whole_handles`]). An address without such a
//! finding is refused ([`why_not`]), and for some reasons even if the operator insists ([`can_be_forced`]). The
//! executor checks the preconditions of a step again when it writes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_check::claim::{Unread, unread};
use calipam_check::index::Index;
use calipam_check::{
    AddressEvidence, Code, Evidence, Finding, LeakReason, NeededBy, OwnerKind, RecordEvidence, Subject,
    names_of_mentions, names_of_owners,
};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityState};
use calipam_model::block::Allocation;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Versioned};

use super::Observations;
use crate::basis::handles::{Allocated, HandleAllocations};
use crate::basis::{Basis, sound_records};
use crate::plan::{Change, Verb};
use crate::skipped::{Refusal, SkipReason, Skipped};

/// An allocation that should be released.
#[derive(Clone, Debug)]
pub(crate) struct Chosen<'s> {
    pub allocated: Allocated,
    /// The finding that justifies the release; `None` if the operator insists.
    pub finding: Option<&'s Finding>,
}

impl Chosen<'_> {
    /// Describes the release of the address, with the finding that it repairs, or as forced.
    pub(crate) fn change(&self) -> Change {
        let Allocated { block, address, .. } = self.allocated;
        let why = match self.finding {
            Some(finding) => finding.text(),
            None => "forced".to_owned(),
        };
        let code = self.finding.map(|finding| finding.code);
        let subject = Subject::Address(address);
        let detail = format!("{why} (block {block})");
        Change::new(Verb::ReleaseAddress, subject, detail, code.as_slice())
    }
}

/// The allocations to release, by block and ordinal.
pub(crate) type Choice<'s> = BTreeMap<(IpNet, u32), Chosen<'s>>;

/// Returns the allocations of a finding; none if one of their blocks is corrupt, since the block is repaired first.
pub(crate) fn allocations(basis: &Basis<'_>, finding: &Finding) -> Vec<Allocated> {
    let Evidence::Address(evidence) = &finding.evidence else {
        return Vec::new();
    };
    let mut allocations = Vec::new();
    for record in &evidence.records {
        match allocation(basis, record) {
            Some(allocated) => allocations.push(allocated),
            None => return Vec::new(),
        }
    }
    allocations
}

/// Returns the allocation that a finding found in a block; `None` if the block is corrupt.
fn allocation(basis: &Basis<'_>, record: &RecordEvidence) -> Option<Allocated> {
    let block = basis.context.index.block(record.block)?;
    let mut allocated = Allocated::new(block.key, &block.sound?.allocation(record.ordinal)?);
    // The finding and the release share one record, to save memory.
    if allocated.guard.record == record.record {
        allocated.guard.record = record.record.clone();
    }
    Some(allocated)
}

/// Refuses a leaked address whose record names no owner. The operator can still release the address by name.
pub(crate) fn unknown_owner(finding: &Finding) -> Option<Refusal> {
    if !finding.is_owner_unknown() {
        return None;
    }
    Some(Refusal::new(SkipReason::UnknownOwner, finding.message()))
}

/// Returns true if the operator can force the release of an address that is refused for this reason.
pub(super) fn can_be_forced(reason: SkipReason) -> bool {
    use SkipReason::{Cooling, NotAllocated, Unchecked, WindowsReserved};
    !matches!(reason, Unchecked | NotAllocated | Cooling | WindowsReserved)
}

/// Refuses a leaked address that has to wait: the objects that show owners are lost, or it was seen unused only once.
/// Once is enough if the address's node was deleted, or its pod finished long ago.
pub(crate) fn too_early(basis: &Basis<'_>, finding: &Finding, held: &[Allocated]) -> Option<Refusal> {
    if let Some(kind) = basis.missing_evidence {
        let detail = format!(
            "{}; but there is not a single {kind} in the cluster: the objects were probably lost, so restore them first",
            finding.message()
        );
        return Some(Refusal::new(SkipReason::EvidenceLost, detail));
    }

    let was_seen = |allocated: &Allocated| {
        seen_before(basis, |earlier| earlier.saw(allocated.address, &allocated.guard))
    };
    if is_certain_at_once(basis, finding) || held.iter().all(was_seen) {
        return None;
    }

    let grace = basis.context.grace;
    let detail = format!(
        "{}: it must be found unused twice, {grace:#} apart",
        finding.message()
    );
    Some(Refusal::new(SkipReason::SeenOnce, detail))
}

/// Refuses to delete an orphan handle that an existing owner needs, or a running pod could need.
pub(super) fn needed_orphan(id: &str, finding: &Finding) -> Option<Refusal> {
    Some(match finding.needed_by()? {
        NeededBy::Owner(owner) => {
            let detail = format!("{id} is the handle of {owner}, which exists but has no recorded address");
            Refusal::new(SkipReason::InUse, detail)
        }
        NeededBy::Unknown(block) => {
            let detail = format!(
                "{id} counts addresses of {block}, which is missing, and no pods were read: a running pod could need \
                 it; pass a kubeconfig, so that pods are compared"
            );
            Refusal::new(SkipReason::NotRead, detail)
        }
    })
}

/// Refuses a handle without allocations, unless it was seen twice in the same version. A CNI plugin writes the handle
/// before the block.
pub(crate) fn too_early_orphan(basis: &Basis<'_>, finding: &Finding) -> Option<Refusal> {
    let (Subject::Handle(id), Evidence::Handle(evidence)) = (&finding.subject, &finding.evidence) else {
        return None;
    };

    let has_revision = |earlier: &Observations| {
        let seen = earlier.handles.get(id);
        seen.is_some() && seen == evidence.revision.as_ref()
    };
    if seen_before(basis, has_revision) {
        return None;
    }
    Some(seen_once(basis, &finding.message()))
}

/// Refuses an affinity that is neither confirmed nor marked deleted, unless it was seen twice: its holder may be about
/// to create the block.
pub(crate) fn too_early_affinity(basis: &Basis<'_>, affinity: &Versioned<Affinity>) -> Option<Refusal> {
    let Versioned { value, revision } = affinity;
    if value.state == AffinityState::Confirmed || value.deleted {
        return None;
    }
    let key = Key::Affinity(value.key.clone());
    let state = format!("{} is {}", value.key, value.state);
    too_early_unsettled(basis, &key, revision, &state)
}

/// Refuses an object in the middle of a Calico operation, unless it was seen twice in the same version.
pub(crate) fn too_early_unsettled(
    basis: &Basis<'_>,
    key: &Key,
    revision: &Revision,
    state: &str,
) -> Option<Refusal> {
    let version = revision.to_string();
    let has_version = |earlier: &Observations| earlier.unsettled.get(key) == Some(&version);
    if seen_before(basis, has_version) {
        return None;
    }
    Some(seen_once(basis, state))
}

/// Refuses a release for now: the address, handle or block must be found in the same state twice. `state` describes the
/// object and its state.
fn seen_once(basis: &Basis<'_>, state: &str) -> Refusal {
    let grace = basis.context.grace;
    Refusal::new(
        SkipReason::SeenOnce,
        format!("{state}: it must be found in this state twice, {grace:#} apart"),
    )
}

/// Returns true if `is_same` accepts an earlier read that is at least as old as the grace period, or if there is no grace
/// period.
fn seen_before(basis: &Basis<'_>, is_same: impl Fn(&Observations) -> bool) -> bool {
    let grace = basis.context.grace;
    if !grace.is_positive() {
        return true;
    }
    let now = basis.snapshot.taken_at;
    let mut earlier_reads = basis.observations.iter();
    earlier_reads.any(|read| now.duration_since(read.at) >= grace && is_same(read))
}

/// Returns true if one read is enough, since the owner cannot come back.
fn is_certain_at_once(basis: &Basis<'_>, finding: &Finding) -> bool {
    let Evidence::Address(evidence) = &finding.evidence else {
        return false;
    };
    is_of_gone_node(basis, evidence) || is_of_long_finished(basis, evidence)
}

/// Returns true if the recorded node does not exist, and no workload names it.
fn is_of_gone_node(basis: &Basis<'_>, evidence: &AddressEvidence) -> bool {
    if !evidence.reasons.contains(&LeakReason::NodeGone) {
        return false;
    }
    let mut names_node = false;
    for node in evidence.recorded_nodes() {
        if basis.context.index.workloads_name_node(&node) {
            return false;
        }
        names_node = true;
    }
    names_node
}

/// Returns true if the only pods of the recorded name finished so long ago that their networks must have been torn
/// down.
fn is_of_long_finished(basis: &Basis<'_>, evidence: &AddressEvidence) -> bool {
    let mut reasons = evidence.reasons.iter();
    if !reasons.all(|reason| *reason == LeakReason::PodFinished) {
        return false;
    }

    let now = basis.snapshot.taken_at;
    let mut has_pod = false;
    for owner in &evidence.owners {
        if owner.kind != OwnerKind::Pod {
            continue;
        }
        // Without a time, the pod may have finished just now.
        let Some(finished_at) = owner.finished_at else {
            return false;
        };
        if now.duration_since(finished_at) <= basis.context.grace {
            return false;
        }
        has_pod = true;
    }
    has_pod
}

/// Removes from a choice the addresses whose handles cannot be released completely. Returns the allocations of all
/// handles in the choice, and the removed addresses as skipped subjects.
///
/// `insists` is true for addresses that the operator insists on, `leaves` for records that the plan moves from the
/// handle with this ID to another, and `in_scope` for addresses in the scope of the request.
pub(crate) fn keep_whole_handles<'s>(
    basis: &Basis<'s>,
    choice: &mut Choice<'s>,
    insists: impl Fn(IpAddr) -> bool,
    leaves: impl Fn(&str, (IpNet, u32)) -> bool,
    in_scope: impl Fn(&Allocated) -> bool,
) -> (HandleAllocations<'s>, Vec<Skipped>) {
    let wanted: HashSet<String> = choice
        .values()
        .filter_map(|chosen| chosen.allocated.handle())
        .collect();
    let handles = HandleAllocations::new(basis, &wanted);
    let mut skipped: Vec<Skipped> = Vec::new();
    let mut removed: HashSet<IpAddr> = HashSet::new();

    for id in wanted.iter().collect::<BTreeSet<&String>>() {
        let still_insists = |address| insists(address) && !removed.contains(&address);
        let leaves_handle = |record| leaves(id, record);
        let refusal = why_kept(
            basis,
            &handles,
            choice,
            id,
            still_insists,
            leaves_handle,
            &in_scope,
        );
        let Some(refusal) = refusal else {
            continue;
        };

        for held in handles.allocated(id) {
            let Some(chosen) = choice.remove(&(held.block, held.guard.ordinal)) else {
                continue;
            };
            let address = held.address;
            removed.insert(address);
            let subject = Subject::Address(address);
            let code = match chosen.finding {
                Some(finding) => Some(finding.code),
                None => basis.worst(&subject),
            };
            let detail = format!("{address}: {}", refusal.detail);
            skipped.push(Skipped {
                code,
                ..Skipped::new(subject, refusal.reason, detail)
            });
        }
    }
    (handles, skipped)
}

/// Refuses the release of a handle that counts addresses in a block that cannot be checked.
fn refuse_unchecked_block(basis: &Basis<'_>, handles: &HandleAllocations<'_>, id: &str) -> Option<Refusal> {
    let index = &basis.context.index;
    let objects = handles.objects(id).iter();
    let mut named = objects.flat_map(|object| object.value.blocks());
    let (broken, _) = named.find(|(cidr, _)| index.is_unchecked(*cidr))?;
    let detail = format!("its handle {id} also names {broken}, which cannot be checked");
    Some(Refusal::new(SkipReason::Unchecked, detail))
}

/// Returns the reason why a handle's chosen addresses must stay allocated. Most handles are released completely or not
/// at all.
fn why_kept(
    basis: &Basis<'_>,
    handles: &HandleAllocations<'_>,
    choice: &Choice<'_>,
    id: &str,
    insists: impl Fn(IpAddr) -> bool,
    leaves: impl Fn((IpNet, u32)) -> bool,
    in_scope: impl Fn(&Allocated) -> bool,
) -> Option<Refusal> {
    let unchecked = refuse_unchecked_block(basis, handles, id);
    if unchecked.is_some() {
        return unchecked;
    }

    let (chosen, kept): (Vec<&Allocated>, Vec<&Allocated>) = handles
        .allocated(id)
        .iter()
        .partition(|held| choice.contains_key(&(held.block, held.guard.ordinal)));
    let first_kept = kept
        .into_iter()
        .find(|held| !leaves((held.block, held.guard.ordinal)))?;
    if is_of_several(id) {
        return None;
    }
    for held in chosen {
        if insists(held.address) || is_extra(choice, held) {
            return None;
        }
    }

    let why = if in_scope(first_kept) {
        "is not released"
    } else {
        "is outside the selection; a handle is released completely or not at all"
    };
    let detail = format!("its handle {id} also holds {}, which {why}", first_kept.address);
    Some(Refusal::new(SkipReason::HandleHeld, detail))
}

/// Returns true for handles whose addresses are released one by one. A Calico 2.x handle is shared with earlier pods of
/// the same name, and a tunnel's handle names a node rather than one allocation.
fn is_of_several(id: &str) -> bool {
    matches!(
        Claim::of_handle(id),
        Claim::LegacyPod { .. } | Claim::Tunnel { .. }
    )
}

/// Returns true for an address that its service does not name. The service holds its other addresses under the same
/// handle.
fn is_extra(choice: &Choice<'_>, held: &Allocated) -> bool {
    let Some(chosen) = choice.get(&(held.block, held.guard.ordinal)) else {
        return false;
    };
    match chosen.finding {
        Some(finding) => finding.code == Code::ServiceAddressExtra,
        None => false,
    }
}

/// Explains why an address is kept if no finding justifies its release.
pub(super) fn why_not(basis: &Basis<'_>, address: IpAddr) -> Skipped {
    let refusal = why_kept_address(basis, address);
    let subject = Subject::Address(address);
    Skipped {
        code: basis.worst(&subject),
        ..Skipped::new(subject, refusal.reason, refusal.detail)
    }
}

/// Refuses an address whose block is corrupt or cannot be decoded.
pub(crate) fn in_corrupt_block(index: &Index<'_>, address: IpAddr) -> Option<Refusal> {
    if !index.is_unchecked(address.into()) {
        return None;
    }
    let detail = format!("{address} is in a block that is corrupt or cannot be decoded");
    Some(Refusal::new(SkipReason::Unchecked, detail))
}

/// Returns the reason why an address that is not found to be leaked cannot be released.
fn why_kept_address(basis: &Basis<'_>, address: IpAddr) -> Refusal {
    let index = &basis.context.index;
    if let Some(refusal) = in_corrupt_block(index, address) {
        return refusal;
    }

    let records: Vec<Allocation<'_>> = sound_records(index, address).collect();
    let owners = basis.context.owners_of(address);
    if !owners.is_empty() {
        return Refusal::new(
            SkipReason::InUse,
            format!("{address} is used by {}", names_of_owners(&owners)),
        );
    }
    if records.is_empty() {
        return Refusal::new(SkipReason::NotAllocated, format!("no block records {address}"));
    }
    if index.is_mentioned(address) {
        let names = names_of_mentions(&index.mentions(address));
        return Refusal::new(
            SkipReason::InUse,
            format!("{address} is named by {names}, which could use it"),
        );
    }

    // Where blocks overlap, the address has several records: the most important reason counts.
    let reasons = records.iter().map(|record| why_kept_record(basis, record));
    reasons
        .min()
        .unwrap_or(Refusal::new(SkipReason::NotAllocated, String::new()))
}

/// Explains why the record of an unused address without a finding is kept.
fn why_kept_record(basis: &Basis<'_>, record: &Allocation<'_>) -> Refusal {
    let address = record.address;
    let claim = Claim::of(&record.attribute);
    if claim == Claim::Cooling {
        let detail = format!("{address} was already released and is cooling down");
        return Refusal::new(SkipReason::Cooling, detail);
    }
    if claim == Claim::WindowsReserved {
        let detail = format!("{address} is reserved by a Windows node and never assigned");
        return Refusal::new(SkipReason::WindowsReserved, detail);
    }

    if basis.context.is_young(&record.attribute) {
        let grace = basis.context.grace;
        let detail =
            format!("{address} was allocated less than {grace:#} ago: its pod could still be starting");
        return Refusal::new(SkipReason::Young, detail);
    }

    let unread_kind = match unread(basis.snapshot, &claim) {
        None => {
            let detail = format!("{address} is unused now, but its owner could still exist");
            return Refusal::new(SkipReason::OwnerMayLive, detail);
        }
        Some(Unread::Users) => {
            let detail = format!("{address}: it is not known what uses addresses");
            return Refusal::new(SkipReason::NotRead, detail);
        }
        Some(Unread::Services) => "service",
        Some(Unread::Machines) => "virtual machine",
    };
    let detail = format!("{address} is allocated to a {unread_kind}, and {unread_kind}s were not read");
    Refusal::new(SkipReason::NotRead, detail)
}
