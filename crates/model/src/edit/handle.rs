//! Edits of a handle.

use super::HandleEdit;
use super::apply::{Current, CurrentValue, Next, is_absent, is_version};
use crate::handle::Handle;
use crate::key::Key;

/// What the edit makes of the handle, which earlier edits of the step have left as `before`.
pub(super) fn next(
    id: &str,
    edit: &HandleEdit,
    before: Option<&Next>,
    stored: Option<Current<'_>>,
) -> Result<Option<Next>, String> {
    let key = Key::Handle(id.to_owned());
    let settle = |handle: Handle| {
        let empty = handle.blocks().next().is_none();
        Ok(Some(if empty { Next::Gone } else { Next::Handle(handle) }))
    };
    match edit {
        HandleEdit::Create(handle) => {
            is_absent(&key, stored)?;
            return Ok(Some(Next::Handle(handle.clone())));
        }
        HandleEdit::Delete(version) => return is_version(&key, stored, version).map(|()| Some(Next::Gone)),
        HandleEdit::Counts(version, _) => is_version(&key, stored, version)?,
        HandleEdit::Decrement(..) | HandleEdit::Increment(..) => {}
    }
    let current = counted(&key, stored, before)?.filter(|handle| !handle.is_deleted());
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
        HandleEdit::Counts(_, counts) => {
            let mut handle = current.ok_or_else(|| format!("{key} is gone"))?;
            counts.iter().for_each(|(block, count)| handle.set_count(*block, *count));
            settle(handle)
        }
        HandleEdit::Create(_) | HandleEdit::Delete(_) => Ok(None),
    }
}

/// The handle as earlier edits of the step leave it.
fn counted(key: &Key, stored: Option<Current<'_>>, before: Option<&Next>) -> Result<Option<Handle>, String> {
    match (before, stored.map(|s| s.value)) {
        (Some(Next::Handle(handle)), _) => Ok(Some(handle.clone())),
        (Some(_), _) | (None, None) => Ok(None),
        (None, Some(CurrentValue::Handle(handle))) => Ok(Some(handle.clone())),
        (None, Some(_)) => Err(format!("{key} does not read")),
    }
}
