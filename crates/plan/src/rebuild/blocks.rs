//! Takes blocks away from deleted nodes, and deletes empty and half-deleted blocks.

use calipam_check::{Code, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::{StoredBlock, Versioned};

use super::planner::Planner;
use crate::plan::{Action, Change, Verb};
use crate::skipped::SkipReason;

pub(super) fn plan(planner: &mut Planner<'_, '_>) {
    take_from_missing_nodes(planner);
    delete_empty(planner);
    finish_half_deleted(planner);
}

/// Plans that the blocks of deleted nodes lose their owners and affinities, unless workloads still name the node.
fn take_from_missing_nodes(planner: &mut Planner<'_, '_>) {
    for finding in planner.findings(Code::BlockOfMissingNode) {
        let Subject::Block(cidr) = finding.subject else {
            continue;
        };
        let Some(node) = planner.index().block(cidr).and_then(|block| block.host()) else {
            continue;
        };
        if planner.index().workloads_name_node(node) {
            planner.skip_of_living(finding, node);
            continue;
        }

        let released = affinities_of(planner, cidr, node);
        let planned = planner.blocks.entry(cidr).or_default();
        planned.loses_owner = Some(node.to_owned());
        planned.released = released;
    }
}

/// Returns the node's affinities for a block, except deleted ones, which are deleted by themselves.
fn affinities_of<'s>(planner: &Planner<'_, 's>, cidr: IpNet, node: &str) -> Vec<&'s Versioned<Affinity>> {
    let mut affinities = Vec::new();
    for affinity in planner.basis.affinities_for(cidr) {
        let key = &affinity.value.key;
        if key.kind == AffinityType::Host && key.node == node && !affinity.value.deleted {
            affinities.push(*affinity);
        }
    }
    affinities
}

/// Deletes empty blocks without an owner, unless one of their addresses turns out to be in use.
fn delete_empty(planner: &mut Planner<'_, '_>) {
    for finding in planner.findings(Code::EmptyUnownedBlock) {
        let Subject::Block(cidr) = finding.subject else {
            continue;
        };
        let deletion = Change::new(
            Verb::DeleteBlock,
            finding.subject.clone(),
            "it has no owner and no allocated address",
            &[finding.code],
        );
        if planner.changes_addresses(cidr) {
            let planned = planner.blocks.entry(cidr).or_default();
            // A block with an address is no longer empty.
            if let Some(address) = planned.addresses.values_mut().next() {
                address.change.repairs.extend(deletion.repairs);
            }
            continue;
        }
        if planner.corrupt.blocks.contains_key(&cidr) {
            let planned = planner.blocks.entry(cidr).or_default();
            planned.deleted = true;
            planned.changes.push(deletion);
            continue;
        }
        let Some(block) = planner.index().block(cidr) else {
            continue;
        };
        let edit = Edit::Delete(Key::Block(cidr), block.revision.clone());
        planner.after_blocks.push(Action::new(
            format!("{} {cidr}", finding.code),
            vec![edit],
            vec![deletion],
        ));
    }
}

/// Skips a half-done deletion that must not be finished.
fn skip_half_deleted(planner: &mut Planner<'_, '_>, finding: &Finding, block: &StoredBlock) {
    let (reason, why) = match block.content.sound() {
        Some(_) => (SkipReason::InUse, "but records addresses, which could be in use"),
        None => (SkipReason::CorruptBeyondRepair, "and cannot be read"),
    };
    let detail = format!(
        "{} is marked deleted {why}; Calico treats it as gone: recreate what uses its addresses, then \
         delete it by hand",
        block.key
    );
    planner.skip(finding, reason, detail);
}

/// Finishes half-done deletions of empty blocks, and skips half-done deletions of other blocks.
fn finish_half_deleted(planner: &mut Planner<'_, '_>) {
    for block in &planner.basis.snapshot.blocks {
        let cidr = block.value.key;
        let content = &block.value.content;
        if !content.is_deleted() || !planner.request.has_block(cidr, content.owner()) {
            continue;
        }
        let Some(finding) = planner.basis.finding(Code::HalfDeleted, &Subject::Block(cidr)) else {
            continue;
        };

        if !planner.finishes(&block.value) {
            skip_half_deleted(planner, finding, &block.value);
            continue;
        }

        let deletion = Change::new(
            Verb::DeleteBlock,
            finding.subject.clone(),
            "its deletion stopped half-way",
            &[finding.code],
        );
        let edit = Edit::Delete(Key::Block(cidr), block.revision.clone());
        planner.before_blocks.push(Action::new(
            format!("{} {cidr}", finding.code),
            vec![edit],
            vec![deletion],
        ));
    }
}
