//! Applies edits to objects in memory.

use std::collections::HashMap;

use jiff::Timestamp;

use super::current::{Current, check_absent, check_version};
use super::error::{CHANGED, GONE, UNDECODABLE};
use super::{Edit, EditError, HandleEdit, PoolEdit, block};
use crate::affinity::Affinity;
use crate::document::Document;
use crate::handle::Handle;
use crate::key::Key;
use crate::writable::Object;

/// Applies edits, and returns the changed objects in the order of their first edit; `None` for a deleted object.
/// `current` reads the object under a key. `now` becomes the start of cooldowns and the claim time of new owners.
///
/// # Errors
/// If an object does not meet the guards of an edit, or cannot be edited.
pub fn apply<'a, 'e>(
    edits: impl IntoIterator<Item = &'e Edit>,
    now: Timestamp,
    current: impl Fn(&Key) -> Option<Current<'a>>,
) -> Result<Vec<(Key, Option<Object>)>, EditError> {
    let mut changes = Vec::new();
    for (key, edits) in by_object(edits.into_iter().map(|edit| (edit.key(), edit))) {
        let stored = current(&key);
        if let Key::Block(_) = &key {
            let block = block::apply(&key, &edits, stored, now)?;
            changes.push((key, block));
            continue;
        }

        // Each edit goes on from the object as the edits before it have left it.
        let mut outcome = Outcome::Unchanged;
        for edit in edits {
            match apply_edit(edit, &key, stored.as_ref(), &outcome)? {
                Outcome::Unchanged => {}
                next => outcome = next,
            }
        }
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Changed(object) => changes.push((key, Some(object))),
            Outcome::Deleted => changes.push((key, None)),
        }
    }
    Ok(changes)
}

/// The result of edits to an object.
enum Outcome {
    Unchanged,
    Changed(Object),
    Deleted,
}

/// Groups items by object. Objects and items keep their order.
pub(super) fn by_object<T>(items: impl IntoIterator<Item = (Key, T)>) -> Vec<(Key, Vec<T>)> {
    let mut objects: Vec<(Key, Vec<T>)> = Vec::new();
    let mut indices: HashMap<Key, usize> = HashMap::new();
    for (key, item) in items {
        let index = *indices.entry(key.clone()).or_insert(objects.len());
        if index == objects.len() {
            objects.push((key, Vec::new()));
        }
        objects[index].1.push(item);
    }
    objects
}

/// Applies an edit to an object other than a block. `outcome` is that of the edits before it.
fn apply_edit(
    edit: &Edit,
    key: &Key,
    stored: Option<&Current<'_>>,
    outcome: &Outcome,
) -> Result<Outcome, EditError> {
    match edit {
        // `block` applies these.
        Edit::Block(..) => Ok(Outcome::Unchanged),
        Edit::Create(_, object) => {
            check_absent(key, stored)?;
            Ok(Outcome::Changed(object.as_ref().clone()))
        }
        Edit::Replace(_, version, object) => {
            check_version(key, stored, version)?;
            Ok(Outcome::Changed(object.as_ref().clone()))
        }
        Edit::Delete(_, version) => {
            check_version(key, stored, version)?;
            Ok(Outcome::Deleted)
        }
        Edit::Affinity(_, version, state) => {
            check_version(key, stored, version)?;
            let object = stored.and_then(|stored| stored.object.as_deref());
            let Some(Object::Affinity(affinity)) = object else {
                return Err(EditError::new(key, UNDECODABLE));
            };
            Ok(Outcome::Changed(Object::Affinity(Affinity {
                state: state.clone(),
                is_unstated: false,
                ..affinity.clone()
            })))
        }
        Edit::Pool(_, edit) => apply_pool_edit(edit, key, stored),
        Edit::Handle(id, edit) => apply_handle_edit(edit, id, key, stored, outcome),
    }
}

