//! Reads the data of an address or a handle from etcd: a few keys in two or three requests, all at one revision.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_files::raw::prefix_end;
use calipam_model::key::{ENDPOINT_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::{KUBERNETES, endpoint_name};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};

use crate::error::Result;
use crate::etcd::client::{EtcdClient, Range};
use crate::read::around::{Lookup, NamedKeys, PARTLY_READ_SOURCES, PodOnNode, is_in_kubernetes};
use crate::secret::redact_url;

/// Maximum operations of one transaction; etcd's default limit is 128.
pub(crate) const MAX_OPERATIONS: usize = 100;
/// Maximum number of endpoints to read for one pod, which has an endpoint for each of its interfaces.
const MAX_INTERFACES: i64 = 100;

/// Reads the data of an address or a handle, along with all pools and the configuration, at one revision. etcd counts
/// every key of a range for its answer, whatever the limit, so no range here grows with the cluster.
pub(crate) async fn lookup(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Snapshot> {
    match lookup_once(client, lookup).await {
        Err(error) if error.is_transient() => lookup_once(&client.reconnect().await?, lookup).await,
        result => result,
    }
}

/// Reads the object of a lookup, then its blocks, then the objects that they name; all at one revision.
async fn lookup_once(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Snapshot> {
    let mut reader = Reader {
        client,
        snapshot: Snapshot::default(),
        revision: None,
        read_starts: BTreeSet::new(),
    };
    let mut first_ranges = configuration();
    first_ranges.extend(lookup.first_keys().iter().filter_map(range_of));
    reader.read(first_ranges).await?;
    let taken_at = crate::clock::now();

    let blocks = lookup.blocks(&reader.snapshot);
    reader.read(blocks.iter().filter_map(range_of).collect()).await?;

    let named = lookup.named(&reader.snapshot);
    let mut named_ranges: Vec<Range> = named.keys.iter().filter_map(range_of).collect();
    named_ranges.extend(named_endpoints(&named));
    reader.read(named_ranges).await?;

    let mut snapshot = reader.snapshot;
    let revision = reader.revision.unwrap_or_default();
    snapshot.set_origin(redact_url(client.endpoint()), revision, taken_at);
    snapshot.mark_read(ETCD_SOURCES);
    snapshot.mark_partial(PARTLY_READ_SOURCES);
    Ok(snapshot)
}

/// Reads ranges into a snapshot, each once, all at the revision of the first request.
struct Reader<'c> {
    client: &'c EtcdClient,
    snapshot: Snapshot,
    /// The revision of all reads; `None` before the first request.
    revision: Option<i64>,
    /// The start keys of the ranges that were read.
    read_starts: BTreeSet<Vec<u8>>,
}

impl Reader<'_> {
    /// Adds the objects of these ranges, without those that were read before. The first request fixes the revision.
    async fn read(&mut self, ranges: Vec<Range>) -> Result<()> {
        let mut unread = Vec::new();
        for range in ranges {
            if self.read_starts.insert(range.start.clone()) {
                unread.push(range);
            }
        }
        for part in unread.chunks(MAX_OPERATIONS) {
            let ranges_then: Vec<Range> = match self.revision {
                Some(revision) => part.iter().map(|range| range.clone().at(revision)).collect(),
                None => part.to_vec(),
            };
            let answers = self.client.get(&ranges_then, "the related objects").await?;
            self.revision.get_or_insert(answers.revision);
            for entry in answers.entries() {
                self.snapshot
                    .add_entry(entry.key, entry.value, entry.mod_revision);
            }
        }
        Ok(())
    }
}

/// The ranges of the named pods' endpoints, and of all endpoints on a named node in a named namespace. An endpoint's
/// key begins with the namespace and the node.
pub(crate) fn named_endpoints(named: &NamedKeys) -> Vec<Range> {
    let nodes = named.nodes();
    let mut ranges = Vec::new();
    for namespace in &named.namespaces {
        for node in &nodes {
            // The endpoint's name up to the pod. An empty pod leaves only the dashes that would follow it.
            let name_without_pod = endpoint_name(node, KUBERNETES, "", "");
            let begin = name_without_pod.trim_end_matches('-');
            ranges.push(Range::prefix(&format!("{ENDPOINT_PREFIX}{namespace}/{begin}")));
        }
    }
    for pod in &named.endpoints {
        // The endpoint may already be in one of the ranges above.
        let is_covered = named.namespaces.contains(&pod.namespace) && nodes.contains(&pod.node.as_str());
        if !is_covered {
            ranges.push(endpoints_of(pod));
        }
    }
    ranges
}

/// The range of a key, if it is in etcd.
pub(crate) fn range_of(key: &Key) -> Option<Range> {
    if is_in_kubernetes(key) {
        return None;
    }
    Some(Range::key(key.to_string()))
}

/// The range of a pod's workload endpoints.
pub(crate) fn endpoints_of(pod: &PodOnNode) -> Range {
    let name = endpoint_name(&pod.node, KUBERNETES, &pod.pod, "");
    Range::prefix(&format!("{ENDPOINT_PREFIX}{}/{name}", pod.namespace)).with_limit(MAX_INTERFACES)
}

/// The ranges of pools, reservations and configuration, which are few and small.
fn configuration() -> Vec<Range> {
    let resource = |plural: &str| format!("{RESOURCE_PREFIX}{plural}/");
    vec![
        Range::prefix(&resource("clusterinformations")),
        Range::between(
            resource("ipamconfigurations"),
            prefix_end(resource("kubecontrollersconfigurations").as_bytes()),
        ),
        Range::key(Key::IpamConfig.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_a_pod_have_its_escaped_name() {
        let pod = PodOnNode {
            namespace: "ns".into(),
            pod: "p-1".into(),
            node: "node-2".into(),
        };
        assert!(endpoints_of(&pod).start.ends_with(b"ns/node--2-k8s-p--1-"));
    }
}
