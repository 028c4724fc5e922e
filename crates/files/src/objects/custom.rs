//! Calico's custom resources. They arrive as JSON, even if another encoding is requested.

use std::borrow::Cow;

use calipam_model::IpNet;
use calipam_model::affinity::{AFFINITY_TYPE, Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::block::{BlockContent, RecordDetail};
use calipam_model::cidr::{self, parse_cidr};
use calipam_model::config::{ClusterInformation, IpamConfig, KubeControllersConfiguration, parse_go_bool};
use calipam_model::handle::{self, Handle};
use calipam_model::key::DEFAULT;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::snapshot::{FieldDefect, Snapshot, StoredBlock, Versioned};
use calipam_model::{DecodeError, Parsed, RawJson, Unknown, from_json};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::list_splitter::Encoding;
use super::meta::{Meta, identify};
use super::names::{affinity_name, cidr_of_block};
use super::{Added, Result, to_json};

/// A custom resource whose `spec` is read later.
#[derive(Deserialize)]
struct CustomResource<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

impl<'a> CustomResource<'a> {
    fn read(json: &'a [u8]) -> Result<(Meta<'a>, &'a [u8])> {
        let object: Self = from_json(json)?;
        let spec = object.spec.ok_or_else(|| DecodeError::missing("spec"))?;
        Ok((object.metadata, spec.get().as_bytes()))
    }
}

/// Reduces a custom resource to the part that an export keeps: everything except its managed fields.
pub(crate) fn export_custom(json: &[u8], _: Encoding) -> Result<Option<Vec<u8>>> {
    let mut object: Value = serde_json::from_slice(json)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    to_json(&object)
}

/// Adds an IPAMBlock. Its key is the CIDR in its name, or the one in its value if the name is not a CIDR.
pub(crate) fn add_block(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (meta, spec) = CustomResource::read(json)?;
    let content = BlockContent::parse_with(spec, snapshot.records)?;
    let mut key = content.cidr();
    let mut defects = Vec::new();
    let expected_name = cidr::resource_name(key);
    if meta.name != expected_name {
        match cidr_of_block(&meta.name) {
            Some(cidr_of_name) => key = cidr_of_name,
            None => defects = wrong_name(&meta.name, &expected_name),
        }
    }
    snapshot.blocks.push(Versioned {
        value: StoredBlock { key, content },
        revision: meta.revision(),
    });
    Ok(defects)
}

/// Adds an IPAMBlock with its records reduced to [`RecordDetail::Borrowers`].
pub(crate) fn add_reduced_block(snapshot: &mut Snapshot, json: &[u8], encoding: Encoding) -> Added {
    snapshot.records = RecordDetail::Borrowers;
    add_block(snapshot, json, encoding)
}

pub(super) fn cidr_in_spec(json: &[u8]) -> Option<IpNet> {
    let (_, spec) = CustomResource::read(json).ok()?;
    BlockContent::parse(spec).ok().map(|content| content.cidr())
}

/// The defect of an object whose name differs from the one that Calico looks up.
fn wrong_name(name: &str, expected: &str) -> Vec<FieldDefect> {
    if name == expected {
        return Vec::new();
    }
    let reason = format!("{name:?}, but Calico looks for this object by the name {expected:?}");
    vec![FieldDefect::new("metadata.name", reason)]
}

/// Adds an IPAMHandle. The ID is in `spec`; the name is the lowercase ID.
pub(crate) fn add_handle(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (meta, spec) = CustomResource::read(json)?;
    let handle = Handle::parse_spec(spec)?;
    let defects = wrong_name(&meta.name, &handle::resource_name(&handle.id().to_string()));
    snapshot.handles.push(Versioned {
        value: handle,
        revision: meta.revision(),
    });
    Ok(defects)
}

/// `spec.handleID` of a handle.
pub(super) fn id_in_spec(json: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(json).ok()?;
    value["spec"]["handleID"]
        .as_str()
        .map(str::to_owned)
        .filter(|id| !id.is_empty())
}

/// A BlockAffinity's `spec`.
#[derive(Deserialize)]
struct AffinitySpec<'a> {
    #[serde(borrow)]
    cidr: Option<Cow<'a, str>>,
    #[serde(borrow)]
    node: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    deleted: Option<Value>,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// Adds an affinity. A name that does not belong to its holder and block is a defect.
pub(crate) fn add_affinity(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (meta, spec) = CustomResource::read(json)?;
    let affinity = affinity(spec, &meta)?;
    let defects = wrong_name(&meta.name, &affinity_name(&affinity.key));
    snapshot.affinities.push(Versioned {
        value: affinity,
        revision: meta.revision_with_labels(),
    });
    Ok(defects)
}

/// Reads an affinity from its `spec`.
fn affinity(spec: &[u8], meta: &Meta<'_>) -> Result<Affinity> {
    let spec: AffinitySpec<'_> = serde_json::from_slice(spec)?;
    let key = affinity_key(&spec, meta)?;
    let state = spec.state.as_deref().unwrap_or_default();
    let mut affinity = Affinity {
        is_unstated: state.is_empty(),
        ..Affinity::new(key, AffinityState::parse(state))
    };

    if let Some(deleted) = &spec.deleted {
        affinity.deleted = parse_deleted(deleted)?;
    }

    let mut unknown = Unknown::default();
    for (name, value) in &spec.unknown {
        unknown.insert(name.clone(), RawJson::try_from(value)?);
    }
    if !unknown.is_empty() {
        affinity.unknown = Some(Box::new(unknown));
    }
    Ok(affinity)
}

/// Parses the field `deleted` of an affinity. Calico's field is a string, but a boolean is accepted, too.
fn parse_deleted(value: &Value) -> Result<bool> {
    let deleted = match value {
        Value::Null => Some(false),
        Value::Bool(deleted) => Some(*deleted),
        Value::String(text) if text.is_empty() => Some(false),
        other => other.as_str().and_then(parse_go_bool),
    };
    deleted.ok_or_else(|| DecodeError(format!("`deleted` is {value}, which is neither true nor false")))
}

/// The affinity's holder and block. Calico's aggregated API omits `spec.type`, but Calico 3.31 and later also sets a
/// label with the type.
fn affinity_key(spec: &AffinitySpec<'_>, meta: &Meta<'_>) -> Result<AffinityKey> {
    let Some(cidr) = spec.cidr.as_deref() else {
        return Err(DecodeError::missing("cidr"));
    };
    let cidr = parse_cidr(cidr).ok_or_else(|| DecodeError::not_a_cidr("cidr", cidr))?;
    let node = spec.node.as_deref().unwrap_or_default();
    if node.is_empty() {
        return Err(DecodeError::missing("node"));
    }
    let kind = match spec.kind.as_deref() {
        Some(kind) if !kind.is_empty() => kind,
        _ => meta.label(AFFINITY_TYPE).unwrap_or_default(),
    };
    Ok(AffinityKey {
        kind: AffinityType::parse(kind),
        node: node.to_owned(),
        cidr,
    })
}

pub(super) fn affinity_in_spec(json: &[u8]) -> Option<AffinityKey> {
    let (meta, spec) = CustomResource::read(json).ok()?;
    affinity_key(&serde_json::from_slice(spec).ok()?, &meta).ok()
}

pub(crate) fn add_pool(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (pool, defects) = read_resource(snapshot, json, Pool::parse)?;
    snapshot.pools.push(pool);
    Ok(defects)
}

pub(crate) fn add_reservation(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (reservation, defects) = read_resource(snapshot, json, Reservation::parse)?;
    snapshot.reservations.push(reservation);
    Ok(defects)
}

/// Adds ClusterInformation `default`. Objects with other names mean nothing to Calico.
pub(crate) fn add_cluster(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (_, name) = identify(json, Encoding::Json);
    if name != DEFAULT {
        return Ok(Vec::new());
    }
    let (meta, _) = CustomResource::read(json)?;
    snapshot.cluster = Some(ClusterInformation::parse(json)?);
    snapshot.cluster_revision = Some(meta.revision());
    Ok(Vec::new())
}

/// Adds KubeControllersConfiguration `default`, and returns its fields that cannot be read. Objects with other names
/// mean nothing to Calico.
pub(crate) fn add_kube_controllers(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (_, name) = identify(json, Encoding::Json);
    if name != DEFAULT {
        return Ok(Vec::new());
    }
    CustomResource::read(json)?;
    let (config, defects) = KubeControllersConfiguration::parse(json)?;
    snapshot.kube_controllers = Some(config);
    Ok(defects)
}

/// Adds the allocator's configuration `default`: IPAMConfiguration in the native group, IPAMConfig in the classic one.
pub(crate) fn add_ipam_config(snapshot: &mut Snapshot, json: &[u8], _: Encoding) -> Added {
    let (_, name) = identify(json, Encoding::Json);
    if name != DEFAULT {
        snapshot.ignored_configs.push(name);
        return Ok(Vec::new());
    }
    CustomResource::read(json)?;
    snapshot.ipam_config = Some(IpamConfig::parse_resource(json)?);
    Ok(Vec::new())
}

/// Reads a resource with the parser of its kind, and notes the newest creation.
fn read_resource<T>(
    snapshot: &mut Snapshot,
    json: &[u8],
    parse: impl Fn(&str, &[u8]) -> Result<Parsed<T>, DecodeError>,
) -> Result<(Versioned<T>, Vec<FieldDefect>)> {
    let (meta, _) = CustomResource::read(json)?;
    let Parsed {
        value,
        defects,
        created,
    } = parse(&meta.name, json)?;
    snapshot.newest_creation = snapshot.newest_creation.max(created);
    let resource = Versioned {
        value,
        revision: meta.revision(),
    };
    Ok((resource, defects))
}
