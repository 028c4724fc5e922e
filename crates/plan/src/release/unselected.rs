//! Blocks whose pool no longer selects their node. Calico gives up such a block when its last address is released
//! (facts 3.11).

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::edit::{BlockEdit, Edit};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::basis::Basis;
use crate::plan::{Action, Change, Verb};

/// Returns the affinity of a block that will be empty after `released` of its addresses are freed, and whose pool does
/// not select its node. A block with addresses that are cooling down is not empty.
pub(super) fn unselected<'s>(
    basis: &Basis<'s>,
    block: IpNet,
    released: usize,
) -> Option<&'s Versioned<Affinity>> {
    let index = &basis.context.index;
    let block = index.block(block)?;
    let sound = block.sound?;
    let node = sound.host()?;
    if basis.cooldown != 0 || sound.allocated() as usize != released {
        return None;
    }

    let pool = index.enabled_pool_around(block.key.addr())?;
    let labels = &index.node(node)?.labels;
    if pool.selected_nodes().ok()?.matches(labels) {
        return None;
    }

    basis.affinity_of(block)
}

/// Deletes the block and its affinity.
pub(crate) fn give_up(action: &mut Action, affinity: &Versioned<Affinity>, why: String) {
    let key = &affinity.value.key;
    let whole = action.step.whole();
    whole
        .edits
        .push(Edit::Block(key.cidr, BlockEdit::GiveUp(key.owner())));
    whole.edits.push(Edit::Delete(
        Key::Affinity(key.clone()),
        affinity.revision.clone(),
    ));

    action
        .changes
        .push(Change::new(Verb::DeleteBlock, Subject::Block(key.cidr), why, &[]));
    action.changes.push(Change::new(
        Verb::DeleteAffinity,
        Subject::affinity(key),
        "its block is released",
        &[],
    ));
}
