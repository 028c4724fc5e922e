//! Affinities that are unconfirmed, stale, missing or badly labeled (facts 3.9, 3.15). A confirmed affinity
//! without a block stays if its node exists: the node creates the block as soon as it needs an address.

use std::collections::HashSet;

use calipam_check::{Code, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::edit::{BlockEdit, Condition, Edit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;
use calipam_model::writable::Object;

use super::planner::Planner;
use crate::basis::Basis;
use crate::plan::{Action, Change, Verb};
use crate::release::gone_node::not_owned_by_holder;
use crate::release::may_release::too_early_affinity;
use crate::skipped::SkipReason;

/// Codes of the findings about affinities that a rebuild may repair.
const CODES: [Code; 6] = [
    Code::AffinityBlockMismatch,
    Code::UnsettledAffinity,
    Code::AffinityOfMissingNode,
    Code::AffinityLabels,
    Code::HalfDeleted,
    Code::UnexpectedAffinityType,
];

/// Plans the repair of affinities, and affinities for blocks whose owners have none.
pub(super) fn plan(planner: &mut Planner<'_, '_>) {
    let mut deleted = Vec::new();
    for affinity in &planner.basis.snapshot.affinities {
        let key = &affinity.value.key;
        let owner = planner.index().block(key.cidr).and_then(|block| block.owner);
        if !planner.request.has_affinity(key, owner) {
            continue;
        }

        let subject = Subject::affinity(key);
        let mut found: Vec<&Finding> = Vec::new();
        for code in CODES {
            found.extend(planner.basis.finding(code, &subject));
        }
        if !found.is_empty() && plan_repair(planner, affinity, &found) {
            deleted.push(affinity);
        }
    }

    mark_ended_conflicts(planner, &deleted);
    create_missing(planner);
}

/// A decision about an affinity.
enum Decision<'f> {
    Delete(&'static str),
    Confirm,
    /// Deletes the block, and then the affinity.
    Finish,
    /// Writes the affinity's labels again.
    Label,
    /// Leaves the affinity unchanged for this reason.
    Skip(&'f Finding, SkipReason, String),
    /// Leaves the affinity unchanged, since its node may be alive.
    SkipOfLiving(&'f Finding),
    /// Plans nothing, because there is nothing to repair, or another part of the plan repairs it.
    Leave,
}

/// Decides on the repair of an affinity, and plans it. Returns true if the plan deletes the affinity.
fn plan_repair(planner: &mut Planner<'_, '_>, affinity: &Versioned<Affinity>, found: &[&Finding]) -> bool {
    let key = &affinity.value.key;
    let is_of_gone_node = found
        .iter()
        .any(|finding| finding.code == Code::AffinityOfMissingNode)
        && !planner.index().node_exists(&key.node);
    let decision = decide(planner, affinity, found);
    if matches!(decision, Decision::Delete(_) | Decision::Finish)
        && !is_of_gone_node
        && let Some(refusal) = too_early_affinity(planner.basis, affinity)
    {
        for finding in found {
            planner.skip(finding, refusal.reason, &refusal.detail);
        }
        return false;
    }

    let subject = Subject::affinity(key);
    let reason = || format!("affinity {key}");
    let repairs: Vec<Code> = found.iter().map(|finding| finding.code).collect();
    let delete = || Edit::Delete(Key::Affinity(key.clone()), affinity.revision.clone());
    let set = |state| Edit::Affinity(key.clone().into(), affinity.revision.clone(), state);
    match decision {
        Decision::Leave => false,
        Decision::SkipOfLiving(finding) => {
            planner.skip_of_living(finding, &key.node);
            false
        }
        Decision::Skip(finding, why, detail) => {
            planner.skip(finding, why, detail);
            false
        }
        Decision::Delete(why) => {
            let absent = is_of_gone_node.then(|| (Key::Node(key.node.clone()), Precondition::Absent));
            // An affinity that is marked deleted can be removed even if its holder owns the block.
            let not_owned =
                (!affinity.value.deleted && !is_own(planner, key)).then(|| not_owned_by_holder(key));
            let deletion = Change::new(Verb::DeleteAffinity, subject, why, &repairs);
            let action = Action::new(reason(), vec![delete()], vec![deletion]);
            plan_deletion(
                planner,
                key.cidr,
                action.requiring(absent.into_iter().chain(not_owned)),
            );
            true
        }
        Decision::Finish => {
            let Some(block) = planner.index().block(key.cidr) else {
                return false;
            };
            let why = "its node was about to release it, and the block is empty";
            let deletion = Change::new(Verb::DeleteAffinity, subject, why, &repairs);
            let why = "this finishes its release";
            let block_deletion = Change::new(Verb::DeleteBlock, Subject::Block(key.cidr), why, &[]);
            // The block first, as in Calico's release.
            let delete_block = Edit::Delete(Key::Block(key.cidr), block.revision.clone());
            let edits = vec![delete_block, delete()];
            let action = Action::new(reason(), edits, vec![deletion, block_deletion]);
            plan_deletion(planner, key.cidr, action);
            true
        }
        Decision::Confirm => {
            let why = "its node owns the block; the block is written first, so that concurrent writes fail";
            let change = Change::new(Verb::ConfirmAffinity, subject, why, &repairs);
            edit_with_block(planner, key, set(AffinityState::Confirmed), change, reason());
            false
        }
        Decision::Label => {
            let labeling = Change::new(
                Verb::LabelAffinity,
                subject,
                "with the labels by which Calico finds it",
                &repairs,
            );
            let edits = vec![set(affinity.value.state.clone())];
            planner
                .before_blocks
                .push(Action::new(reason(), edits, vec![labeling]));
            false
        }
    }
}

/// Plans an action that deletes an affinity for a block.
fn plan_deletion(planner: &mut Planner<'_, '_>, cidr: IpNet, action: Action) {
    let position = planner.before_blocks.len();
    planner.deletions.entry(cidr).or_default().push(position);
    planner.before_blocks.push(action);
}

/// Decides on the repair of an affinity with the findings `found`. `Leave` also stands for repairs by other parts of
/// the plan.
fn decide<'f>(
    planner: &Planner<'_, '_>,
    affinity: &Versioned<Affinity>,
    found: &[&'f Finding],
) -> Decision<'f> {
    let value = &affinity.value;
    let has = |code: Code| found.iter().copied().find(|finding| finding.code == code);
    let block = planner.index().block(value.key.cidr);
    let is_own = is_own(planner, &value.key);

    if value.deleted {
        return if has(Code::HalfDeleted).is_some() {
            Decision::Delete("its deletion stopped half-way")
        } else {
            Decision::Leave
        };
    }

    if let AffinityType::Other(_) = value.key.kind {
        let is_checked = !planner.index().is_unchecked(value.key.cidr);
        if has(Code::UnexpectedAffinityType).is_some() && is_checked && !is_own {
            return Decision::Delete("Calico never writes its type, and no block belongs to it");
        }
        return if has(Code::AffinityLabels).is_some() {
            Decision::Label
        } else {
            Decision::Leave
        };
    }
    if block.is_some() && !is_own && has(Code::AffinityBlockMismatch).is_some() {
        return Decision::Delete("its node does not own the block");
    }

    if let Some(finding) = has(Code::AffinityOfMissingNode)
        && value.key.kind == AffinityType::Host
    {
        let node = &value.key.node;
        if planner.index().workloads_name_node(node) {
            return Decision::SkipOfLiving(finding);
        }
        let planned = planner.blocks.get(&value.key.cidr);
        if planned.is_some_and(|planned| planned.loses_owner.as_ref() == Some(node)) {
            // The affinity is deleted in the step in which the block loses its owner.
            return Decision::Leave;
        }
        return Decision::Delete("its node does not exist");
    }

    if let Some(finding) = has(Code::UnsettledAffinity)
        && value.state != AffinityState::Confirmed
    {
        return decide_unconfirmed(planner, value, finding);
    }
    if has(Code::AffinityLabels).is_some() {
        Decision::Label
    } else {
        Decision::Leave
    }
}

/// Returns true if the plan creates the affinity's block, with the affinity's holder as its owner.
fn is_block_created_for(planner: &Planner<'_, '_>, key: &AffinityKey) -> bool {
    let planned = planner.blocks.get(&key.cidr);
    let created = planned.and_then(|planned| planned.created.as_ref());
    created.is_some_and(|created| created.owner() == Some(&key.owner()))
}

/// Decides on an affinity whose claim or release stopped half-way.
fn decide_unconfirmed<'f>(
    planner: &Planner<'_, '_>,
    affinity: &Affinity,
    finding: &'f Finding,
) -> Decision<'f> {
    let key = &affinity.key;
    if let AffinityState::Other(state) = &affinity.state {
        let detail = format!("{key} is in the state {state:?}, which Calico does not know");
        return Decision::Skip(finding, SkipReason::NeedsDecision, detail);
    }

    // The affinity is confirmed when its block is created.
    if is_block_created_for(planner, key) {
        return Decision::Leave;
    }
    let Some(block) = planner.index().block(key.cidr) else {
        return Decision::Delete("there is no such block");
    };
    if !is_own(planner, key) {
        return Decision::Leave;
    }
    let is_empty = block.sound.is_some_and(|sound| sound.is_empty());
    let stays_empty = is_empty && !planner.rewrites_block(key.cidr);
    if affinity.state == AffinityState::PendingDeletion && stays_empty {
        Decision::Finish
    } else {
        Decision::Confirm
    }
}

/// Returns true if the block belongs to the holder of the affinity.
fn is_own(planner: &Planner<'_, '_>, key: &AffinityKey) -> bool {
    planner
        .index()
        .block(key.cidr)
        .is_some_and(|block| block.owner == Some(&key.owner()))
}

/// Plans an edit of an affinity together with a write of its block, which comes first. Even if the write changes nothing
/// in the block, a node that has read the block before can no longer write it, and has to read it again.
fn edit_with_block(
    planner: &mut Planner<'_, '_>,
    key: &AffinityKey,
    edit: Edit,
    change: Change,
    reason: String,
) {
    let is_rewritten = planner.rewrites_block(key.cidr);
    let block = planner.index().block(key.cidr).filter(|_| !is_rewritten);
    let Some(block) = block else {
        // The plan writes or creates the block anyway, and then makes this edit.
        let planned = planner.blocks.entry(key.cidr).or_default();
        planned.affinities.push((edit, change));
        return;
    };

    let unchanged_write = Edit::Block(key.cidr, BlockEdit::Touch);
    let claimed_at = block.sound.and_then(|sound| sound.claim_time());
    // The block must still belong to the affinity's holder; its addresses may change.
    let is_owned = Condition::OwnedSince(key.owner(), claimed_at.map(str::to_owned));
    let mut action = Action::new(reason, vec![unchanged_write, edit], vec![change])
        .requiring([(Key::Block(key.cidr), Precondition::Matches(is_owned))]);
    absorb_deletions(planner, key, &mut action);
    planner.before_blocks.push(action);
}

/// Moves the deletions of other holders' affinities for the same block to the beginning of `made`, which is planned next:
/// two nodes must not hold one block. Actions without steps stay in their places, since others are known by position.
fn absorb_deletions(planner: &mut Planner<'_, '_>, key: &AffinityKey, made: &mut Action) {
    let Some(deletions) = planner.deletions.get_mut(&key.cidr) else {
        return;
    };
    let own_key = Key::Affinity(key.clone());
    let position_of_made = planner.before_blocks.len();
    for position in deletions {
        let deletion = &mut planner.before_blocks[*position];
        if deletion.step.edits().any(|edit| edit.key() == own_key) {
            continue;
        }

        let nothing = Action {
            step: Step::new(""),
            changes: Vec::new(),
        };
        let deletion = std::mem::replace(deletion, nothing);
        for part in deletion.step.parts {
            made.step.whole().edits.splice(0..0, part.edits);
            made.step.whole().evidence.extend(part.evidence);
        }
        made.changes.extend(deletion.changes);
        *position = position_of_made;
    }
}

/// Marks conflicts between several affinities for one block as repaired if all but one are deleted.
fn mark_ended_conflicts(planner: &mut Planner<'_, '_>, deleted: &[&Versioned<Affinity>]) {
    let deleted: HashSet<&AffinityKey> = deleted.iter().map(|affinity| &affinity.value.key).collect();
    for finding in planner.findings(Code::AffinityConflict) {
        let Subject::Block(cidr) = finding.subject else {
            continue;
        };
        if remaining_holders(planner, cidr, &deleted) > 1 {
            continue;
        }

        // The last deletion ends the conflict.
        let deletions = planner.deletions.get(&cidr);
        let Some(last) = deletions.and_then(|deletions| deletions.iter().max()) else {
            continue;
        };
        let action = &mut planner.before_blocks[*last];
        let is_deletion = |change: &&mut Change| change.action == Verb::DeleteAffinity;
        if let Some(change) = action.changes.iter_mut().find(is_deletion) {
            change.repairs.push(finding.key());
        }
    }
}

/// Counts the nodes that hold an affinity for a block after the rebuild. `deleted` are the affinities that it deletes
/// by themselves.
fn remaining_holders(planner: &Planner<'_, '_>, cidr: IpNet, deleted: &HashSet<&AffinityKey>) -> usize {
    let mut released: HashSet<&AffinityKey> = HashSet::new();
    if let Some(planned) = planner.blocks.get(&cidr) {
        released.extend(planned.released.iter().map(|affinity| &affinity.value.key));
    }

    let mut number = 0;
    for affinity in planner.basis.affinities_for(cidr) {
        let affinity = &affinity.value;
        if affinity.deleted || affinity.key.kind != AffinityType::Host {
            continue;
        }
        if !deleted.contains(&affinity.key) && !released.contains(&affinity.key) {
            number += 1;
        }
    }
    number
}

/// Notes that a block without an affinity loses its owner, a deleted node. Skips the finding if the block keeps it.
fn leave_without_affinity(planner: &mut Planner<'_, '_>, finding: &Finding, key: &AffinityKey) {
    let node = &key.node;
    let planned = planner.blocks.get_mut(&key.cidr);
    match planned.filter(|planned| planned.loses_owner.is_some()) {
        Some(planned) => planned.changes.push(Change::new(
            Verb::SetBlockOwner,
            finding.subject.clone(),
            format!("no owner, since {node} has no affinity for it either"),
            &[finding.code],
        )),
        None => planner.skip_of_living(finding, node),
    }
}

/// Creates affinities for blocks whose owners have none, unless the owner is a deleted node.
fn create_missing(planner: &mut Planner<'_, '_>) {
    for finding in planner.findings(Code::BlockWithoutAffinity) {
        let Subject::Block(cidr) = finding.subject else {
            continue;
        };
        let owner = planner.index().block(cidr).and_then(|block| block.owner);
        let Some(key) = owner.and_then(|owner| AffinityKey::of_owner(owner, cidr)) else {
            continue;
        };
        if key.kind == AffinityType::Host && !planner.index().node_exists(&key.node) {
            leave_without_affinity(planner, finding, &key);
            continue;
        }
        let detail = "its node owns the block, but cannot find it without an affinity";
        let mut change = Change::new(Verb::CreateAffinity, Subject::affinity(&key), detail, &[]);
        change.repairs.push(finding.key());
        edit_with_block(
            planner,
            &key,
            create_affinity(&key),
            change,
            format!("{} {cidr}", finding.code),
        );
    }
}

pub(super) fn create_affinity(key: &AffinityKey) -> Edit {
    let affinity = Affinity::new(key.clone(), AffinityState::Confirmed);
    Edit::Create(Key::Affinity(key.clone()), Box::new(Object::Affinity(affinity)))
}

/// Returns true if the stored affinity cannot be decoded.
pub(super) fn is_unreadable(basis: &Basis<'_>, key: &AffinityKey) -> bool {
    basis.undecodable().keys.contains(&Key::Affinity(key.clone()))
}
