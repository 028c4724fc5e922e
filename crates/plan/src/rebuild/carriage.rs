//! Handle IDs with a carriage return (facts 3.13). Calico looks handles up by what comes before it, so that a
//! record under such an ID works, and an object under one is never found. Both get the ID alone: whoever frees
//! the address frees it by that.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Code, Subject};
use calipam_model::attributes::Attribute;

use super::desk::{Desk, change};
use super::draft::{AddressDraft, What};
use crate::handles::{Allocated, Holdings};
use crate::plan::Verb;
use crate::skipped::SkipReason;

/// Drafts the records under such handles. Gives the clean IDs whose objects may be put right, too.
pub(super) fn draft(desk: &mut Desk<'_, '_>) -> BTreeSet<String> {
    let mut approved = BTreeSet::new();
    let findings = desk.findings(Code::HandleCarriageReturn);
    let ids = findings.iter().filter_map(|finding| match &finding.subject {
        Subject::Handle(id) => Some(id.clone()),
        _ => None,
    });
    let holdings = Holdings::new(desk.basis, &ids.collect());
    for finding in findings {
        let Subject::Handle(id) = &finding.subject else { continue };
        if let Some((reason, why)) = desk.frozen.why(id) {
            desk.skip(finding, reason, why);
            continue;
        }
        let dirty: Vec<&Allocated> = holdings.allocated(id).iter().filter(|held| is_dirty(held)).collect();
        let outside = dirty
            .iter()
            .find(|held| desk.index().block(held.block).is_none_or(|block| !desk.may_change(block)));
        if let Some(outside) = outside {
            let detail = format!("{id} is also recorded in {}, which is not to be rebuilt", outside.block);
            desk.skip(finding, SkipReason::HandleHeld, detail);
            continue;
        }
        dirty.into_iter().for_each(|held| rewrite(desk, id, held));
        approved.insert(id.clone());
    }
    approved
}

fn is_dirty(held: &Allocated) -> bool {
    held.held.record.handle.as_deref().is_some_and(|id| id.contains('\r'))
}

/// The same record under the clean ID, unless the address changes anyway.
fn rewrite(desk: &mut Desk<'_, '_>, id: &str, held: &Allocated) {
    let draft: &mut BTreeMap<u32, AddressDraft> = &mut desk.drafts.entry(held.block).or_default().addresses;
    if draft.contains_key(&held.held.ordinal) {
        return;
    }
    let record = Attribute { handle: Some(id.to_owned()), ..held.held.record.clone() };
    let subject = Subject::Address(held.address);
    let mut change = change(Verb::RewriteOwner, subject, "the same owner, without the carriage return", &[]);
    change.repairs.push((Code::HandleCarriageReturn, Subject::Handle(id.to_owned())));
    let what = What::Record(held.held.clone(), record);
    let rewritten = AddressDraft { address: held.address, what, evidence: Vec::new(), change };
    draft.insert(held.held.ordinal, rewritten);
}