/// Applies an edit to a pool, if the pool is still as planned and, for a deletion, nothing holds it back.
fn apply_pool_edit(edit: &PoolEdit, key: &Key, stored: Option<&Current<'_>>) -> Result<Outcome, EditError> {
    match edit {
        PoolEdit::SetDisabled(planned, disabled) => {
            let mut pool = as_planned(key, stored, planned)?;
            pool.set_disabled(*disabled);
            Ok(Outcome::Changed(Object::Pool(pool)))
        }
        PoolEdit::Delete(planned) => {
            let pool = as_planned(key, stored, planned)?;
            check_deletable(key, &pool)?;
            Ok(Outcome::Deleted)
        }
    }
}

/// Applies an edit to the counts of a handle as the edits before it have left it (`outcome`).
///
/// # Errors
/// If the handle is not the planned version, or cannot be decoded.
fn apply_handle_edit(
    edit: &HandleEdit,
    id: &str,
    key: &Key,
    stored: Option<&Current<'_>>,
    outcome: &Outcome,
) -> Result<Outcome, EditError> {
    let mut handle;
    match edit {
        HandleEdit::Counts(version, counts) => {
            check_version(key, stored, version)?;
            handle = edited_handle(key, stored, outcome)?.ok_or_else(|| EditError::new(key, GONE))?;
            for (block, count) in counts {
                handle.set_count(*block, *count);
            }
        }
        HandleEdit::Decrement(block, by) => {
            let Some(found) = edited_handle(key, stored, outcome)? else {
                return Ok(Outcome::Unchanged);
            };
            handle = found;
            let count = handle.count(*block);
            // A handle that counts fewer addresses is already wrong, and must not get worse.
            if count < *by {
                return Ok(Outcome::Unchanged);
            }
            handle.set_count(*block, count.saturating_sub(*by));
        }
        HandleEdit::Increment(block, by) => {
            handle = edited_handle(key, stored, outcome)?.unwrap_or_else(|| Handle::new(id));
            handle.set_count(*block, handle.count(*block).saturating_add(*by));
        }
    }

    // Like Calico, deletes a handle without counts (facts 3.8).
    if handle.blocks().next().is_none() {
        return Ok(Outcome::Deleted);
    }
    Ok(Outcome::Changed(Object::Handle(handle)))
}

/// The handle under `key` after the edits with this outcome; `None` if it is missing or marked as deleted.
fn edited_handle(
    key: &Key,
    stored: Option<&Current<'_>>,
    outcome: &Outcome,
) -> Result<Option<Handle>, EditError> {
    let object = match (outcome, stored) {
        (Outcome::Changed(object), _) => Some(object),
        (Outcome::Unchanged, Some(stored)) => stored.object.as_deref(),
        (Outcome::Unchanged, None) | (Outcome::Deleted, _) => return Ok(None),
    };
    let Some(Object::Handle(handle)) = object else {
        return Err(EditError::new(key, UNDECODABLE));
    };
    if handle.is_deleted() {
        return Ok(None);
    }
    Ok(Some(handle.clone()))
}

/// The current pool, if its `spec` is the planned one.
fn as_planned(key: &Key, stored: Option<&Current<'_>>, planned: &Document) -> Result<Document, EditError> {
    let Some(stored) = stored else {
        return Err(EditError::new(key, GONE));
    };
    let Some(Object::Pool(pool)) = stored.object.as_deref() else {
        return Err(EditError::new(key, UNDECODABLE));
    };
    if pool.spec() != planned.spec() {
        return Err(EditError::new(key, CHANGED));
    }
    Ok(pool.clone())
}

