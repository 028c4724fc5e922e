//! Narrow reads: the few keys around one address or one handle, not the cluster.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::block::{Allocation, Block, BlockOwner};
use calipam_model::cidr::{BLOCK_PREFIXES_V4, BLOCK_PREFIXES_V6, block_around};
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::endpoint_name;
use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;

use crate::error::Result;
use crate::etcd::{EtcdClient, Range};
use crate::raw::prefix_end;
use crate::secret::redact_url;

/// What is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// An address: the blocks of every legal size that can hold it, and what they record for it.
    Address(IpAddr),
    /// A handle by its ID, and what the blocks that it names record for it.
    Handle(String),
}

/// What a narrow read found.
#[derive(Clone, Debug)]
pub struct Narrow {
    /// The objects. Pools and configuration are all there; of blocks, handles, affinities, nodes and
    /// endpoints only those around what was looked up.
    pub snapshot: Snapshot,
    /// Requests that it took.
    pub requests: u64,
}

/// Most operations of one transaction; etcd allows 128 unless it is told otherwise.
pub(super) const MAX_OPERATIONS: usize = 100;
/// Most endpoints of one pod: one for each of its interfaces.
const MAX_INTERFACES: i64 = 100;

/// Reads around an address or a handle, all at one revision.
pub(crate) async fn lookup_etcd(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Narrow> {
    match lookup_once(client, lookup).await {
        Err(error) if error.is_transient() => lookup_once(&client.again().await?, lookup).await,
        result => result,
    }
}

async fn lookup_once(client: &Arc<EtcdClient>, lookup: &Lookup) -> Result<Narrow> {
    let before = client.request_count();
    let mut reader = Reader { client, snapshot: Snapshot::default(), revision: 0, known: BTreeSet::new() };
    let mut ranges = configuration();
    ranges.extend(match lookup {
        Lookup::Address(address) => blocks_around(*address),
        Lookup::Handle(id) => vec![Range::key(Key::Handle(id.clone()).to_string())],
    });
    reader.read(ranges).await?;
    let taken_at = Timestamp::now();
    if let Lookup::Handle(_) = lookup {
        let blocks = reader.snapshot.handles.iter().flat_map(|h| h.value.blocks());
        let keys = blocks.map(|(cidr, _)| Range::key(Key::Block(cidr).to_string())).collect();
        reader.read(keys).await?;
    }
    reader.read(owners(&reader.snapshot, lookup)).await?;
    let Reader { mut snapshot, revision, .. } = reader;
    snapshot.datastore = DatastoreKind::Etcd;
    snapshot.location = redact_url(client.endpoint());
    snapshot.revision = revision.to_string();
    snapshot.taken_at = taken_at;
    set_coverage(&mut snapshot);
    Ok(Narrow { snapshot, requests: client.request_count() - before })
}

/// Adds ranges to a snapshot, each once, all at the revision of the first.
struct Reader<'c> {
    client: &'c EtcdClient,
    snapshot: Snapshot,
    revision: i64,
    known: BTreeSet<Vec<u8>>,
}

impl Reader<'_> {
    async fn read(&mut self, mut ranges: Vec<Range>) -> Result<()> {
        ranges.retain(|range| self.known.insert(range.start.clone()));
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

/// The keys of the blocks of every legal size that hold the address.
fn blocks_around(address: IpAddr) -> Vec<Range> {
    let sizes = if address.is_ipv4() { BLOCK_PREFIXES_V4 } else { BLOCK_PREFIXES_V6 };
    sizes
        .filter_map(|size| block_around(address, size))
        .map(|cidr| Range::key(Key::Block(cidr).to_string()))
        .collect()
}

/// The keys of what the records name: handles, nodes, endpoints, and the affinities of the blocks.
fn owners(snapshot: &Snapshot, lookup: &Lookup) -> Vec<Range> {
    let mut keys = Vec::new();
    for block in snapshot.blocks.iter().filter_map(|b| b.value.content.sound()) {
        keys.extend(block.owner().and_then(|owner| affinity(block, owner)));
        keys.extend(block.owner().and_then(BlockOwner::host).map(|node| Key::Node(node.to_owned())));
    }
    let mut ranges: Vec<Range> = keys.iter().map(|key| Range::key(key.to_string())).collect();
    for block in snapshot.blocks.iter().filter_map(|b| b.value.content.sound()) {
        for allocation in records_of(block, lookup) {
            record_keys(block, allocation.attribute, &mut ranges);
        }
    }
    ranges
}

/// The records of a block that a lookup is about.
pub(crate) fn records_of<'b>(block: &'b Block, lookup: &Lookup) -> Vec<Allocation<'b>> {
    match lookup {
        Lookup::Address(address) => block.allocation_of(*address).into_iter().collect(),
        Lookup::Handle(id) => {
            let is_of = |a: &Allocation<'_>| a.attribute.clean_handle().is_some_and(|h| h == *id.as_str());
            block.allocations().filter(is_of).collect()
        }
    }
}

