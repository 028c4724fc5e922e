//! Making edits on objects as they are, in memory. A guard that does not hold is a conflict.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{AffinityEdit, BlockEdit, Edit, block, handle};
use crate::affinity::Affinity;
use crate::block::{Block, BlockContent};
use crate::handle::Handle;
use crate::key::Key;
use crate::snapshot::Revision;

/// An object as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// Which version of it was read.
    pub revision: &'a Revision,
    /// What it holds.
    pub value: CurrentValue<'a>,
}

/// What an object holds.
#[derive(Clone, Copy, Debug)]
pub enum CurrentValue<'a> {
    /// A block, sound or corrupt.
    Block(&'a BlockContent),
    /// A handle.
    Handle(&'a Handle),
    /// An affinity.
    Affinity(&'a Affinity),
    /// Something that does not decode: it can be replaced or deleted, but not edited.
    Unreadable,
}

/// What an object is to become.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// This block.
    Block(Box<Block>),
    /// This handle.
    Handle(Handle),
    /// This affinity.
    Affinity(Affinity),
    /// It is deleted.
    Gone,
}

/// What the edits make of each object, in the order in which the objects come. Objects that stay as they
/// are do not occur. `current` tells what is stored under a key; `now` is written into what cools down or
/// gets an owner.
///
/// # Errors
/// The guard that does not hold, for people.
pub fn apply<'a>(
    edits: &[Edit],
    now: Timestamp,
    current: impl Fn(&Key) -> Option<Current<'a>>,
) -> Result<Vec<(Key, Next)>, String> {
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    for key in edits.iter().map(Edit::key) {
        if !seen.insert(key.clone()) {
            continue;
        }
        let own = edits.iter().filter(|edit| edit.key() == key);
        if let Some(next) = next(&key, own, current(&key), now)? {
            changes.push((key, next));
        }
    }
    Ok(changes)
}

/// What the edits make of one object; `None` where they leave it as it is.
fn next<'e>(
    key: &Key,
    edits: impl Iterator<Item = &'e Edit>,
    stored: Option<Current<'_>>,
    now: Timestamp,
) -> Result<Option<Next>, String> {
    let mut next = None;
    let mut of_block: Vec<&BlockEdit> = Vec::new();
    for edit in edits {
        let made = match edit {
            Edit::Block(_, edit) => {
                of_block.push(edit);
                continue;
            }
            Edit::Handle(id, edit) => handle::next(id, edit, next.as_ref(), stored)?,
            Edit::Affinity(_, edit) => affinity(key, edit, stored)?,
        };
        next = made.or(next);
    }
    if of_block.is_empty() { Ok(next) } else { block::next(key, &of_block, stored, now) }
}

/// The object must be the version that was read.
pub(super) fn is_version(key: &Key, stored: Option<Current<'_>>, version: &Revision) -> Result<(), String> {
    match stored {
        Some(stored) if stored.revision.to_string() == version.to_string() => Ok(()),
        Some(_) => Err(format!("{key} has changed since it was read")),
        None => Err(format!("{key} is gone")),
    }
}

pub(super) fn is_absent(key: &Key, stored: Option<Current<'_>>) -> Result<(), String> {
    stored.map_or(Ok(()), |_| Err(format!("{key} exists already")))
}

fn affinity(key: &Key, edit: &AffinityEdit, stored: Option<Current<'_>>) -> Result<Option<Next>, String> {
    match edit {
        AffinityEdit::Create(affinity) => {
            is_absent(key, stored)?;
            Ok(Some(Next::Affinity(affinity.clone())))
        }
        AffinityEdit::Delete(version) => is_version(key, stored, version).map(|()| Some(Next::Gone)),
        AffinityEdit::State(version, state) => {
            is_version(key, stored, version)?;
            let Some(CurrentValue::Affinity(affinity)) = stored.map(|s| s.value) else {
                return Err(format!("{key} does not read"));
            };
            Ok(Some(Next::Affinity(Affinity { state: state.clone(), ..affinity.clone() })))
        }
    }
}
