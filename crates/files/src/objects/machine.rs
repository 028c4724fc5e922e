//! KubeVirt machines (facts 2.14): only `metadata` is requested, for namespace, name and owner.

use calipam_model::service::Machine;
use calipam_model::snapshot::{Snapshot, Versioned};
use serde::{Deserialize, Serialize};

use super::list_splitter::Encoding;
use super::meta::{Meta, Wanted};
use super::wire::decode;
use super::{Result, to_json};

const WANTED: Wanted = Wanted { labels: false, annotations: &[], owners: true };

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct MachineObject<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

/// Adds a VirtualMachine or VirtualMachineInstance.
pub(crate) fn add_machine(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Result<()> {
    let meta = read(object, encoding)?;
    let value = Machine {
        namespace: meta.namespace.to_string(),
        name: meta.name.to_string(),
        is_owned: meta.owner_references.iter().any(|owner| owner.kind == "VirtualMachine"),
    };
    snapshot.machines.push(Versioned { value, revision: meta.revision() });
    Ok(())
}

/// Reduces a machine to the part for an export.
pub(crate) fn export_machine(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    to_json(&MachineObject { metadata: read(object, encoding)?.for_export(WANTED) })
}

fn read(object: &[u8], encoding: Encoding) -> Result<Meta<'_>> {
    if encoding == Encoding::Json {
        let object: MachineObject<'_> = serde_json::from_slice(object)?;
        return Ok(object.metadata);
    }
    decode!(object, meta: Meta<'_>, value, { 1 => meta = Meta::from_protobuf(value.bytes(), WANTED)? })
}
