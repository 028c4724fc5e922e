//! One object as a datastore has it: its version, its invalid fields, and the kind of datastore.

use std::collections::BTreeMap;
use std::fmt;

/// The version of an object that was read. Can only be compared for equality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The modification revision of an etcd key.
    Etcd(i64),
    /// The UID, resource version and labels of a Kubernetes object.
    Kubernetes(Box<ObjectVersion>),
}

/// The identity and version of a Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectVersion {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.labels`; in a snapshot only those of affinities.
    pub labels: BTreeMap<String, String>,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(revision) => write!(f, "{revision}"),
            Self::Kubernetes(version) => f.write_str(&version.resource_version),
        }
    }
}

/// An object with the version that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    pub value: T,
    pub revision: Revision,
}

/// An invalid field in an object that was decoded without it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FieldDefect {
    /// The path of the field in the object.
    pub field: String,
    /// The problem with the field.
    pub reason: String,
}

impl FieldDefect {
    pub fn new(field: &str, reason: String) -> Self {
        Self {
            field: field.to_owned(),
            reason,
        }
    }
}

/// The datastore that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatastoreKind {
    #[default]
    Etcd,
    /// etcd v2, from Calico 2.x.
    EtcdV2,
    Kubernetes,
}

crate::display_serialized!(DatastoreKind);
