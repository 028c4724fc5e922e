//! Leaked addresses, which go.

use calipam_check::Code;
use calipam_model::IpNet;

use super::desk::Desk;
use super::draft::{AddressDraft, What};
use crate::evidence::Grounds;
use crate::leaks::{Choice, Chosen, allocations, keep_whole_handles, too_early};
use crate::release::Sightings;
use crate::skipped::SkipReason;

/// Drafts the release of every leaked address that may go.
pub(super) fn draft(desk: &mut Desk<'_, '_>, sightings: &[Sightings]) {
    let choice = choose(desk, sightings);
    let findings = choice.values().filter_map(|chosen| chosen.finding);
    let grounds = Grounds::new(desk.basis.snapshot, findings);
    for ((block, ordinal), chosen) in choice {
        let Some(finding) = chosen.finding else { continue };
        let (address, change) = (chosen.allocated.address, chosen.change());
        let what = What::Release(chosen.allocated.held);
        let draft = AddressDraft { address, what, evidence: grounds.of(finding), change };
        desk.drafts.entry(block).or_default().addresses.insert(ordinal, draft);
    }
}

fn choose<'s>(desk: &mut Desk<'_, 's>, sightings: &[Sightings]) -> Choice<'s> {
    let mut choice = Choice::new();
    for finding in desk.findings(Code::LeakedAddress) {
        let held = allocations(desk.basis, finding);
        let frozen = held.iter().filter_map(|held| held.handle()).find_map(|id| desk.frozen.why(&id));
        let in_scope = held
            .iter()
            .all(|held| desk.index().block(held.block).is_some_and(|block| desk.may_change(block)));
        let address = &finding.subject;
        if finding.is_owner_unknown() {
            let detail = format!("{}: only `release --ip {address}` frees it", finding.message);
            desk.skip(finding, SkipReason::UnknownOwner, detail);
        } else if let Some((reason, why)) = frozen {
            desk.skip(finding, reason, format!("{address}: {why}"));
        } else if !in_scope {
            let detail = format!("{address} is also recorded in a block that is not to be rebuilt");
            desk.skip(finding, SkipReason::Overlap, detail);
        } else if let Some((reason, detail)) = too_early(desk.basis, finding, &held, sightings) {
            if held.iter().any(|held| desk.salvage.blocks.contains_key(&held.block)) {
                // No look at the block as it is now could have seen it.
                let detail =
                    format!("{}: its block is mended first; rebuild again after that", finding.message);
                desk.skip(finding, SkipReason::Unjudged, detail);
            } else {
                desk.skip(finding, reason, detail);
            }
        } else {
            for allocated in held {
                let place = (allocated.block, allocated.held.ordinal);
                choice.insert(place, Chosen { allocated, finding: Some(finding) });
            }
        }
    }
    whole_handles(desk, &mut choice);
    choice
}

/// A handle is released completely or not at all. What gets another owner leaves it, too.
fn whole_handles<'s>(desk: &mut Desk<'_, 's>, choice: &mut Choice<'s>) {
    let leaves = |id: &str, (block, ordinal): (IpNet, u32)| {
        let draft = desk.drafts.get(&block).and_then(|draft| draft.addresses.get(&ordinal));
        draft.is_some_and(|draft| draft.what.handles()[1].as_deref() != Some(id))
    };
    let (_, skipped) = keep_whole_handles(desk.basis, choice, |_| false, leaves);
    desk.skipped.extend(skipped);
}
