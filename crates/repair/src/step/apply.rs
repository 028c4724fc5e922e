//! Making edits on objects as they are, in memory. A guard that does not hold is a conflict.

use std::collections::BTreeSet;

use calipam_datastore::write::{Change, Content, Object, Stored};
use calipam_model::affinity::Affinity;
use calipam_model::block::{Block, BlockContent, BlockEdit as Arithmetic};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use jiff::{SignedDuration, Timestamp};

use super::{AffinityEdit, BlockEdit, Edit, HandleEdit, Held};
use crate::engine::Objects;

/// What an object is to become.
#[derive(Clone, Debug)]
enum Next {
    Put(Object),
    Gone,
}

/// The changes that the edits amount to, one for each object, in the order in which the objects come.
///
/// # Errors
/// The guard that does not hold, for people.
pub(super) fn apply(edits: &[Edit], objects: &Objects, now: Timestamp) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    for key in edits.iter().map(Edit::key) {
        if !seen.insert(key.clone()) {
            continue;
        }
        let own = edits.iter().filter(|edit| edit.key() == key);
        let stored = objects.get(&key).and_then(Option::as_ref);
        if let Some(next) = next(&key, own, stored, now)? {
            changes.extend(change(key, next, stored));
        }
    }
    Ok(changes)
}

/// What the edits make of one object; `None` where they leave it as it is.
fn next<'e>(
    key: &Key,
    edits: impl Iterator<Item = &'e Edit>,
    stored: Option<&Stored>,
    now: Timestamp,
) -> Result<Option<Next>, String> {
    let mut next = None;
    let mut of_block = Vec::new();
    for edit in edits {
        let made = match edit {
            Edit::Block(_, edit) => {
                of_block.push(edit);
                continue;
            }
            Edit::Handle(id, edit) => handle(id, edit, counted(key, stored, next.as_ref())?, stored)?,
            Edit::Affinity(_, edit) => affinity(key, edit, stored)?,
        };
        next = made.or(next);
    }
    if of_block.is_empty() { Ok(next) } else { block(key, &of_block, stored, now) }
}

fn change(key: Key, next: Next, stored: Option<&Stored>) -> Option<Change> {
    let version = stored.map(|stored| stored.revision.clone());
    match (next, version) {
        (Next::Put(object), Some(version)) => Some(Change::update(key, version, &object)),
        (Next::Put(object), None) => Some(Change::create(key, &object)),
        (Next::Gone, Some(version)) => Some(Change::delete(key, version)),
        (Next::Gone, None) => None,
    }
}

/// The object must be the version that was read.
fn is_version(key: &Key, stored: Option<&Stored>, version: &Revision) -> Result<(), String> {
    match stored {
        Some(stored) if stored.revision.to_string() == version.to_string() => Ok(()),
        Some(_) => Err(format!("{key} has changed since it was read")),
        None => Err(format!("{key} is gone")),
    }
}

fn is_absent(key: &Key, stored: Option<&Stored>) -> Result<(), String> {
    stored.map_or(Ok(()), |_| Err(format!("{key} exists already")))
}

fn block(
    key: &Key,
    edits: &[&BlockEdit],
    stored: Option<&Stored>,
    now: Timestamp,
) -> Result<Option<Next>, String> {
    let put = |block: Block| Ok(Some(Next::Put(Object::Block(Box::new(block)))));
    match edits {
        [BlockEdit::Create(block)] => is_absent(key, stored).and_then(|()| put((**block).clone())),
        [BlockEdit::Replace(version, block)] => {
            is_version(key, stored, version)?;
            put((**block).clone())
        }
        [BlockEdit::Delete(version)] => is_version(key, stored, version).map(|()| Some(Next::Gone)),
        changes => {
            let Some(Content::Block(BlockContent::Sound(block))) = stored.map(|s| &s.content) else {
                return Err(format!("{key} is gone or does not read"));
            };
            let mut block = (**block).clone();
            if block.is_deleted() {
                return Err(format!("{key} is being deleted"));
            }
            // One write is one update, and raises the sequence number once.
            block.update(|arithmetic| {
                changes.iter().try_for_each(|edit| change_block(key, edit, arithmetic, stored, now))
            })?;
            let released = changes.iter().any(|edit| matches!(edit, BlockEdit::Release { .. }));
            let drained = released && block.owner().is_none() && block.allocated() == 0;
            if drained { Ok(Some(Next::Gone)) } else { put(block) }
        }
    }
}

