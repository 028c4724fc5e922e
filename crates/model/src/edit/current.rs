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
pub(super) fn is_version(key: &Key, stored: Option<&Revision>, version: &Revision) -> Result<(), EditError> {
    match stored {
        Some(stored) if stored.to_string() == version.to_string() => Ok(()),
        Some(_) => Err(EditError::of(key, CHANGED)),
        None => Err(EditError::of(key, GONE)),
    }
}

pub(super) fn is_absent(key: &Key, stored: Option<&Current<'_>>) -> Result<(), EditError> {
    stored.map_or(Ok(()), |_| Err(EditError::of(key, "already exists")))
}
