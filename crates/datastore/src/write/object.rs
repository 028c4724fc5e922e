//! Objects that a writer reads.

use bytes::Bytes;
use calipam_model::edit::{Found, User};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::writable::Object;

/// The current state of a stored object.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The version that was read.
    pub revision: Revision,
    /// The value: in etcd as stored, on Kubernetes the JSON of `spec` in etcd's form.
    pub raw: Bytes,
    /// The whole object from Kubernetes, whose other fields are kept when it is replaced.
    pub whole: Option<Bytes>,
    /// `None` if it cannot be decoded, and for kinds that a repair does not edit.
    pub object: Option<Object>,
    /// The addresses that it uses, if it is a Kubernetes object that a repair only reads.
    pub user: Option<User>,
}

impl Stored {
    /// Creates the state from the value under `key` in etcd.
    pub(crate) fn new(key: &Key, revision: Revision, raw: Bytes) -> Self {
        let object = Object::parse(key, &raw).ok().flatten();
        Self { revision, raw, whole: None, object, user: None }
    }

    /// The state of the object, for conditions of evidence.
    pub fn found(&self) -> Found<'_> {
        match (&self.object, &self.user, &self.revision) {
            (Some(object), ..) => Found::Object(object),
            (None, Some(user), Revision::Kubernetes(version)) => Found::User(&version.uid, user),
            _ => Found::Unknown,
        }
    }

    /// True if the object is marked as deleted: the first of the two steps to delete on Kubernetes.
    pub fn is_deleted(&self) -> bool {
        self.object.as_ref().is_some_and(Object::is_deleted)
    }
}
