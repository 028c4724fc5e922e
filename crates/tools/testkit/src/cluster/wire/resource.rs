//! The common parts of all v3 API resources (facts 1.13).

use std::collections::BTreeMap;

use serde::Serialize;

/// The `metadata`, in Calico's order of fields.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// The prefix of the pod names of a deployment; empty for pods with a fixed name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// The namespace; empty for cluster-scoped resources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub uid: String,
    /// RFC 3339, whole seconds, UTC.
    pub creation_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A v3 API resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource<S> {
    kind: &'static str,
    api_version: &'static str,
    pub metadata: Metadata,
    pub spec: S,
    /// The status; absent if Calico writes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<serde_json::Value>,
}

impl<S> Resource<S> {
    /// Creates a resource without status.
    pub fn new(kind: &'static str, metadata: Metadata, spec: S) -> Self {
        Self { kind, api_version: "projectcalico.org/v3", metadata, spec, status: None }
    }
}
