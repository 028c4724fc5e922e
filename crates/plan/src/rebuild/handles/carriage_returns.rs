//! Handle IDs with a carriage return (facts 3.13). Calico looks handles up by the part before it: a record with the
//! full ID works, but an object with the full ID is never found. Records are rewritten with the clean ID, and objects
//! are replaced by one with the clean ID, so that the addresses can be freed.

use std::collections::BTreeSet;

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

        let mut with_carriage_return: Vec<&Allocated> = handles.allocated(id).iter().collect();
        with_carriage_return.retain(|allocated| has_carriage_return(allocated));
        let outside = with_carriage_return
            .iter()
            .find(|allocated| !planner.may_change_at(allocated.block));
        if let Some(outside) = outside {
            let detail = format!(
                "{id} is also recorded in {}, which this plan does not rebuild",
                outside.block
            );
            planner.skip(finding, SkipReason::HandleHeld, detail);
            continue;
        }

        for allocated in with_carriage_return {
            rewrite(planner, id, allocated);
        }
        approved.insert(id.clone());
    }

    approved
}

fn has_carriage_return(allocated: &Allocated) -> bool {
    let handle = allocated.guard.record.as_ref().handle();
    handle.is_some_and(TextRef::has_carriage_return)
}

/// Rewrites the record under the clean ID, unless the address changes anyway.
fn rewrite(planner: &mut Planner<'_, '_>, id: &str, allocated: &Allocated) {
    let guard = &allocated.guard;
    let block_plan = planner.blocks.entry(allocated.block).or_default();
    if block_plan.addresses.contains_key(&guard.ordinal) {
        return;
    }

    let mut change = Change::new(
        Verb::RewriteOwner,
        Subject::Address(allocated.address),
        "the same owner, without the carriage return",
        &[],
    );
    let finding = (Code::HandleCarriageReturn, Subject::Handle(id.to_owned()));
    change.repairs.push(finding);

    let record = Attribute {
        handle: Some(id.to_owned()),
        ..guard.record.as_ref().to_attribute()
    };
    let address_plan = AddressPlan {
        address: allocated.address,
        edit: RecordEdit::Rewrite(guard.clone(), record),
        evidence: Vec::new(),
        change,
    };
    block_plan.addresses.insert(guard.ordinal, address_plan);
}