/// Checks that the pool would disappear at once, and that nobody else deletes it.
fn check_deletable(key: &Key, pool: &Document) -> Result<(), EditError> {
    if let Some(finalizer) = pool.finalizers().first() {
        return Err(EditError::new(key, format_args!("has the finalizer {finalizer}")));
    }
    if pool.is_being_deleted() {
        return Err(EditError::new(key, "is being deleted by others"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::stored::Revision;

    fn pool(text: &str) -> Document {
        Document::parse(text.as_bytes()).unwrap()
    }

    /// Deletes a pool whose `spec` is `planned` in the plan and `now` in the datastore.
    fn delete(planned: &str, now: Option<&str>) -> Result<Vec<(Key, Option<Object>)>, EditError> {
        edit(PoolEdit::Delete(pool(planned)), now)
    }

    fn edit(edit: PoolEdit, now: Option<&str>) -> Result<Vec<(Key, Option<Object>)>, EditError> {
        let now = now.map(|now| Object::Pool(pool(now)));
        run(&Edit::Pool("p".into(), edit), now.as_ref())
    }

    /// Applies an edit to an object of revision 7.
    fn run(edit: &Edit, now: Option<&Object>) -> Result<Vec<(Key, Option<Object>)>, EditError> {
        let revision = Revision::Etcd(7);
        apply([edit], Timestamp::UNIX_EPOCH, |_| {
            now.map(|object| Current {
                revision: &revision,
                object: Some(Cow::Borrowed(object)),
            })
        })
    }

    #[test]
    fn a_pool_is_deleted_only_as_it_was_planned() {
        let planned = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"}}"#;
        let key = Key::Pool("p".into());
        assert_eq!(delete(planned, Some(planned)), Ok(vec![(key.clone(), None)]));
        let with_status = r#"{"metadata":{"name":"p","x":1},"spec":{"cidr":"10.0.0.0/24"},"status":{}}"#;
        assert_eq!(
            delete(planned, Some(with_status)),
            Ok(vec![(key, None)]),
            "a status is no change"
        );

        let disabled = r#"{"spec":{"cidr":"10.0.0.0/24","disabled":true}}"#;
        let kept = r#"{"metadata":{"finalizers":["x/y"]},"spec":{"cidr":"10.0.0.0/24"}}"#;
        let going =
            r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/24"}}"#;
        for (now, reason) in [
            (Some(disabled), "has changed"),
            (Some(kept), "finalizer x/y"),
            (Some(going), "being deleted"),
            (None, "is gone"),
        ] {
            let error = delete(planned, now).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_pool_is_disabled_and_enabled_only_as_it_was_planned() {
        let planned = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"},"status":{"x":1}}"#;
        let disabled = pool(
            r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24","disabled":true},"status":{"x":1}}"#,
        );
        let disable = |now| edit(PoolEdit::SetDisabled(pool(planned), true), now);
        let changed = |pool| Ok(vec![(Key::Pool("p".into()), Some(Object::Pool(pool)))]);
        assert_eq!(disable(Some(planned)), changed(disabled.clone()));
        let enabled = edit(
            PoolEdit::SetDisabled(disabled.clone(), false),
            Some(&serde_json::to_string(&disabled).unwrap()),
        );
        let mut expected = pool(planned);
        expected.set_disabled(false);
        assert_eq!(enabled, changed(expected));
        assert!(
            edit(PoolEdit::SetDisabled(disabled, false), Some(planned))
                .unwrap_err()
                .to_string()
                .contains("has changed")
        );
        let other = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.1.0/24"}}"#;
        assert!(
            disable(Some(other))
                .unwrap_err()
                .to_string()
                .contains("has changed")
        );
        assert!(disable(None).unwrap_err().to_string().contains("is gone"));
    }

    #[test]
    fn the_configuration_is_written_over_the_version_that_was_read_only() {
        let config = Document::parse(br#"{"strict_affinity":true}"#).unwrap();
        let stored = Object::IpamConfig(Document::default());
        let (seven, eight) = (Revision::Etcd(7), Revision::Etcd(8));
        let config = Object::IpamConfig(config);
        let create = || Edit::Create(Key::IpamConfig, Box::new(config.clone()));
        let replace =
            |read: &Revision| Edit::Replace(Key::IpamConfig, read.clone(), Box::new(config.clone()));
        let written = Ok(vec![(Key::IpamConfig, Some(config.clone()))]);
        assert_eq!(run(&replace(&seven), Some(&stored)), written);
        assert_eq!(run(&create(), None), written);
        assert!(run(&replace(&eight), Some(&stored)).is_err());
        assert!(run(&replace(&seven), None).is_err());
        assert!(run(&create(), Some(&stored)).is_err());
    }
}
