//! The current state of an object, and what an edit requires of it.

use std::borrow::Cow;

use super::EditError;
use super::error::{CHANGED, GONE};
use crate::key::Key;
use crate::stored::Revision;
use crate::writable::Object;

/// The current state of an object.
#[derive(Clone, Debug)]
pub struct Current<'a> {
    pub revision: &'a Revision,
    /// `None` if it cannot be decoded. It can still be replaced or deleted, but not edited.
    pub object: Option<Cow<'a, Object>>,
}

/// Checks that the object is still the version that was read.
pub(super) fn check_version(
    key: &Key,
    stored: Option<&Current<'_>>,
    version: &Revision,
) -> Result<(), EditError> {
    let Some(stored) = stored else {
        return Err(EditError::new(key, GONE));
    };
    if stored.revision.to_string() != version.to_string() {
        return Err(EditError::new(key, CHANGED));
    }
    Ok(())
}

pub(super) fn check_absent(key: &Key, stored: Option<&Current<'_>>) -> Result<(), EditError> {
    if stored.is_some() {
        return Err(EditError::new(key, "already exists"));
    }
    Ok(())
}
