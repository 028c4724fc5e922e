//! Applies edits to a block.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::current::{Current, check_absent, check_version};
use super::{AllocationGuard, BlockEdit, Edit, EditError};
use crate::block::{AssignError, Block, BlockContent, BlockUpdate};
use crate::cidr::address_at;
use crate::key::Key;
use crate::writable::Object;

/// The block is missing, cannot be decoded, or is corrupt.
const UNUSABLE: &str = "is gone or cannot be decoded";

/// Applies edits to a block, as one write: the result is the block after all of them, or `None` if they delete it. The
/// first edit may create or replace the block as a whole; a deletion is the only edit.
pub(super) fn apply(
    key: &Key,
    edits: &[&Edit],
    stored: Option<Current<'_>>,
    now: Timestamp,
) -> Result<Option<Object>, EditError> {
    let (block, later_edits) = match edits {
        [Edit::Delete(_, version)] => {
            check_version(key, stored.as_ref(), version)?;
            return Ok(None);
        }
        [Edit::Create(_, object), later_edits @ ..] => {
            check_absent(key, stored.as_ref())?;
            (sound_block(key, object)?, later_edits)
        }
        [Edit::Replace(_, version, object), later_edits @ ..] => {
            check_version(key, stored.as_ref(), version)?;
            (sound_block(key, object)?, later_edits)
        }
        edits => (stored_block(key, stored)?, edits),
    };

    let mut block_edits: Vec<&BlockEdit> = Vec::new();
    for edit in later_edits {
        let Edit::Block(_, edit) = edit else {
            return Err(EditError::new(
                key,
                "cannot be created, replaced or deleted after other edits",
            ));
        };
        block_edits.push(edit);
    }
    apply_block_edits(key, &block_edits, block, now)
}

/// Returns the block that an edit creates, or puts in place of another one.
///
/// # Errors
/// If the object is no block, or a corrupt one.
fn sound_block(key: &Key, object: &Object) -> Result<Block, EditError> {
    match object {
        Object::Block(BlockContent::Sound(block)) => Ok(block.as_ref().clone()),
        _ => Err(EditError::new(key, UNUSABLE)),
    }
}

/// Returns the block that is stored.
///
/// # Errors
/// If there is none, if Calico cannot use it, or if it is being deleted.
fn stored_block(key: &Key, stored: Option<Current<'_>>) -> Result<Block, EditError> {
    let object = stored.and_then(|current| current.object);
    let usable = match object.map(Cow::into_owned) {
        Some(Object::Block(content)) => content.into_usable().ok(),
        Some(_) | None => None,
    };
    let Some(block) = usable else {
        return Err(EditError::new(key, UNUSABLE));
    };
    if block.is_deleted() {
        return Err(EditError::new(key, "is being deleted"));
    }
    Ok(*block)
}

/// Applies the edits as one update: the sequence number rises once.
fn apply_block_edits(
    key: &Key,
    edits: &[&BlockEdit],
    mut block: Block,
    now: Timestamp,
) -> Result<Option<Object>, EditError> {
    if edits.is_empty() {
        return Ok(Some(Object::from(block)));
    }
    let (record_edits, other_edits): (Vec<&BlockEdit>, Vec<&BlockEdit>) = edits
        .iter()
        .partition(|edit| matches!(edit, BlockEdit::Record { .. }));
    block.update(|update| {
        // Records are edited before the release, which also frees addresses whose cooldown is over. An address that is
        // in use although it is cooling down would be freed if it did not get its new record first.
        for edit in record_edits {
            edit_block(key, edit, update, now)?;
        }
        release(key, edits, update, now)?;
        for edit in other_edits {
            edit_block(key, edit, update, now)?;
        }
        Ok::<(), EditError>(())
    })?;

    if is_drained(&block, edits) {
        return Ok(None);
    }
    Ok(Some(Object::from(block)))
}

/// True if the edits leave a block without an owner and without addresses, which has to be deleted (facts 3.9, 3.12).
fn is_drained(block: &Block, edits: &[&BlockEdit]) -> bool {
    let releases_or_gives_up = edits.iter().any(|edit| {
        matches!(
            edit,
            BlockEdit::Release { .. } | BlockEdit::Owner { .. } | BlockEdit::GiveUp(_)
        )
    });
    releases_or_gives_up && block.owner().is_none() && block.is_empty()
}

