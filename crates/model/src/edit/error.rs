//! Errors of edits, such as an object that has changed since it was read.

use std::fmt::Display;

use crate::key::Key;

pub(super) const GONE: &str = "is gone";
pub(super) const CHANGED: &str = "has changed since it was read";
pub(super) const UNDECODABLE: &str = "cannot be decoded";

/// The reason why an edit cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EditError(String);

impl EditError {
    /// An error like `block 10.244.1.0/26 is gone`.
    pub(super) fn new(key: &Key, problem: impl Display) -> Self {
        Self(format!("{} {problem}", key.named()))
    }

    /// An error in a part of the object.
    pub(super) fn in_part(key: &Key, problem: impl Display) -> Self {
        Self(format!("{}: {problem}", key.named()))
    }

    pub(super) fn another_owner(key: &Key) -> Self {
        Self(format!("the owner of {} {CHANGED}", key.named()))
    }
}