/// The key of the affinity that should say so, where the block has an owner of a known kind.
fn affinity(block: &Block, owner: &BlockOwner) -> Option<Key> {
    let (kind, node) = match owner {
        BlockOwner::Host(node) => (AffinityType::Host, node),
        BlockOwner::Virtual(name) => (AffinityType::Virtual, name),
        BlockOwner::Other(_) => return None,
    };
    Some(Key::Affinity(AffinityKey { kind, node: node.clone(), cidr: block.cidr() }))
}

/// What one record names. A handle with a carriage return is stored as it is or cut at it.
fn record_keys(block: &Block, record: AttributeRef<'_>, ranges: &mut Vec<Range>) {
    let handles = [record.handle(), record.clean_handle()].into_iter().flatten();
    ranges.extend(
        handles.filter(|h| !h.is_empty()).map(|handle| Range::key(format!("{HANDLE_PREFIX}{handle}"))),
    );
    owner_keys(record.owner(), ranges);
    if let Some(other) = record.alternate() {
        owner_keys(other, ranges);
    }
    // `<namespace>.<pod>`, as Calico 2 wrote it, names no node: the block's owner is the best guess.
    let legacy = record.clean_handle().map(|h| h.to_string()).filter(|_| record.owner().is_empty());
    if let (Some((namespace, pod)), Some(BlockOwner::Host(node))) =
        (legacy.as_deref().and_then(|h| h.split_once('.')), block.owner())
    {
        ranges.push(endpoints_of(namespace, pod, node));
    }
}

fn owner_keys(owner: OwnerMap<'_>, ranges: &mut Vec<Range>) {
    let text = |key| owner.get(key).map(|t| t.to_string()).filter(|t| !t.is_empty());
    let Some(node) = text("node") else { return };
    if let (Some(namespace), Some(pod)) = (text("namespace"), text("pod")) {
        ranges.push(endpoints_of(&namespace, &pod, &node));
    }
    ranges.push(Range::key(Key::Node(node).to_string()));
}

/// All endpoints of a pod on a node.
fn endpoints_of(namespace: &str, pod: &str, node: &str) -> Range {
    let name = endpoint_name(node, "k8s", pod, "");
    Range::prefix(&format!("{ENDPOINT_PREFIX}{namespace}/{name}")).with_limit(MAX_INTERFACES)
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
    fn blocks_of_every_legal_size() {
        let keys = blocks_around("10.244.1.7".parse().unwrap());
        assert_eq!(keys.len(), 13);
        assert_eq!(keys[6], Range::key("/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26"));
        let keys = blocks_around("fd00::1:7".parse().unwrap());
        assert_eq!(keys.len(), 13);
        assert_eq!(keys[12], Range::key("/calico/ipam/v2/assignment/ipv6/block/fd00::1:7-128"));
    }

    #[test]
    fn records_name_what_else_to_read() {
        let mut snapshot = Snapshot::default();
        let value = br#"{"cidr":"10.0.0.0/30","affinity":"host:node-1","allocations":[0,1,null,null],"unallocated":[2,3],
            "attributes":[{"handle_id":"a.b\r\neth0","secondary":{"node":"node-2","namespace":"ns","pod":"p-1"}},
            {"handle_id":"default.web-0"}]}"#;
        snapshot.add_entry(b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30", value, 1);
        let starts = |lookup: &Lookup| -> Vec<String> {
            let text = |r: Range| String::from_utf8(r.start).unwrap();
            owners(&snapshot, lookup).into_iter().map(text).collect()
        };
        let found = starts(&Lookup::Address("10.0.0.0".parse().unwrap()));
        assert_eq!(found[0], "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.0-30");
        for key in
            ["handle/a.b\r\neth0", "handle/a.b", "nodes/node-1", "nodes/node-2", "ns/node--2-k8s-p--1-"]
        {
            assert!(found.iter().any(|f| f.ends_with(key)), "{key}");
        }
        let found = starts(&Lookup::Handle("default.web-0".into()));
        assert!(found.iter().any(|f| f.ends_with("default/node--1-k8s-web--0-")), "{found:?}");
        assert!(!found.iter().any(|f| f.ends_with("nodes/node-2")));
    }
}
