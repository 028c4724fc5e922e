//! Kubernetes objects: Calico's custom resources in one of two API groups, and the pods, nodes, services and machines
//! that use addresses. Objects of built-in kinds can arrive as protobuf, and so can any objects of which only
//! `metadata` is requested. All other objects arrive as JSON.

mod bare;
mod containers;
mod custom;
pub mod kinds;
pub(crate) mod list_splitter;
pub mod meta;
pub mod names;
mod node;
mod pod;
mod service;
mod wire;

use calipam_model::DecodeError;
use calipam_model::snapshot::{FieldDefect, Snapshot};

use serde::Serialize;

pub use self::kinds::{Accept, Flavour, KUBEVIRT_GROUP, KnownKind};
pub use self::list_splitter::{Encoding, ItemReader, ListMeta, protobuf};
pub use self::node::IPIP;
pub use self::pod::{CNI_IP, CNI_IPS, FIXED, NO_IPAM, V4_POOLS, V6_POOLS};

type Result<T, E = DecodeError> = std::result::Result<T, E>;

/// The invalid fields of an object that was added.
type Added = Result<Vec<FieldDefect>>;

/// Adds one object to a snapshot.
type AddObject = fn(&mut Snapshot, &[u8], Encoding) -> Added;

/// Reduces an object to the part that an export keeps, as JSON; `None` if the object is not needed.
type ExportObject = fn(&[u8], Encoding) -> Result<Option<Vec<u8>>>;

/// An object from the core group in an export.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exported<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: T,
}

fn export<T: Serialize>(kind: &'static str, object: T) -> Result<Option<Vec<u8>>> {
    to_json(&Exported {
        api_version: "v1",
        kind,
        object,
    })
}

fn to_json(object: &impl Serialize) -> Result<Option<Vec<u8>>> {
    Ok(Some(serde_json::to_vec(object)?))
}

/// `<plural>/[<namespace>/]<name>`, the name of an object in findings.
pub fn path(plural: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        format!("{plural}/{name}")
    } else {
        format!("{plural}/{namespace}/{name}")
    }
}

/// `[<namespace>/]<name>`, by which the objects of a kind are sorted.
pub fn name_in_kind(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}
