//! Objects of which only `metadata` is read: KubeVirt machines (facts 2.14) and namespaces. Pools select namespaces by
//! their labels, and a namespace's annotations can name pools.

use calipam_model::pod::Namespace;
use calipam_model::service::Machine;
use calipam_model::snapshot::{Snapshot, Versioned};
use serde::{Deserialize, Serialize};

use super::list_splitter::Encoding;
use super::meta::{Labels, Meta, Wanted};
use super::pod::{FAMILIES, V4_POOLS, V6_POOLS, annotations};
use super::wire::decode;
use super::{Added, Result, export, to_json};

const OF_MACHINE: Wanted = Wanted {
    labels: Labels::None,
    annotations: &[],
    owners: true,
};
const OF_NAMESPACE: Wanted = Wanted {
    labels: Labels::All,
    annotations: &[V4_POOLS, V6_POOLS, FAMILIES],
    owners: false,
};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Bare<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

impl<'a> Bare<'a> {
    fn read(object: &'a [u8], encoding: Encoding, wanted: Wanted) -> Result<Self> {
        if encoding == Encoding::Json {
            return Ok(serde_json::from_slice(object)?);
        }
        decode!(object, bare: Self, value, { 1 => bare.metadata = Meta::from_protobuf(value.bytes(), wanted)? })
    }
}

pub(crate) fn add_virtual_machine(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    snapshot.machines.push(read_machine(object, encoding)?);
    Ok(Vec::new())
}

pub(crate) fn add_instance(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let mut instance = read_machine(object, encoding)?;
    instance.value.is_instance = true;
    snapshot.machines.push(instance);
    Ok(Vec::new())
}

/// Reads a virtual machine. An instance of one has the same fields.
fn read_machine(object: &[u8], encoding: Encoding) -> Result<Versioned<Machine>> {
    let meta = Bare::read(object, encoding, OF_MACHINE)?.metadata;
    let value = Machine {
        namespace: meta.namespace.to_string(),
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        is_instance: false,
        is_owned: meta
            .owner_references
            .iter()
            .any(|owner| *owner.kind == *"VirtualMachine"),
    };
    Ok(Versioned {
        value,
        revision: meta.revision(),
    })
}

/// Reduces a machine to the part that an export keeps.
pub(crate) fn export_machine(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    to_json(&Bare {
        metadata: Bare::read(object, encoding, OF_MACHINE)?
            .metadata
            .for_export(OF_MACHINE),
    })
}

/// Adds a namespace with its labels and annotations.
pub(crate) fn add_namespace(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Added {
    let Bare { metadata } = Bare::read(object, encoding, OF_NAMESPACE)?;
    let annotations = annotations(&metadata);
    let labels = metadata
        .labels
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()));
    let namespace = Namespace {
        labels: labels.collect(),
        annotations,
    };
    snapshot
        .namespaces
        .get_or_insert_default()
        .insert(metadata.name.into(), namespace);
    Ok(Vec::new())
}

/// Reduces a namespace to the part that an export keeps.
pub(crate) fn export_namespace(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let metadata = Bare::read(object, encoding, OF_NAMESPACE)?
        .metadata
        .for_export(OF_NAMESPACE);
    export("Namespace", Bare { metadata })
}
