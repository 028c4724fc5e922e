//! The report file of `calicoctl ipam check` (facts 5.2), for the calicoctl mode and for `check --report`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::views::{CalicoctlAllocation, CalicoctlView, LeakedHandle};
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use crate::render::lines::Lines;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    version: &'a str,
    #[serde(rename = "clusterGUID")]
    cluster_guid: &'a str,
    datastore_locked: bool,
    cluster_information_revision: String,
    cluster_type: &'a str,
    allocations: BTreeMap<&'a str, Vec<&'a CalicoctlAllocation>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    leaked_handles: &'a [LeakedHandle],
}

/// Writes the report in the form that `calicoctl ipam release --from-report` reads. Its `version` is that of the
/// cluster's Calico: calicoctl refuses a report of another version than its own.
pub(crate) fn write(view: &CalicoctlView, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    // Several blocks can have records of the same address, if they overlap.
    let mut allocations: BTreeMap<&str, Vec<&CalicoctlAllocation>> = BTreeMap::new();
    for block in &view.blocks {
        for allocation in &block.allocations {
            let records = allocations.entry(&allocation.address).or_default();
            records.push(allocation);
        }
    }

    let cluster = snapshot.cluster.clone().unwrap_or_default();
    let revision = match &snapshot.cluster_revision {
        Some(revision) => revision.to_string(),
        None => String::new(),
    };
    let report = Report {
        version: &cluster.calico_version,
        cluster_guid: &cluster.guid,
        datastore_locked: cluster.is_locked(),
        cluster_information_revision: revision,
        cluster_type: &cluster.cluster_type,
        allocations,
        leaked_handles: &view.leaked_handles,
    };
    let mut lines = Lines::json(out);
    serde_json::to_writer_pretty(&mut lines, &report)?;
    lines.flush()
}
