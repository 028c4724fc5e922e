//! Handle IDs with a carriage return (facts 3.13). Calico looks handles up by the part before it: a record with the
//! full ID works, but an object with the full ID is never found. Records are rewritten with the clean ID, and objects
//! are replaced by one with the clean ID, so that the addresses can be freed.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Code, Subject};
use calipam_model::attributes::Attribute;
use calipam_model::text::TextRef;

use super::super::block_plan::{AddressPlan, RecordEdit};
use super::super::planner::Planner;
use crate::basis::handles::{Allocated, HandleAllocations};
use crate::plan::{Change, Verb};
use crate::skipped::{SkipReason, Skipped};

/// Plans to rewrite records under IDs with a carriage return. Returns the clean IDs of the handles whose objects may be
/// corrected as well.
pub(in crate::rebuild) fn plan_carriage_returns(planner: &mut Planner<'_, '_>) -> BTreeSet<String> {
    let mut approved = BTreeSet::new();
    let findings = planner.findings(Code::HandleCarriageReturn);
    let ids = findings.iter().filter_map(|finding| finding.subject.handle());
    let handles = HandleAllocations::new(planner.basis, &ids.map(str::to_owned).collect());
    for finding in findings {
        let Subject::Handle(id) = &finding.subject else {
            continue;
        };
        if let Some(refusal) = planner.uncountable.refusal(id) {
            planner.skipped.push(Skipped::refused(finding, refusal));
            continue;
        }
        let is_dirty = |held: &&Allocated| {
            held.held
                .record
                .as_ref()
                .handle()
                .is_some_and(TextRef::has_carriage_return)
        };
        let dirty: Vec<&Allocated> = handles.allocated(id).iter().filter(is_dirty).collect();
        if let Some(outside) = dirty.iter().find(|held| !planner.may_change_at(held.block)) {
            let detail = format!(
                "{id} is also recorded in {}, which this plan does not rebuild",
                outside.block
            );
            planner.skip(finding, SkipReason::HandleHeld, detail);
            continue;
        }
        dirty.into_iter().for_each(|held| rewrite(planner, id, held));
        approved.insert(id.clone());
    }

    approved
}

/// Rewrites the record under the clean ID, unless the address changes anyway.
fn rewrite(planner: &mut Planner<'_, '_>, id: &str, held: &Allocated) {
    let planned: &mut BTreeMap<u32, AddressPlan> =
        &mut planner.blocks.entry(held.block).or_default().addresses;
    if planned.contains_key(&held.held.ordinal) {
        return;
    }
    let record = Attribute {
        handle: Some(id.to_owned()),
        ..held.held.record.as_ref().to_attribute()
    };
    let subject = Subject::Address(held.address);
    let mut change = Change::new(
        Verb::RewriteOwner,
        subject,
        "the same owner, without the carriage return",
        &[],
    );
    change
        .repairs
        .push((Code::HandleCarriageReturn, Subject::Handle(id.to_owned())));
    let edit = RecordEdit::Rewrite(held.held.clone(), record);
    let rewritten = AddressPlan {
        address: held.address,
        edit,
        evidence: Vec::new(),
        change,
    };
    planned.insert(held.held.ordinal, rewritten);
}
