//! What a node that is gone leaves: blocks of which it is the owner, and affinities.

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::block::BlockOwner;
use calipam_model::edit::{AffinityEdit, BlockEdit, Edit, Expect};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::plan::{Action, Change, Verb};

/// The block loses its owner, and goes where it is empty then.
pub(crate) fn disown(action: &mut Action, block: IpNet, node: &str) {
    let owner = BlockOwner::Host(node.to_owned());
    let edit = BlockEdit::Owner { from: Some(owner), to: None };
    // Behind the release of its addresses, so that both are one write.
    let place = usize::from(action.step.edits.first().is_some_and(|edit| edit.key() == Key::Block(block)));
    action.step.edits.insert(place, Edit::Block(block, edit));
    action.step.evidence.push((Key::Node(node.to_owned()), Expect::Absent));
    action.step.evidence.dedup();
    action.changes.push(Change {
        action: Verb::SetBlockOwner,
        subject: Subject::Block(block),
        detail: format!("to none: {node} does not exist; the block goes with its last address"),
        repairs: vec![(Code::BlockOfMissingNode, Subject::Block(block))],
    });
}

/// An affinity of the node goes.
pub(crate) fn give_up(action: &mut Action, affinity: &Versioned<Affinity>) {
    let key = &affinity.value.key;
    let edit = AffinityEdit::Delete(affinity.revision.clone());
    action.step.edits.push(Edit::Affinity(key.clone(), edit));
    let ground = (Key::Node(key.node.clone()), Expect::Absent);
    if !action.step.evidence.contains(&ground) {
        action.step.evidence.push(ground);
    }
    action.changes.push(Change {
        action: Verb::DeleteAffinity,
        subject: Subject::affinity(key),
        detail: format!("{} does not exist", key.node),
        repairs: vec![(Code::AffinityOfMissingNode, Subject::affinity(key))],
    });
}
