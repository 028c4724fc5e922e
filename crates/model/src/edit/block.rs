//! Edits of a block.

use jiff::{SignedDuration, Timestamp};

use super::apply::{Current, CurrentValue, Next, is_absent, is_version};
use super::{BlockEdit, Held};
use crate::block::{Block, BlockContent, BlockEdit as Arithmetic};
use crate::cidr::address_at;
use crate::key::Key;

/// What the edits make of the block.
pub(super) fn next(
    key: &Key,
    edits: &[&BlockEdit],
    stored: Option<Current<'_>>,
    now: Timestamp,
) -> Result<Option<Next>, String> {
    let put = |block: &Block| Ok(Some(Next::Block(Box::new(block.clone()))));
    match edits {
        [BlockEdit::Create(block)] => is_absent(key, stored).and_then(|()| put(block)),
        [BlockEdit::Replace(version, block)] => is_version(key, stored, version).and_then(|()| put(block)),
        [BlockEdit::Delete(version)] => is_version(key, stored, version).map(|()| Some(Next::Gone)),
        changes => {
            let Some(CurrentValue::Block(BlockContent::Sound(block))) = stored.map(|s| s.value) else {
                return Err(format!("{key} is gone or does not read"));
            };
            if block.is_deleted() {
                return Err(format!("{key} is being deleted"));
            }
            let mut block = block.clone();
            // One write is one update, and raises the sequence number once.
            block.update(|arithmetic| {
                changes.iter().try_for_each(|edit| change(key, edit, arithmetic, stored, now))
            })?;
            Ok(Some(if is_drained(&block, changes) { Next::Gone } else { Next::Block(block) }))
        }
    }
}

/// A block without owner goes with its last address, or an empty one with its owner (facts 3.9, 3.12).
fn is_drained(block: &Block, changes: &[&BlockEdit]) -> bool {
    let gives_up = |edit: &&BlockEdit| matches!(edit, BlockEdit::Release { .. } | BlockEdit::Owner { .. });
    block.owner().is_none() && block.is_empty() && changes.iter().any(gives_up)
}

fn change(
    key: &Key,
    edit: &BlockEdit,
    block: &mut Arithmetic<'_>,
    stored: Option<Current<'_>>,
    now: Timestamp,
) -> Result<(), String> {
    match edit {
        BlockEdit::Release { held, cooldown } => {
            held.iter().try_for_each(|held| is_held(key, block.block(), held))?;
            let ordinals: Vec<u32> = held.iter().map(|held| held.ordinal).collect();
            if *cooldown > 0 {
                block.cool(&ordinals, now);
                block.collect_cooled(now, SignedDuration::from_secs(*cooldown));
            } else {
                block.release(&ordinals);
            }
        }
        BlockEdit::Assign { records } => {
            for (ordinal, record) in records {
                let assigned = block.assign(*ordinal, record);
                assigned.map_err(|error| format!("{key}: {error}"))?;
            }
        }
        BlockEdit::Record { held, record } => {
            is_held(key, block.block(), held)?;
            block.set_attribute(held.ordinal, record).map_err(|error| format!("{key}: {error}"))?;
        }
        BlockEdit::Owner { from, to } => {
            if block.block().owner() != from.as_ref() {
                return Err(format!("{key} has another owner than when it was read"));
            }
            match to {
                Some(owner) => block.set_owner(owner.clone(), now),
                None => block.clear_owner(),
            }
        }
        BlockEdit::Touch(version) => {
            is_version(key, stored, version)?;
            block.touch();
        }
        BlockEdit::Create(_) | BlockEdit::Replace(..) | BlockEdit::Delete(_) => {
            return Err(format!("{key} cannot be created, replaced or deleted and edited in one step"));
        }
    }
    Ok(())
}

/// The address must be recorded with the same record and sequence number as when the plan was made.
fn is_held(key: &Key, block: &Block, held: &Held) -> Result<(), String> {
    let Some(found) = block.allocation(held.ordinal) else {
        let address = address_at(block.cidr(), held.ordinal);
        return Err(format!("{key}: {address} is free already"));
    };
    if found.sequence != held.sequence || found.attribute.to_attribute() != held.record {
        return Err(format!("{key}: {} was given out anew since it was read", found.address));
    }
    Ok(())
}
