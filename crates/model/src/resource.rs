//! The outer form of all resources of the v3 API (facts 1.13).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The outer form of all resources.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource<T> {
    metadata: Option<Metadata>,
    spec: Option<T>,
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub labels: Option<BTreeMap<String, String>>,
    pub deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Status {
    pub conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub status: Option<String>,
}

/// Reads one resource.
pub(crate) fn read<T: DeserializeOwned + Default>(json: &[u8]) -> Result<(Metadata, T, Status), String> {
    let resource: Resource<T> = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    Ok((
        resource.metadata.unwrap_or_default(),
        resource.spec.unwrap_or_default(),
        resource.status.unwrap_or_default(),
    ))
}
