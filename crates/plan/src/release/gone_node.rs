//! What a node that is gone leaves: blocks of which it is the owner, and affinities.

use calipam_check::index::Index;
use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey};
use calipam_model::block::BlockOwner;
use calipam_model::edit::{AffinityEdit, BlockEdit, Condition, Edit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::plan::{Action, Change, Verb};

/// The object that Calico may still have of a node that is gone from Kubernetes: it has to stay as it was read.
pub(crate) fn expect_left(index: &Index<'_>, actions: &mut [Action]) {
    let parts = actions.iter_mut().flat_map(|action| &mut action.step.parts);
    for (key, expect) in parts.flat_map(|part| &mut part.evidence) {
        if let (Key::Node(node), Precondition::Absent) = (key, &*expect)
            && let Some(stored) = index.stored_node(node)
        {
            *expect = Precondition::At(stored.revision.clone());
        }
    }
}

/// The block loses its owner, and is deleted if it is empty then.
pub(crate) fn clear_owner(action: &mut Action, block: IpNet, node: &str) {
    let owner = BlockOwner::Host(node.to_owned());
    let edit = BlockEdit::Owner { from: Some(owner), to: None };
    let whole = action.step.whole();
    whole.edits.push(Edit::Block(block, edit));
    whole.require((Key::Node(node.to_owned()), Precondition::Absent));
    action.changes.push(Change {
        action: Verb::SetBlockOwner,
        subject: Subject::Block(block),
        detail: format!("to none: {node} does not exist; the block is deleted with its last address"),
        repairs: vec![(Code::BlockOfMissingNode, Subject::Block(block))],
    });
}

/// An affinity of the node is deleted.
pub(crate) fn release_affinity(action: &mut Action, affinity: &Versioned<Affinity>) {
    let key = &affinity.value.key;
    let edit = AffinityEdit::Delete(affinity.revision.clone());
    let whole = action.step.whole();
    whole.edits.push(Edit::Affinity(key.clone().into(), edit));
    whole.require((Key::Node(key.node.clone()), Precondition::Absent));

    // If the step takes the block from its node, it compares the owner by that.
    if !whole.edits.iter().any(|edit| edit.key() == Key::Block(key.cidr)) {
        whole.require(not_its_own(key));
    }

    action.changes.push(Change {
        action: Verb::DeleteAffinity,
        subject: Subject::affinity(key),
        detail: format!("{} does not exist", key.node),
        repairs: vec![(Code::AffinityOfMissingNode, Subject::affinity(key))],
    });
}

/// What has to be true if an affinity is deleted alone: its holder has not created or claimed the block since,
/// which it could not find then.
pub(crate) fn not_its_own(key: &AffinityKey) -> (Key, Precondition) {
    (Key::Block(key.cidr), Precondition::Matches(Condition::NotOwnedBy(key.owner())))
}
