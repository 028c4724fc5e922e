//! From one object of Kubernetes to the objects of a snapshot.

mod containers;
mod custom;
mod machine;
mod meta;
pub(super) mod names;
mod node;
mod pod;
mod service;
mod wire;

use calipam_model::key::Key;
use calipam_model::snapshot::{Defect, DefectKind, FieldDefect, Snapshot};

pub(super) use self::custom::{
    add_affinity, add_block, add_classic_ipam_config, add_cluster, add_handle, add_ipam_config,
    add_kube_controllers, add_pool, add_reservation, export_custom,
};
pub(super) use self::machine::{add_machine, export_machine};
pub(super) use self::meta::identify;
pub(super) use self::node::{add_node, add_node_name, export_node};
pub(super) use self::pod::{add_pod, export_pod};
pub(super) use self::service::{add_service, export_service};
use serde::Serialize;

use super::items::Encoding;

/// Adds one object to a snapshot. What cannot be understood becomes a [`Defect`].
pub(super) type AddObject = fn(&mut Snapshot, &[u8], Encoding);

/// What an export keeps of an object, as JSON; `None` where it is of no interest.
pub(super) type ExportObject = fn(&[u8], Encoding) -> Result<Option<Vec<u8>>, String>;

/// An object of the core group in an export.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exported<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: T,
}

fn export<T: Serialize>(kind: &'static str, object: T) -> Result<Option<Vec<u8>>, String> {
    to_json(&Exported { api_version: "v1", kind, object })
}

fn to_json(object: &impl Serialize) -> Result<Option<Vec<u8>>, String> {
    serde_json::to_vec(object).map(Some).map_err(|error| error.to_string())
}

/// Notes an object that cannot be understood.
fn note_value(snapshot: &mut Snapshot, path: String, key: Option<Key>, reason: String) {
    snapshot.defects.push(Defect { path, key, kind: DefectKind::Value(reason) });
}

/// Notes fields that make no sense, where there are any.
fn note_fields(snapshot: &mut Snapshot, path: String, key: Key, fields: Vec<FieldDefect>) {
    if !fields.is_empty() {
        snapshot.defects.push(Defect { path, key: Some(key), kind: DefectKind::Fields(fields) });
    }
}

/// `<plural>/[<namespace>/]<name>`, by which a finding names an object.
pub(super) fn path(plural: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{plural}/{name}") } else { format!("{plural}/{namespace}/{name}") }
}
