//! The report file of `calicoctl ipam check` (facts 5.2), for calicoctl's name and for `check --report`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::views::{CalicoctlAllocation, CalicoctlView, LeakedHandle};
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    version: &'a str,
    #[serde(rename = "clusterGUID")]
    cluster_guid: &'a str,
    datastore_locked: bool,
    cluster_information_revision: String,
    cluster_type: &'a str,
    allocations: BTreeMap<&'a str, Vec<Allocation<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaked_handles: Vec<Handle<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocation<'a> {
    ip: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<&'a str>,
    sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    node: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a str>,
    in_use: bool,
    #[serde(skip_serializing_if = "is_false")]
    borrowed: bool,
    #[serde(skip_serializing_if = "is_false")]
    cooling_down: bool,
    owners: Option<&'a [String]>,
}

/// calicoctl gives these fields no names of their own.
#[derive(Serialize)]
struct Handle<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    #[serde(rename = "UID")]
    uid: Option<&'a str>,
    #[serde(rename = "Revision")]
    revision: &'a str,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Writes the report. Its version is that of the cluster, as the calicoctl that fits the cluster writes it.
pub(crate) fn write(view: &CalicoctlView, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let cluster = snapshot.cluster.clone().unwrap_or_default();
    let mut allocations: BTreeMap<&str, Vec<Allocation<'_>>> = BTreeMap::new();
    for recorded in view.blocks.iter().flat_map(|block| &block.allocations) {
        allocations.entry(&recorded.address).or_default().push(allocation(recorded));
    }
    let report = Report {
        version: &cluster.calico_version,
        cluster_guid: &cluster.guid,
        datastore_locked: cluster.datastore_ready == Some(false),
        cluster_information_revision: snapshot
            .cluster_revision
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        cluster_type: &cluster.cluster_type,
        allocations,
        leaked_handles: view.leaked_handles.iter().map(handle).collect(),
    };
    serde_json::to_writer_pretty(out, &report).map_err(io::Error::from)
}

fn handle(leaked: &LeakedHandle) -> Handle<'_> {
    Handle { id: &leaked.id, uid: leaked.uid.as_deref(), revision: &leaked.revision }
}

fn allocation(recorded: &CalicoctlAllocation) -> Allocation<'_> {
    Allocation {
        ip: &recorded.address,
        handle: recorded.handle.as_deref(),
        sequence_number: recorded.sequence,
        pod: recorded.pod.as_deref(),
        namespace: recorded.namespace.as_deref(),
        node: &recorded.node,
        kind: recorded.kind.as_deref(),
        creation_timestamp: recorded.timestamp.as_deref(),
        in_use: recorded.in_use,
        borrowed: recorded.borrowed,
        cooling_down: recorded.cooling,
        owners: Some(recorded.owners.as_slice()).filter(|owners| !owners.is_empty()),
    }
}