/// Frees the addresses of all edits together, as one Calico call does: they share one record while cooling down, and
/// enter the free list in ascending order (facts 3.6, 3.10).
fn release(
    key: &Key,
    edits: &[&BlockEdit],
    block: &mut BlockUpdate<'_>,
    now: Timestamp,
) -> Result<(), EditError> {
    let mut ordinals = Vec::new();
    let mut longest_cooldown = 0;
    for edit in edits {
        let BlockEdit::Release { held, cooldown } = edit else {
            continue;
        };
        for guard in held {
            check_unchanged(key, block.block(), guard)?;
            ordinals.push(guard.ordinal);
        }
        longest_cooldown = longest_cooldown.max(*cooldown);
    }

    if ordinals.is_empty() {
        return Ok(());
    }
    if longest_cooldown > 0 {
        block.cool(&ordinals, now);
        block.collect_cooled(now, SignedDuration::from_secs(longest_cooldown));
    } else {
        block.release(&ordinals);
    }
    Ok(())
}

/// Applies one edit, except a release, if its conditions are met.
fn edit_block(
    key: &Key,
    edit: &BlockEdit,
    block: &mut BlockUpdate<'_>,
    now: Timestamp,
) -> Result<(), EditError> {
    let ordinal_error = |error: AssignError| EditError::in_part(key, error);
    match edit {
        // `release` applies these for all edits together.
        BlockEdit::Release { .. } => {}
        BlockEdit::CollectCooled { cooldown } => {
            block.collect_cooled(now, SignedDuration::from_secs(*cooldown));
        }
        BlockEdit::Assign { records } => {
            for (ordinal, record) in records {
                block.assign(*ordinal, record).map_err(ordinal_error)?;
            }
        }
        BlockEdit::Record { held, record } => {
            check_unchanged(key, block.block(), held)?;
            block.set_attribute(held.ordinal, record).map_err(ordinal_error)?;
        }
        BlockEdit::Owner { from, to } => {
            if block.block().owner() != from.as_ref() {
                return Err(EditError::another_owner(key));
            }
            if let Some(owner) = to {
                block.set_owner(owner.clone(), now)
            } else {
                block.clear_owner()
            }
        }
        BlockEdit::GiveUp(owner) => {
            if block.block().owner() != Some(owner) {
                return Err(EditError::another_owner(key));
            }
            if !block.block().is_empty() {
                return Err(EditError::new(key, "holds addresses"));
            }
            block.clear_owner();
        }
        BlockEdit::Touch => block.touch(),
    }
    Ok(())
}

/// Checks that the address still has the record and sequence number from the plan.
fn check_unchanged(key: &Key, block: &Block, planned: &AllocationGuard) -> Result<(), EditError> {
    let Some(current) = block.allocation(planned.ordinal) else {
        let address = address_at(block.cidr(), planned.ordinal);
        return Err(EditError::in_part(key, format_args!("{address} is already free")));
    };
    if current.sequence == planned.sequence && current.attribute.is_same(planned.record.as_ref()) {
        return Ok(());
    }
    let event = if current.attribute.is_cooling() {
        "released"
    } else {
        "reassigned"
    };
    let problem = format!("{} has been {event} since it was read", current.address);
    Err(EditError::in_part(key, problem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attribute;
    use crate::block::BlockContent;
    use crate::stored::Revision;

    /// The cooldown of an address can end between the plan and its execution.
    #[test]
    fn an_address_that_cools_although_it_is_in_use_gets_its_record_before_others_are_freed() {
        let json = br#"{"cidr": "10.0.0.0/30", "affinity": "host:a", "allocations": [0, 1, null, null],
            "unallocated": [2, 3], "attributes": [{"releasedAt": "2026-05-01T10:00:00Z"},
            {"handle_id": "net.b"}], "sequenceNumber": 9, "sequenceNumberForAllocation": {"1": 7}}"#;
        let BlockContent::Sound(block) = BlockContent::parse(json).unwrap() else {
            panic!("not sound")
        };
        let held = |ordinal| AllocationGuard::new(&block.allocation(ordinal).unwrap());
        let record = Attribute {
            handle: Some("net.a".into()),
            ..Attribute::default()
        };
        let cidr = block.cidr();
        let edits = [
            Edit::Block(
                cidr,
                BlockEdit::Release {
                    held: vec![held(1)],
                    cooldown: 60,
                },
            ),
            Edit::Block(
                cidr,
                BlockEdit::Record {
                    held: Box::new(held(0)),
                    record: Box::new(record),
                },
            ),
        ];
        let (revision, object) = (Revision::Etcd(1), Object::from(block.as_ref().clone()));
        let stored = Current {
            revision: &revision,
            object: Some(Cow::Owned(object)),
        };
        let over = "2026-05-01T10:01:01Z".parse().unwrap();

        let key = Key::Block(cidr);
        let changed = apply(&key, &edits.iter().collect::<Vec<_>>(), Some(stored), over).unwrap();
        let Some(Object::Block(BlockContent::Sound(after))) = changed else {
            panic!("no block")
        };
        let handle = after
            .allocation(0)
            .unwrap()
            .attribute
            .clean_handle()
            .unwrap()
            .to_string();
        assert_eq!(handle, "net.a");
        assert!(after.allocation(1).unwrap().attribute.is_cooling());
    }
}
