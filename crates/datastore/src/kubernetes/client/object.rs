//! Objects and lists in JSON, with the fields that queries need. Missing fields are empty, and so are maps and lists in
//! `metadata` that are `null`.

use std::collections::BTreeMap;

use calipam_files::objects::ListMeta;
use calipam_model::or_empty;
use calipam_model::snapshot::{ObjectVersion, Revision};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// An object with the wanted parts of its `spec` and `status`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Object<S = IgnoredAny, T = IgnoredAny> {
    pub metadata: Metadata,
    pub spec: S,
    pub status: T,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "or_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_empty")]
    pub owner_references: Vec<Owner>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    #[serde(deserialize_with = "or_empty")]
    pub controller: bool,
}

pub(crate) type Pod = Object<PodSpec, PodStatus>;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub node_name: String,
    pub host_network: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    pub phase: String,
    pub conditions: Vec<Condition>,
    #[serde(rename = "podIP")]
    pub address: String,
    #[serde(rename = "podIPs")]
    pub addresses: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub last_transition_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Address {
    pub ip: String,
}

/// A list, or a page of one.
#[derive(Deserialize)]
#[serde(bound(deserialize = "I: Deserialize<'de>"))]
pub(crate) struct List<I> {
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects. Servers write `null` if there are none.
    #[serde(deserialize_with = "or_empty")]
    pub items: Vec<I>,
}

impl Metadata {
    /// Takes the version and the UID of the object as its revision.
    pub(crate) fn revision(self) -> Revision {
        let Self {
            resource_version,
            uid,
            ..
        } = self;
        Revision::Kubernetes(Box::new(ObjectVersion {
            resource_version,
            uid,
            ..ObjectVersion::default()
        }))
    }
}
