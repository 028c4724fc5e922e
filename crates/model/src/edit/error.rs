//! Errors of edits, such as an object that has changed since it was read.

use std::net::IpAddr;

use crate::block::AssignError;
use crate::key::Key;

/// The reason why an edit cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("{0} already exists")]
    Exists(Key),
    #[error("{0} is gone")]
    Gone(Key),
    #[error("{0} has changed since it was read")]
    Changed(Key),
    #[error("{0} cannot be decoded")]
    Undecodable(Key),
    /// The block is missing, cannot be decoded, or is corrupt.
    #[error("{0} is gone or cannot be decoded")]
    Unusable(Key),
    /// The block has Calico's deletion mark.
    #[error("{0} is being deleted")]
    BeingDeleted(Key),
    #[error("{0} is being deleted by others")]
    BeingDeletedByOthers(Key),
    #[error("{key} has the finalizer {finalizer}")]
    HasFinalizer { key: Key, finalizer: String },
    #[error("the owner of {0} has changed since it was read")]
    AnotherOwner(Key),
    #[error("{0} holds addresses")]
    NotEmpty(Key),
    #[error("{0} cannot be created, replaced or deleted after other edits")]
    NotFirst(Key),
    #[error("{key}: {error}")]
    Ordinal { key: Key, error: AssignError },
    #[error("{key}: {address} is already free")]
    Free { key: Key, address: IpAddr },
    #[error("{key}: {address} has been released since it was read")]
    Released { key: Key, address: IpAddr },
    #[error("{key}: {address} has been reassigned since it was read")]
    Reassigned { key: Key, address: IpAddr },
}
