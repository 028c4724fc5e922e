//! Objects as a writer reads them.

use bytes::Bytes;
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::Revision;

/// An object as it is stored now.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Which version of it was read.
    pub revision: Revision,
    /// The value: in etcd as it is stored, on Kubernetes the JSON of `spec` in the form of etcd.
    pub raw: Bytes,
    /// `None` where it cannot be decoded, and for kinds that a repair does not edit, such as a node that is evidence.
    pub object: Option<Object>,
}

impl Stored {
    /// What etcd holds under `key`.
    pub(crate) fn new(key: &Key, revision: Revision, raw: Bytes) -> Self {
        let object = Object::parse(key, &raw).ok().flatten();
        Self { revision, raw, object }
    }

    /// Marked deleted: the first of the two steps in which objects are deleted on Kubernetes.
    pub fn is_deleted(&self) -> bool {
        self.object.as_ref().is_some_and(Object::is_deleted)
    }
}
