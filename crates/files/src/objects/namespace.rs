//! Namespaces: their labels, by which pools select them, and their annotations that name pools.

use calipam_model::pod::{self, listed};
use calipam_model::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::Result;
use super::list_splitter::Encoding;
use super::meta::{Meta, Wanted};
use super::pod::{V4_POOLS, V6_POOLS};
use super::wire::decode;

const WANTED: Wanted = Wanted { labels: true, annotations: &[V4_POOLS, V6_POOLS], owners: false };

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Namespace<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

/// Adds a namespace.
pub(crate) fn add(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) -> Result<()> {
    let Namespace { metadata } = read(object, encoding)?;
    let pools = [V4_POOLS, V6_POOLS].map(|name| listed(metadata.annotation(name)));
    let labels = metadata.labels.into_iter().map(|(name, value)| (name.into(), value.into()));
    let namespace = pod::Namespace { labels: labels.collect(), pools };
    snapshot.namespaces.get_or_insert_default().insert(metadata.name.into(), namespace);
    Ok(())
}

/// Reduces a namespace to the part for an export.
pub(crate) fn export(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>> {
    let metadata = read(object, encoding)?.metadata.for_export(WANTED);
    super::export("Namespace", Namespace { metadata })
}

fn read(object: &[u8], encoding: Encoding) -> Result<Namespace<'_>> {
    if encoding == Encoding::Json {
        return Ok(serde_json::from_slice(object)?);
    }
    decode!(object, namespace: Namespace<'_>, value, {
        1 => namespace.metadata = Meta::from_protobuf(value.bytes(), WANTED)?,
    })
}
