//! Edits of pools and the allocator's configuration.

use super::apply::{Changed, Current, is_absent, is_version, last};
use super::{ConfigEdit, Edit, EditError, PoolEdit};
use crate::document::Document;
use crate::key::Key;
use crate::writable::Object;

/// Applies edits to the object.
pub(super) fn changed(
    key: &Key,
    edits: &[&Edit],
    stored: Option<&Current<'_>>,
) -> Result<Changed, EditError> {
    last(edits, |edit| match edit {
        Edit::Pool(_, PoolEdit::Create(pool)) => {
            is_absent(key, stored)?;
            Ok(Some(Some(Object::Pool(pool.clone()))))
        }
        Edit::Pool(_, PoolEdit::Disable(planned)) => {
            let mut pool = as_planned(key, stored, planned)?;
            pool.set_disabled(true);
            Ok(Some(Some(Object::Pool(pool))))
        }
        Edit::Pool(_, PoolEdit::Enable(planned)) => {
            let mut pool = as_planned(key, stored, planned)?;
            pool.set_disabled(false);
            Ok(Some(Some(Object::Pool(pool))))
        }
        Edit::Pool(_, PoolEdit::Delete(planned)) => {
            may_be_deleted(key, stored, planned)?;
            Ok(Some(None))
        }
        Edit::IpamConfig(ConfigEdit::Create(config)) => {
            is_absent(key, stored)?;
            Ok(Some(Some(Object::IpamConfig(config.clone()))))
        }
        Edit::IpamConfig(ConfigEdit::Replace(version, config)) => {
            is_version(key, stored.map(|s| s.revision), version)?;
            Ok(Some(Some(Object::IpamConfig(config.clone()))))
        }
        _ => Ok(None),
    })
}

/// The current pool, if its `spec` is the planned one.
fn as_planned(key: &Key, stored: Option<&Current<'_>>, planned: &Document) -> Result<Document, EditError> {
    let Some(stored) = stored else { return Err(EditError::Gone(key.clone())) };
    let Some(Object::Pool(pool)) = stored.object.as_deref() else {
        return Err(EditError::Undecodable(key.clone()));
    };
    if pool.spec() != planned.spec() {
        return Err(EditError::Changed(key.clone()));
    }
    Ok(pool.clone())
}

fn may_be_deleted(key: &Key, stored: Option<&Current<'_>>, planned: &Document) -> Result<(), EditError> {
    let pool = as_planned(key, stored, planned)?;
    match pool.finalizers().first() {
        Some(finalizer) => Err(EditError::HasFinalizer { key: key.clone(), finalizer: (*finalizer).into() }),
        None if pool.is_being_deleted() => Err(EditError::BeingDeletedByOthers(key.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use jiff::Timestamp;

    use super::*;
    use crate::edit::apply;
    use crate::snapshot::Revision;

    fn pool(text: &str) -> Document {
        Document::parse(text.as_bytes()).unwrap()
    }

    /// Deletes a pool whose `spec` was `planned` in the plan, and is `now`.
    fn delete(planned: &str, now: Option<&str>) -> Result<Vec<(Key, Option<Object>)>, EditError> {
        edit(PoolEdit::Delete(pool(planned)), now)
    }

    fn edit(edit: PoolEdit, now: Option<&str>) -> Result<Vec<(Key, Option<Object>)>, EditError> {
        let edit = Edit::Pool("p".into(), edit);
        let revision = Revision::Etcd(7);
        let now = now.map(|now| Object::Pool(pool(now)));
        apply([&edit], Timestamp::UNIX_EPOCH, |_| {
            now.as_ref().map(|object| Current { revision: &revision, object: Some(Cow::Borrowed(object)) })
        })
    }

    #[test]
    fn a_pool_is_deleted_only_as_it_was_planned() {
        let planned = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"}}"#;
        let key = Key::Pool("p".into());
        assert_eq!(delete(planned, Some(planned)), Ok(vec![(key.clone(), None)]));
        let with_status = r#"{"metadata":{"name":"p","x":1},"spec":{"cidr":"10.0.0.0/24"},"status":{}}"#;
        assert_eq!(delete(planned, Some(with_status)), Ok(vec![(key, None)]), "a status is no change");

        let disabled = r#"{"spec":{"cidr":"10.0.0.0/24","disabled":true}}"#;
        assert!(delete(planned, Some(disabled)).unwrap_err().to_string().contains("has changed"));
        let kept = r#"{"metadata":{"finalizers":["x/y"]},"spec":{"cidr":"10.0.0.0/24"}}"#;
        assert!(delete(planned, Some(kept)).unwrap_err().to_string().contains("finalizer x/y"));
        let going =
            r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/24"}}"#;
        assert!(delete(planned, Some(going)).unwrap_err().to_string().contains("being deleted"));
        assert!(delete(planned, None).unwrap_err().to_string().contains("is gone"));
    }

    #[test]
    fn a_pool_is_disabled_and_enabled_only_as_it_was_planned() {
        let planned = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"},"status":{"x":1}}"#;
        let disabled = pool(
            r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24","disabled":true},"status":{"x":1}}"#,
        );
        let disable = |now| edit(PoolEdit::Disable(pool(planned)), now);
        let changed = |pool| Ok(vec![(Key::Pool("p".into()), Some(Object::Pool(pool)))]);
        assert_eq!(disable(Some(planned)), changed(disabled.clone()));
        let enabled =
            edit(PoolEdit::Enable(disabled.clone()), Some(&serde_json::to_string(&disabled).unwrap()));
        let mut expected = pool(planned);
        expected.set_disabled(false);
        assert_eq!(enabled, changed(expected));
        assert!(
            edit(PoolEdit::Enable(disabled), Some(planned)).unwrap_err().to_string().contains("has changed")
        );
        let other = r#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.1.0/24"}}"#;
        assert!(disable(Some(other)).unwrap_err().to_string().contains("has changed"));
        assert!(disable(None).unwrap_err().to_string().contains("is gone"));
    }

    #[test]
    fn the_configuration_is_written_over_the_version_that_was_read_only() {
        let config = Document::parse(br#"{"strict_affinity":true}"#).unwrap();
        let stored = Object::IpamConfig(Document::default());
        let (seven, eight) = (Revision::Etcd(7), Revision::Etcd(8));
        let run = |edit: ConfigEdit, stored: Option<&Object>| {
            apply([&Edit::IpamConfig(edit)], Timestamp::UNIX_EPOCH, |_| {
                stored.map(|object| Current { revision: &seven, object: Some(Cow::Borrowed(object)) })
            })
        };
        let written = Ok(vec![(Key::IpamConfig, Some(Object::IpamConfig(config.clone())))]);
        assert_eq!(run(ConfigEdit::Replace(seven.clone(), config.clone()), Some(&stored)), written);
        assert_eq!(run(ConfigEdit::Create(config.clone()), None), written);
        assert!(run(ConfigEdit::Replace(eight, config.clone()), Some(&stored)).is_err());
        assert!(run(ConfigEdit::Replace(seven.clone(), config.clone()), None).is_err());
        assert!(run(ConfigEdit::Create(config), Some(&stored)).is_err());
    }
}
