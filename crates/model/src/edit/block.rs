//! Applies edits to a block.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::current::{Current, is_absent, is_version};
use super::{AllocationGuard, BlockEdit, Edit, EditError};
use crate::block::{AssignError, Block, BlockContent, BlockUpdate};
use crate::cidr::address_at;
use crate::key::Key;
use crate::writable::Object;

/// The block is missing, cannot be decoded, or is corrupt.
const UNUSABLE: &str = "is gone or cannot be decoded";

/// Applies edits to a block; the result is `None` if they delete it.
pub(super) fn changed(
    key: &Key,
    edits: &[&Edit],
    stored: Option<Current<'_>>,
    now: Timestamp,
) -> Result<Option<Object>, EditError> {
    let is_read = |version| is_version(key, stored.as_ref().map(|stored| stored.revision), version);
    let sound_block = |object: &Object| match object {
        Object::Block(BlockContent::Sound(block)) => Ok(block.as_ref().clone()),
        _ => Err(EditError::of(key, UNUSABLE)),
    };
    let (block, further) = match edits {
        [Edit::Delete(_, version)] => return is_read(version).map(|()| None),
        [Edit::Create(_, object), further @ ..] => {
            is_absent(key, stored.as_ref())?;
            (sound_block(object)?, further)
        }
        [Edit::Replace(_, version, object), further @ ..] => {
            is_read(version)?;
            (sound_block(object)?, further)
        }
        edits => (living(key, stored)?, edits),
    };

    let mut block_edits: Vec<&BlockEdit> = Vec::new();
    for edit in further {
        let Edit::Block(_, edit) = edit else {
            return Err(EditError::of(
                key,
                "cannot be created, replaced or deleted after other edits",
            ));
        };
        block_edits.push(edit);
    }
    edited(key, &block_edits, block, now)
}

/// Returns the stored block; fails if there is none, or if it is being deleted.
fn living(key: &Key, stored: Option<Current<'_>>) -> Result<Block, EditError> {
    let undecodable = || EditError::of(key, UNUSABLE);
    let Current { object, .. } = stored.ok_or_else(undecodable)?;
    let Some(Object::Block(content)) = object.map(Cow::into_owned) else {
        return Err(undecodable());
    };
    match content.into_usable() {
        Ok(block) if block.is_deleted() => Err(EditError::of(key, "is being deleted")),
        Ok(block) => Ok(*block),
        Err(_) => Err(undecodable()),
    }
}

/// Applies the edits as one update: the sequence number rises once.
fn edited(
    key: &Key,
    edits: &[&BlockEdit],
    mut block: Block,
    now: Timestamp,
) -> Result<Option<Object>, EditError> {
    if edits.is_empty() {
        return Ok(Some(Object::from(block)));
    }
    let (rewritten, others): (Vec<&BlockEdit>, Vec<&BlockEdit>) = edits
        .iter()
        .partition(|edit| matches!(edit, BlockEdit::Record { .. }));
    block.update(|update| {
        // Records are edited before the release, which also frees addresses whose cooldown is over. An address that is
        // in use although it is cooling down would be freed if it did not get its new record first.
        for edit in rewritten {
            edit_block(key, edit, update, now)?;
        }
        release(key, edits, update, now)?;
        for edit in others {
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
    let gives_up = |edit: &&BlockEdit| {
        matches!(
            edit,
            BlockEdit::Release { .. } | BlockEdit::Owner { .. } | BlockEdit::GiveUp(_)
        )
    };
    block.owner().is_none() && block.is_empty() && edits.iter().any(gives_up)
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
    let mut longest = 0;
    for edit in edits {
        let BlockEdit::Release { held, cooldown } = edit else {
            continue;
        };
        held.iter()
            .try_for_each(|held| is_held(key, block.block(), held))?;
        ordinals.extend(held.iter().map(|held| held.ordinal));
        longest = longest.max(*cooldown);
    }

    if ordinals.is_empty() {
        return Ok(());
    }
    if longest > 0 {
        block.cool(&ordinals, now);
        block.collect_cooled(now, SignedDuration::from_secs(longest));
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
    let ordinal_error = |error: AssignError| EditError::within(key, error);
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
            is_held(key, block.block(), held)?;
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
                return Err(EditError::of(key, "holds addresses"));
            }
            block.clear_owner();
        }
        BlockEdit::Touch => block.touch(),
    }
    Ok(())
}

/// Checks that the address still has the record and sequence number from the plan.
fn is_held(key: &Key, block: &Block, held: &AllocationGuard) -> Result<(), EditError> {
    let Some(found) = block.allocation(held.ordinal) else {
        let address = address_at(block.cidr(), held.ordinal);
        return Err(EditError::within(key, format_args!("{address} is already free")));
    };
    if found.sequence != held.sequence || !found.attribute.is_same(held.record.as_ref()) {
        let event = if found.attribute.is_cooling() {
            "released"
        } else {
            "reassigned"
        };
        let what = format!("{} has been {event} since it was read", found.address);
        return Err(EditError::within(key, what));
    }
    Ok(())
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
        let changed = changed(&key, &edits.iter().collect::<Vec<_>>(), Some(stored), over).unwrap();
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
