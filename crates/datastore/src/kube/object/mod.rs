//! From one object of Kubernetes to the objects of a snapshot.

mod containers;
mod custom;
mod machine;
mod meta;
pub(super) mod names;
mod node;
mod pod;
mod service;
mod table;
mod wire;

use calipam_model::key::Key;
use calipam_model::snapshot::{Defect, DefectKind, FieldDefect, Snapshot};

pub(super) use self::custom::{
    add_affinity, add_block, add_classic_ipam_config, add_cluster, add_handle, add_ipam_config,
    add_kube_controllers, add_pool, add_reservation,
};
pub(super) use self::machine::add_machine;
pub(super) use self::node::{add_node, add_node_name};
pub(super) use self::pod::add_pod;
pub(super) use self::service::add_service;
pub(super) use self::table::{KnownKind, by_name, by_plural};
use super::items::Encoding;

/// Adds one object to a snapshot. What cannot be understood becomes a [`Defect`].
pub(super) type AddObject = fn(&mut Snapshot, &[u8], Encoding);

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
fn path(plural: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{plural}/{name}") } else { format!("{plural}/{namespace}/{name}") }
}
