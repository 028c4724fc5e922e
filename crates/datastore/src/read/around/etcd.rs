//! Reading around an address or a handle in etcd: a few keys in two or three requests, all at one revision.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_files::raw::prefix_end;
use calipam_model::key::{ENDPOINT_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::{EndpointName, endpoint_name};
use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;

use super::{Lookup, PodOnNode};
use crate::client::etcd::{EtcdClient, Range};
use crate::error::Result;
use crate::secret::redact_url;

/// Most operations of one transaction; etcd allows 128 unless it is told otherwise.
pub(crate) const MAX_OPERATIONS: usize = 100;
/// Most endpoints of one pod: one for each of its interfaces.
const MAX_INTERFACES: i64 = 100;
/// Most keys of endpoints among which those of a node are looked for: about 2 MB.
const MAX_ENDPOINT_KEYS: i64 = 20_000;

/// Reads around an address or a handle, all at one revision. Pools and configuration are read whole.
pub(crate) async fn lookup(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Snapshot> {
    match lookup_once(client, lookup).await {
        Err(error) if error.is_transient() => lookup_once(&client.again().await?, lookup).await,
        result => result,
    }
}

async fn lookup_once(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Snapshot> {
    let mut reader = Reader { client, snapshot: Snapshot::default(), revision: 0, known: BTreeSet::new() };
    reader.read(configuration().into_iter().chain(lookup.first_keys().iter().filter_map(range_of))).await?;
    let taken_at = Timestamp::now();
    let blocks = lookup.blocks(&reader.snapshot);
    reader.read(blocks.iter().filter_map(range_of)).await?;

    let named = lookup.named(&reader.snapshot);
    let of_nodes = match lookup {
        Lookup::Address(_) => endpoints_of_nodes(client, reader.revision, &named.nodes()).await?,
        Lookup::Handle(_) => None,
    };
    let endpoints = of_nodes.unwrap_or_else(|| named.endpoints.iter().map(endpoints_of).collect());
    reader.read(named.keys.iter().filter_map(range_of).chain(endpoints)).await?;

    let Reader { mut snapshot, revision, .. } = reader;
    snapshot.datastore = DatastoreKind::Etcd;
    snapshot.location = redact_url(client.endpoint());
    snapshot.revision = revision.to_string();
    snapshot.taken_at = taken_at;
    set_coverage(&mut snapshot);
    Ok(snapshot)
}

/// Adds ranges to a snapshot, each once, all at the revision of the first.
struct Reader<'c> {
    client: &'c EtcdClient,
    snapshot: Snapshot,
    revision: i64,
    known: BTreeSet<Vec<u8>>,
}

impl Reader<'_> {
    async fn read(&mut self, ranges: impl Iterator<Item = Range>) -> Result<()> {
        let ranges: Vec<Range> = ranges.filter(|range| self.known.insert(range.start.clone())).collect();
        for some in ranges.chunks(MAX_OPERATIONS) {
            let pinned: Vec<Range> = match self.revision {
                0 => some.to_vec(),
                revision => some.iter().map(|range| range.clone().at(revision)).collect(),
            };
            let found = self.client.get(&pinned, "what belongs to it").await?;
            if self.revision == 0 {
                self.revision = found.revision;
            }
            found.entries().for_each(|e| self.snapshot.add_entry(e.key, e.value, e.mod_revision));
        }
        Ok(())
    }
}

/// Where the endpoints of some nodes lie, whatever their pods. Keys begin with the namespace, so that all of them are asked
/// for at a revision, without values; `None` where there are too many.
pub(crate) async fn endpoints_of_nodes(
    client: &EtcdClient,
    revision: i64,
    nodes: &[&str],
) -> Result<Option<Vec<Range>>> {
    if nodes.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let all = Range::prefix(ENDPOINT_PREFIX).with_limit(MAX_ENDPOINT_KEYS).keys_only().at(revision);
    let found = client.get(&[all], "endpoints").await?;
    let keys: Vec<&[u8]> = found.entries().map(|entry| entry.key).collect();
    if keys.len() as i64 == MAX_ENDPOINT_KEYS {
        return Ok(None);
    }

    let is_of_node = |key: &&[u8]| {
        let name = std::str::from_utf8(key).ok().and_then(|key| key.rsplit('/').next());
        let name = name.and_then(EndpointName::parse);
        name.is_some_and(|name| nodes.contains(&name.node.as_str()))
    };
    Ok(Some(keys.into_iter().filter(is_of_node).map(Range::key).collect()))
}

/// The range of a key that etcd has.
pub(crate) fn range_of(key: &Key) -> Option<Range> {
    (!crate::read::with_kubernetes::is_in_kubernetes(key)).then(|| Range::key(key.to_string()))
}

pub(crate) fn endpoints_of(pod: &PodOnNode) -> Range {
    let name = endpoint_name(&pod.node, "k8s", &pod.pod, "");
    Range::prefix(&format!("{ENDPOINT_PREFIX}{}/{name}", pod.namespace)).with_limit(MAX_INTERFACES)
}

/// Pools, reservations and configuration: few and small.
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

fn set_coverage(snapshot: &mut Snapshot) {
    snapshot.mark_read([
        Source::Pools,
        Source::Reservations,
        Source::ClusterInformation,
        Source::KubeControllersConfiguration,
        Source::IpamConfig,
        Source::IpamConfiguration,
    ]);
    let partial = [Source::Blocks, Source::Affinities, Source::Handles, Source::Nodes, Source::Endpoints];
    snapshot.coverage.extend(partial.into_iter().map(|source| (source, Coverage::Partial)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_a_pod_have_its_escaped_name() {
        let pod = PodOnNode { namespace: "ns".into(), pod: "p-1".into(), node: "node-2".into() };
        assert!(endpoints_of(&pod).start.ends_with(b"ns/node--2-k8s-p--1-"));
    }
}
