//! Blocks of nodes that are gone, and blocks that nobody needs.

use calipam_check::{Code, Subject};
use calipam_model::affinity::AffinityType;
use calipam_model::block::BlockOwner;
use calipam_model::edit::{BlockEdit, Edit};

use super::desk::{Desk, action, change};
use crate::plan::Verb;
use crate::skipped::SkipReason;

/// Drafts what becomes of whole blocks.
pub(super) fn draft(desk: &mut Desk<'_, '_>) {
    of_missing_nodes(desk);
    empty(desk);
    half_deleted(desk);
}

/// What to do about a node that may be alive although its object is gone.
pub(super) fn may_live(node: &str) -> String {
    format!(
        "{node} does not exist, but endpoints or pods name it: if it is alive, bring its object back; if not, \
         `calipam release --node {node}` gives up what it holds"
    )
}

fn of_missing_nodes(desk: &mut Desk<'_, '_>) {
    for finding in desk.findings(Code::BlockOfMissingNode) {
        let Subject::Block(cidr) = finding.subject else { continue };
        let owner = desk.index().block(cidr).and_then(|block| block.owner);
        let Some(node) = owner.and_then(BlockOwner::host) else { continue };
        if desk.index().workloads_name_node(node) {
            desk.skip(finding, SkipReason::NodeMayLive, may_live(node));
            continue;
        }
        let of_block = desk.basis.snapshot.affinities.iter().filter(|affinity| {
            let key = &affinity.value.key;
            let is_its = key.kind == AffinityType::Host && key.node == node && key.cidr == cidr;
            is_its && !affinity.value.deleted
        });
        let given_up = of_block.collect();
        let draft = desk.drafts.entry(cidr).or_default();
        draft.disowned = Some(node.to_owned());
        draft.given_up = given_up;
    }
}

/// A block of nobody in which nothing is recorded, unless an address of it turns out to be in use.
fn empty(desk: &mut Desk<'_, '_>) {
    for finding in desk.findings(Code::EmptyUnownedBlock) {
        let Subject::Block(cidr) = finding.subject else { continue };
        let what = change(
            Verb::DeleteBlock,
            finding.subject.clone(),
            "nobody owns it, and it holds no address",
            &[finding.code],
        );
        if desk.changes_addresses(cidr) {
            let draft = desk.drafts.entry(cidr).or_default();
            let first = draft.addresses.values_mut().next();
            first.into_iter().for_each(|address| address.change.repairs.extend(what.repairs.iter().cloned()));
            continue;
        }
        if desk.salvage.blocks.contains_key(&cidr) {
            let draft = desk.drafts.entry(cidr).or_default();
            draft.deleted = true;
            draft.changes.push(what);
            continue;
        }
        let Some(block) = desk.index().block(cidr) else { continue };
        let edit = Edit::Block(cidr, BlockEdit::Delete(block.revision.clone()));
        desk.late.push(action(format!("{} {cidr}", finding.code), vec![edit], Vec::new(), what));
    }
}

/// Finishes deletions of blocks that are empty.
fn half_deleted(desk: &mut Desk<'_, '_>) {
    let stored = desk.basis.snapshot.blocks.iter().filter(|block| block.value.content.is_deleted());
    for block in stored {
        let cidr = block.value.key;
        let finding = desk.basis.finding(Code::HalfDeleted, &Subject::Block(cidr));
        let Some(finding) = finding.filter(|_| desk.scope.has_block(cidr, block.value.content.owner()))
        else {
            continue;
        };
        if !desk.finishes(&block.value) {
            let detail = format!(
                "{cidr} is marked deleted and still records addresses, or cannot be read; Calico treats it as \
                 gone: delete it by hand, then rebuild what its addresses are used for"
            );
            desk.skip(finding, SkipReason::NeedsDecision, detail);
            continue;
        }
        let detail = "its deletion stopped half-way";
        let what = change(Verb::DeleteBlock, finding.subject.clone(), detail, &[finding.code]);
        let edit = Edit::Block(cidr, BlockEdit::Delete(block.revision.clone()));
        desk.early.push(action(format!("{} {cidr}", finding.code), vec![edit], Vec::new(), what));
    }
}
