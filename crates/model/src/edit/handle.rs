//! Handle edits.

use super::apply::{Current, is_absent, is_version};
use super::{Edit, EditError, HandleEdit};
use crate::handle::Handle;
use crate::key::Key;
use crate::writable::Object;

/// Applies edits to the handle: `Some(None)` if they delete it, `None` if it stays unchanged.
pub(super) fn changed(
    key: &Key,
    id: &str,
    edits: &[&Edit],
    stored: Option<&Current<'_>>,
) -> Result<Option<Option<Object>>, EditError> {
    let mut changed: Option<Option<Handle>> = None;
    for edit in edits {
        let Edit::Handle(_, edit) = edit else { continue };
        // Earlier edits are already included.
        let current = || match &changed {
            Some(handle) => Ok(handle.clone()),
            None => decoded(key, stored),
        };
        match edit {
            HandleEdit::Create(handle) => {
                is_absent(key, stored)?;
                changed = Some(Some(handle.clone()));
            }
            HandleEdit::Delete(version) => {
                is_version(key, stored.map(|s| s.revision), version)?;
                changed = Some(None);
            }
            HandleEdit::Counts(version, counts) => {
                is_version(key, stored.map(|s| s.revision), version)?;
                let mut handle = current()?.ok_or_else(|| EditError::Gone(key.clone()))?;
                counts.iter().for_each(|(block, count)| handle.set_count(*block, *count));
                changed = Some(unless_empty(handle));
            }
            HandleEdit::Decrement(block, by) => {
                // A handle that counts fewer addresses is already wrong, and must not get worse.
                if let Some(mut handle) = current()?.filter(|handle| handle.count(*block) >= *by) {
                    handle.set_count(*block, handle.count(*block).saturating_sub(*by));
                    changed = Some(unless_empty(handle));
                }
            }
            HandleEdit::Increment(block, by) => {
                let mut handle = current()?.unwrap_or_else(|| Handle::new(id));
                handle.set_count(*block, handle.count(*block).saturating_add(*by));
                changed = Some(unless_empty(handle));
            }
        }
    }
    Ok(changed.map(|handle| handle.map(Object::Handle)))
}

/// Returns the stored handle; `None` if it is marked as deleted.
fn decoded(key: &Key, stored: Option<&Current<'_>>) -> Result<Option<Handle>, EditError> {
    match stored.map(|s| s.object.as_deref()) {
        None => Ok(None),
        Some(Some(Object::Handle(handle))) => Ok(Some(handle.clone()).filter(|h| !h.is_deleted())),
        Some(_) => Err(EditError::Undecodable(key.clone())),
    }
}

/// Like Calico, deletes a handle that counts no address (facts 3.8).
fn unless_empty(handle: Handle) -> Option<Handle> {
    let is_empty = handle.blocks().next().is_none();
    (!is_empty).then_some(handle)
}
