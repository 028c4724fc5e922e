//! The lines above tables: the cluster, and the numbers of its objects.

use calipam_check::{ClusterIdentity, Report};
use calipam_model::snapshot::{Coverage, Source};

use super::text::{count, escape, thousands};

/// The number of GUID characters that are shown, which is enough to distinguish clusters.
const GUID_SHOWN: usize = 16;

/// Formats `Cluster 0f0e1d2c3b4a5968`, with the beginning of the cluster's GUID.
pub(super) fn guid(guid: &str) -> String {
    let guid: String = guid.chars().take(GUID_SHOWN).collect();
    if guid.is_empty() {
        "Cluster of unknown GUID".to_owned()
    } else {
        format!("Cluster {guid}")
    }
}

/// Formats `Cluster 0f0e1d2c3b4a5968 · etcd https://10.0.0.5:2379 · revision 48250 · Calico v3.32.1`.
pub(crate) fn cluster(identity: &ClusterIdentity) -> String {
    let mut parts = vec![
        guid(&identity.guid),
        format!("{} {}", identity.datastore, identity.location),
    ];
    if !identity.revision.is_empty() {
        parts.push(format!("revision {}", identity.revision));
    }
    if !identity.calico_version.is_empty() {
        parts.push(format!("Calico {}", identity.calico_version));
    }
    escape(&parts.join(" · ")).into_owned()
}

/// Formats `16,384 blocks · 1,000,000 allocations · …`. Endpoints and pods are included if they were read.
pub(crate) fn counts(report: &Report) -> String {
    let counts = &report.counts;
    let has_read = |source| report.coverage.get(&source) == Some(&Coverage::Read);
    let mut parts = vec![
        count(counts.blocks, "block", "blocks"),
        count(counts.allocations, "allocation", "allocations"),
    ];
    if counts.cooling > 0 {
        parts.push(format!("{} cooling", thousands(counts.cooling)));
    }
    parts.extend([
        count(counts.affinities, "affinity", "affinities"),
        count(counts.handles, "handle", "handles"),
    ]);
    if has_read(Source::Endpoints) {
        parts.push(count(counts.endpoints, "endpoint", "endpoints"));
    }
    if has_read(Source::Pods) {
        parts.push(count(counts.pods, "pod", "pods"));
    }
    parts.push(count(counts.nodes, "node", "nodes"));
    parts.join(" · ")
}
