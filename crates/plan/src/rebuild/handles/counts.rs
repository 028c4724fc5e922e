//! The counts of handles.
//!
//! At most one write of a handle depends on the handle's version. It usually comes before the blocks, and corrects the
//! counts for blocks that the plan does not change. The count for any other block is raised or lowered in the step of
//! that block.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_check::{Code, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Versioned};

use super::super::block_plan::{Countings, moved};
use super::super::planner::Planner;
use super::super::request::blocks_of;
use super::handle_plan::{HandlePlan, Observed};
use crate::basis::handles::{HandleAllocations, clean};
use crate::release::may_release::{too_early_orphan, too_early_unsettled};
use crate::skipped::{Refusal, Skipped};

/// Codes of the findings that this part of the plan repairs.
const CODES: [Code; 5] = [
    Code::MissingHandle,
    Code::HandleCount,
    Code::OrphanHandle,
    Code::HandleCarriageReturn,
    Code::HalfDeleted,
];

/// Returns true if the finding is in the scope of the request, or about a handle of a block that is created.
fn is_in_scope(planner: &Planner<'_, '_>, finding: &Finding) -> bool {
    if planner.request.has(finding, planner.index()) {
        return true;
    }
    blocks_of(finding).iter().any(|cidr| {
        let planned = planner.blocks.get(cidr);
        planned.is_some_and(|planned| planned.created.is_some())
    })
}

/// Plans the handles. `approved` are clean IDs whose objects with a carriage return may be deleted.
pub(in crate::rebuild) fn plan(planner: &mut Planner<'_, '_>, approved: &BTreeSet<String>) -> Countings {
    let moved = moved(&planner.blocks);
    let mut found: BTreeMap<String, Vec<(Code, Subject)>> = BTreeMap::new();
    let basis = planner.basis;
    for finding in CODES.into_iter().flat_map(|code| basis.findings(code)) {
        let Subject::Handle(id) = &finding.subject else {
            continue;
        };
        // A handle of an address that changes is corrected completely.
        let id = clean(id);
        if moved.contains_key(id) || is_in_scope(planner, finding) {
            let of_handle = found.entry(id.to_owned()).or_default();
            of_handle.push(finding.key());
        }
    }
    found.retain(|id, of_handle| match planner.uncountable.refusal(id) {
        Some(refusal) => {
            skip_all(planner, of_handle, &refusal);
            false
        }
        None => true,
    });

    let ids: BTreeSet<&String> = moved.keys().chain(found.keys()).collect();
    let handles = HandleAllocations::new(planner.basis, &ids.iter().map(|id| (*id).clone()).collect());
    let marked = planner
        .basis
        .snapshot
        .handles
        .iter()
        .filter(|handle| handle.value.is_deleted());
    let marked: HashMap<String, &Revision> = marked
        .map(|handle| (handle.value.id().to_string(), &handle.revision))
        .collect();
    let none = BTreeMap::new();
    let mut countings = Countings::new();
    for id in ids {
        let found = found.get(id).map_or(&[][..], Vec::as_slice);
        let moved = moved.get(id).unwrap_or(&none);
        let recorded = handles.counts(id);
        if let Some(refusal) = too_early(planner, found, moved, &recorded, handles.objects(id)) {
            skip_all(planner, found, &refusal);
            continue;
        }

        let (exact, strays): (Vec<_>, Vec<_>) = handles
            .objects(id)
            .iter()
            .copied()
            .partition(|object| object.value.id() == *id.as_str());
        let is_approved = approved.contains(id);
        let observed = if let Some(object) = exact.first() {
            Observed::Object(object)
        } else if let Some(stray) = strays.first()
            && !is_approved
        {
            Observed::Stray(stray)
        } else if let Some(revision) = marked.get(id) {
            Observed::MarkedDeleted(revision)
        } else {
            Observed::Missing
        };
        let plan = HandlePlan {
            id,
            repairs: repairs(found, &observed, is_approved),
            observed,
            strays: if is_approved { strays } else { Vec::new() },
            recorded,
            moved,
        };
        plan.plan(planner, &mut countings);
    }
    countings
}

fn skip_all(planner: &mut Planner<'_, '_>, found: &[(Code, Subject)], refusal: &Refusal) {
    for (code, subject) in found {
        let skipped = Skipped::new(subject.clone(), refusal.reason, &refusal.detail);
        planner.skipped.push(skipped.with_code(*code));
    }
}

/// Returns true if a handle counts more addresses in a block than the block records.
fn counts_more(
    planner: &Planner<'_, '_>,
    object: &Versioned<Handle>,
    recorded: &BTreeMap<IpNet, i64>,
) -> bool {
    object.value.blocks().any(|(block, count)| {
        // No CNI ADD writes to a corrupt block, and an earlier read could not see the counts of its handles.
        let is_corrupt = planner.corrupt.blocks.contains_key(&block);
        !is_corrupt && count > recorded.get(&block).copied().unwrap_or_default()
    })
}

/// Refuses to delete a handle or to lower its counts too early, unless the plan changes addresses of the handle.
fn too_early(
    planner: &Planner<'_, '_>,
    found: &[(Code, Subject)],
    moved: &BTreeMap<IpNet, i64>,
    recorded: &BTreeMap<IpNet, i64>,
    objects: &[&Versioned<Handle>],
) -> Option<Refusal> {
    if !moved.is_empty() {
        return None;
    }

    for (code, subject) in found {
        let Some(finding) = planner.basis.finding(*code, subject) else {
            continue;
        };
        let refusal = match code {
            Code::OrphanHandle => too_early_orphan(planner.basis, finding),
            Code::HandleCount => objects
                .iter()
                .filter(|object| counts_more(planner, object, recorded))
                .find_map(|object| {
                    let key = Key::Handle(object.value.id().to_string());
                    too_early_unsettled(planner.basis, &key, &object.revision, &finding.message())
                }),
            _ => None,
        };
        if refusal.is_some() {
            return refusal;
        }
    }
    None
}

/// Returns the findings about a handle that its plan repairs.
fn repairs(found: &[(Code, Subject)], observed: &Observed<'_>, is_approved: bool) -> Vec<(Code, Subject)> {
    let mut repaired = found.to_vec();
    if is_approved {
        return repaired;
    }
    // The object with the carriage return stays as it is.
    match observed {
        Observed::Stray(_) => repaired.clear(),
        _ => repaired.retain(|(code, _)| *code != Code::HandleCarriageReturn),
    }
    repaired
}