fn change_block(
    key: &Key,
    edit: &BlockEdit,
    block: &mut Arithmetic<'_>,
    stored: Option<&Stored>,
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
        return Err(format!("{key}: ordinal {} is free already", held.ordinal));
    };
    if found.sequence != held.sequence || found.attribute.to_attribute() != held.record {
        return Err(format!("{key}: {} was given out anew since it was read", found.address));
    }
    Ok(())
}

/// The handle as earlier edits of the step leave it.
fn counted(key: &Key, stored: Option<&Stored>, before: Option<&Next>) -> Result<Option<Handle>, String> {
    match (before, stored.map(|s| &s.content)) {
        (Some(Next::Put(Object::Handle(handle))), _) => Ok(Some(handle.clone())),
        (Some(_), _) | (None, None) => Ok(None),
        (None, Some(Content::Handle(handle))) => Ok(Some(handle.clone())),
        (None, Some(_)) => Err(format!("{key} does not read")),
    }
}

fn handle(
    id: &str,
    edit: &HandleEdit,
    current: Option<Handle>,
    stored: Option<&Stored>,
) -> Result<Option<Next>, String> {
    let key = Key::Handle(id.to_owned());
    let settle = |handle: Handle| {
        let empty = handle.blocks().next().is_none();
        Ok(Some(if empty { Next::Gone } else { Next::Put(Object::Handle(handle)) }))
    };
    let current = current.filter(|handle| !handle.is_deleted());
    match edit {
        HandleEdit::Decrement(block, by) => {
            let Some(mut handle) = current.filter(|handle| handle.count(*block) >= *by) else {
                return Ok(None);
            };
            handle.set_count(*block, handle.count(*block) - by);
            settle(handle)
        }
        HandleEdit::Increment(block, by) => {
            let mut handle = current.unwrap_or_else(|| Handle::new(id));
            handle.set_count(*block, handle.count(*block) + by);
            settle(handle)
        }
        HandleEdit::Counts(version, counts) => {
            is_version(&key, stored, version)?;
            let mut handle = current.ok_or_else(|| format!("{key} is gone"))?;
            counts.iter().for_each(|(block, count)| handle.set_count(*block, *count));
            settle(handle)
        }
        HandleEdit::Create(handle) => {
            is_absent(&key, stored)?;
            Ok(Some(Next::Put(Object::Handle(handle.clone()))))
        }
        HandleEdit::Delete(version) => is_version(&key, stored, version).map(|()| Some(Next::Gone)),
    }
}

fn affinity(key: &Key, edit: &AffinityEdit, stored: Option<&Stored>) -> Result<Option<Next>, String> {
    match edit {
        AffinityEdit::Create(affinity) => {
            is_absent(key, stored)?;
            Ok(Some(Next::Put(Object::Affinity(affinity.clone()))))
        }
        AffinityEdit::Delete(version) => is_version(key, stored, version).map(|()| Some(Next::Gone)),
        AffinityEdit::State(version, state) => {
            is_version(key, stored, version)?;
            let Some(Content::Affinity(affinity)) = stored.map(|s| &s.content) else {
                return Err(format!("{key} does not read"));
            };
            let affinity = Affinity { state: state.clone(), ..affinity.clone() };
            Ok(Some(Next::Put(Object::Affinity(affinity))))
        }
    }
}
