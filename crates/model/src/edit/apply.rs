//! Applies edits to objects in memory. A failed guard is a conflict.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;

use super::{AffinityEdit, Edit, EditError, block, document, handle};
use crate::affinity::Affinity;
use crate::key::Key;
use crate::snapshot::Revision;
use crate::writable::Object;

/// The current state of an object.
#[derive(Clone, Debug)]
pub struct Current<'a> {
    /// The current version.
    pub revision: &'a Revision,
    /// `None` if it cannot be decoded. It can still be replaced or deleted, but not edited.
    pub object: Option<Cow<'a, Object>>,
}

/// Applies edits, and returns the changed objects in the order of their first edit; `None` for a deleted object.
/// `current` reads the object under a key. `now` becomes the start of cooldowns and the claim time of new owners.
pub fn apply<'a, 'e>(
    edits: impl IntoIterator<Item = &'e Edit>,
    now: Timestamp,
    current: impl Fn(&Key) -> Option<Current<'a>>,
) -> Result<Vec<(Key, Option<Object>)>, EditError> {
    let mut changes = Vec::new();
    for (key, edits) in by_object(edits) {
        let stored = current(&key);
        let changed = match &key {
            Key::Handle(id) => handle::changed(&key, id, &edits, stored.as_ref())?,
            Key::Affinity(_) => affinity(&key, &edits, stored.as_ref())?,
            Key::Pool(_) | Key::IpamConfig => document::changed(&key, &edits, stored.as_ref())?,
            _ => Some(block::changed(&key, &edits, stored, now)?),
        };
        changes.extend(changed.map(|object| (key, object)));
    }
    Ok(changes)
}

/// Groups edits by object, keeping the order of objects and edits.
fn by_object<'e>(edits: impl IntoIterator<Item = &'e Edit>) -> Vec<(Key, Vec<&'e Edit>)> {
    let mut objects: Vec<(Key, Vec<&Edit>)> = Vec::new();
    let mut indices: HashMap<Key, usize> = HashMap::new();
    for edit in edits {
        let key = edit.key();
        match indices.get(&key) {
            Some(index) => objects[*index].1.push(edit),
            None => {
                indices.insert(key.clone(), objects.len());
                objects.push((key, vec![edit]));
            }
        }
    }
    objects
}

/// Checks that the object is still the version that was read.
pub(super) fn is_version(key: &Key, stored: Option<&Revision>, version: &Revision) -> Result<(), EditError> {
    match stored {
        Some(stored) if stored.to_string() == version.to_string() => Ok(()),
        Some(_) => Err(EditError::Changed(key.clone())),
        None => Err(EditError::Gone(key.clone())),
    }
}

pub(super) fn is_absent(key: &Key, stored: Option<&Current<'_>>) -> Result<(), EditError> {
    stored.map_or(Ok(()), |_| Err(EditError::Exists(key.clone())))
}

/// The result of edits to an object: `Some(None)` if it is deleted, `None` if it stays unchanged.
pub(super) type Changed = Option<Option<Object>>;

/// Checks all edits, and applies the last one, the only one that counts.
pub(super) fn last(
    edits: &[&Edit],
    mut make: impl FnMut(&Edit) -> Result<Changed, EditError>,
) -> Result<Changed, EditError> {
    edits.iter().try_fold(None, |changed, edit| Ok(make(edit)?.or(changed)))
}

fn affinity(key: &Key, edits: &[&Edit], stored: Option<&Current<'_>>) -> Result<Changed, EditError> {
    last(edits, |edit| {
        let Edit::Affinity(_, edit) = edit else { return Ok(None) };
        Ok(Some(match edit {
            AffinityEdit::Create(affinity) => {
                is_absent(key, stored)?;
                Some(Object::Affinity(affinity.as_ref().clone()))
            }
            AffinityEdit::Delete(version) => {
                is_version(key, stored.map(|s| s.revision), version)?;
                None
            }
            AffinityEdit::State(version, state) => {
                is_version(key, stored.map(|s| s.revision), version)?;
                let Some(Object::Affinity(affinity)) = stored.and_then(|s| s.object.as_deref()) else {
                    return Err(EditError::Undecodable(key.clone()));
                };
                let (state, is_unstated) = (state.clone(), false);
                Some(Object::Affinity(Affinity { state, is_unstated, ..affinity.clone() }))
            }
        }))
    })
}
