//! Objects as a writer reads them.

use bytes::Bytes;
use calipam_model::edit::{Found, User};
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::writable::Object;

/// An object as it is stored now.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Which version of it was read.
    pub revision: Revision,
    /// The value: in etcd as it is stored, on Kubernetes the JSON of `spec` in the form of etcd.
    pub raw: Bytes,
    /// The whole object where Kubernetes has sent it: what replaces it keeps what is not changed.
    pub whole: Option<Bytes>,
    /// `None` if it cannot be decoded, and for kinds that a repair does not edit.
    pub object: Option<Object>,
    /// What it says about addresses, if it is an object of Kubernetes that a repair only looks at.
    pub user: Option<User>,
}

impl Stored {
    /// What etcd holds under `key`.
    pub(crate) fn new(key: &Key, revision: Revision, raw: Bytes) -> Self {
        let object = Object::parse(key, &raw).ok().flatten();
        Self { revision, raw, whole: None, object, user: None }
    }

    /// What was read, for the conditions of evidence.
    pub fn found(&self) -> Found<'_> {
        match (&self.object, &self.user, &self.revision) {
            (Some(object), ..) => Found::Object(object),
            (None, Some(user), Revision::Kubernetes(version)) => Found::User(&version.uid, user),
            _ => Found::Unknown,
        }
    }

    /// Marked deleted: the first of the two steps in which objects are deleted on Kubernetes.
    pub fn is_deleted(&self) -> bool {
        self.object.as_ref().is_some_and(Object::is_deleted)
    }
}
