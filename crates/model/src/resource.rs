//! The structure that all v3 API resources share (facts 1.13).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::DecodeError;
use crate::json;
use crate::stored::FieldDefect;
use crate::time::parse_time;

/// The annotation with Calico's own metadata on Kubernetes (facts 2.8).
pub(crate) const METADATA: &str = "projectcalico.org/metadata";

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
    annotations: Option<BTreeMap<String, String>>,
    pub deletion_timestamp: Option<String>,
    pub creation_timestamp: Option<String>,
}

impl Metadata {
    /// Returns the annotation with this name; `None` if there is none. Also looks in [`METADATA`], where Calico's
    /// client keeps annotations on Kubernetes.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct CalicoMetadata {
            annotations: Option<BTreeMap<String, String>>,
        }
        let annotations = self.annotations.as_ref()?;
        if let Some(value) = annotations.get(name) {
            return Some(value.clone());
        }
        let calico_metadata: CalicoMetadata = serde_json::from_str(annotations.get(METADATA)?).ok()?;
        calico_metadata.annotations?.remove(name)
    }

    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_deref().and_then(parse_time)
    }
}

/// A decoded object.
#[derive(Debug)]
pub struct Parsed<T> {
    pub value: T,
    /// Invalid fields, which were omitted.
    pub defects: Vec<FieldDefect>,
    pub created: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Status {
    pub conditions: Option<Vec<Condition>>,
    /// The node's WireGuard key; only in nodes.
    #[serde(rename = "wireguardPublicKey")]
    pub wireguard_key: Option<String>,
    #[serde(rename = "wireguardPublicKeyV6")]
    pub wireguard_key_v6: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub status: Option<String>,
    pub reason: Option<String>,
}

/// Reads a resource. Parts that it lacks are empty.
pub(crate) fn read<T: DeserializeOwned + Default>(
    bytes: &[u8],
) -> Result<(Metadata, T, Status), DecodeError> {
    let resource: Resource<T> = json::from_slice(bytes)?;
    Ok((
        resource.metadata.unwrap_or_default(),
        resource.spec.unwrap_or_default(),
        resource.status.unwrap_or_default(),
    ))
}
