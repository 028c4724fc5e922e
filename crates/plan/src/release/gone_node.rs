//! Edits of the blocks and affinities that a deleted node leaves behind.

use calipam_check::index::Index;
use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey};
use calipam_model::block::BlockOwner;
use calipam_model::edit::{BlockEdit, Condition, Edit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::plan::{Action, Change, Verb};

/// Expects the object of a deleted node to be unchanged rather than absent, if Calico still has the object.
pub(crate) fn expect_stored_nodes(index: &Index<'_>, actions: &mut [Action]) {
    let parts = actions.iter_mut().flat_map(|action| &mut action.step.parts);
    for (key, expected) in parts.flat_map(|part| part.evidence.iter_mut()) {
        let Key::Node(node) = key else {
            continue;
        };
        if *expected != Precondition::Absent {
            continue;
        }
        if let Some(stored) = index.stored_node(node) {
            *expected = Precondition::At(stored.revision.clone());
        }
    }
}

/// Clears the owner of a block if the owner is a deleted node. The block is deleted if it is then empty.
pub(crate) fn clear_owner(action: &mut Action, block: IpNet, node: &str) {
    let owner = BlockOwner::Host(node.to_owned());
    let edit = BlockEdit::Owner {
        from: Some(owner),
        to: None,
    };
    let whole = action.step.whole();
    whole.edits.push(Edit::Block(block, edit));
    whole
        .evidence
        .require((Key::Node(node.to_owned()), Precondition::Absent));
    let subject = Subject::Block(block);
    let repairs = [Code::BlockOfMissingNode];
    let detail = format!("no owner, since {node} does not exist; the block is deleted with its last address");
    action
        .changes
        .push(Change::new(Verb::SetBlockOwner, subject, detail, &repairs));
}

/// Deletes an affinity of a deleted node.
pub(crate) fn release_affinity(action: &mut Action, affinity: &Versioned<Affinity>) {
    let key = &affinity.value.key;
    let whole = action.step.whole();
    whole.edits.push(Edit::Delete(
        Key::Affinity(key.clone()),
        affinity.revision.clone(),
    ));
    whole
        .evidence
        .require((Key::Node(key.node.clone()), Precondition::Absent));

    // A step that removes the owner of the block compares the owner anyway.
    if !whole.edits.iter().any(|edit| edit.key() == Key::Block(key.cidr)) {
        whole.evidence.require(not_owned_by_holder(key));
    }

    let subject = Subject::affinity(key);
    let repairs = [Code::AffinityOfMissingNode];
    let detail = format!("{} does not exist", key.node);
    action
        .changes
        .push(Change::new(Verb::DeleteAffinity, subject, detail, &repairs));
}

/// Requires that the holder of an affinity has not created or claimed the block in the meantime. Without the affinity,
/// the holder would not find its block.
pub(crate) fn not_owned_by_holder(key: &AffinityKey) -> (Key, Precondition) {
    (
        Key::Block(key.cidr),
        Precondition::Matches(Condition::NotOwnedBy(key.owner())),
    )
}
