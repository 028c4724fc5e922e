//! Lists names in etcd, by reading keys without their values.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_assign::{Family, Query};
use calipam_files::raw::prefix_end;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::{EndpointName, KUBERNETES};
use calipam_model::snapshot::Snapshot;

use crate::error::Result;
use crate::etcd::again::reread;
use crate::etcd::around::MAX_OPERATIONS;
use crate::etcd::client::{EtcdClient, Range};
use crate::read::names::addresses::{self, Blocks};
use crate::read::names::page::{Names, common_prefix, read_prefixes, read_some, select_few};
use crate::read::names::{MAX_NAMES, NameKind};

/// The begin of a range that contains all keys of a folder.
const BEGIN_OF_ALL: &[u8] = b"";
/// The end of a range that has none, as [`prefix_end`] returns it for the empty prefix.
const END_OF_ALL: [u8; 1] = [0];

/// Reads the names of a kind that begin with `begin`, or some of them if there are many.
pub(super) async fn names(client: &Arc<EtcdClient>, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
    let keys_in = |folder: String| Keys { client, folder };
    match kind {
        NameKind::Handles => handles(client, begin).await,
        NameKind::Pools => read_some(&keys_in(format!("{RESOURCE_PREFIX}ippools/")), begin).await,
        NameKind::Nodes => {
            let nodes = keys_in(format!("{RESOURCE_PREFIX}nodes/"));
            let affinities_of_nodes = keys_in(format!("{IPAM_PREFIX}{}/", AffinityType::Host));
            let mut names = read_some(&nodes, begin).await?;
            names.extend(read_folders(&affinities_of_nodes, begin).await?);
            Ok(select_few(names, begin))
        }
        NameKind::Namespaces => Ok(select_few(namespaces(client, begin).await?, begin)),
        NameKind::Blocks => {
            // Keys of blocks have a dash in place of the slash.
            let begin_in_key = begin.replace('/', "-");
            let mut blocks = BTreeSet::new();
            for family in Family::BOTH {
                blocks.extend(Cluster(client).some_blocks(&begin_in_key, family).await?);
            }
            blocks.retain(|block| block.starts_with(begin));
            Ok(blocks)
        }
        NameKind::Addresses => addresses::names(&Cluster(client), begin).await,
        NameKind::Pods => Ok(select_few(pods(client, begin).await?, begin)),
        // Services are only in Kubernetes.
        NameKind::Services => Ok(BTreeSet::new()),
    }
}

/// Reads the names of the folders, up to the first slash of a key, that begin with `begin`.
async fn read_folders(keys: &Keys<'_>, begin: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in read_prefixes(keys, begin, '/').await? {
        names.insert(folder.trim_end_matches('/').to_owned());
    }
    Ok(names)
}

/// If a family has more blocks than this, a sample of its blocks is read before handles and endpoints.
const FEW_BLOCKS: usize = 500;
/// Approximate number of blocks in a family's sample.
const SAMPLE_BLOCKS: usize = 8;
/// If the blocks in the sample have this many matching handles, the cluster has too many to read directly.
const MANY_HANDLES: usize = 16;

/// Reads the IDs of handles that start with `begin`. etcd counts every key in a range, even if only the first hundred
/// are requested, which takes half a second for a million keys. In a large cluster, a few blocks are therefore read
/// first. If many of their handles match, returns some of these handles, and the first matching IDs that sort before
/// and after the common prefix of these handles.
async fn handles(client: &Arc<EtcdClient>, begin: &str) -> Result<BTreeSet<String>> {
    let keys = Keys {
        client,
        folder: HANDLE_PREFIX.to_owned(),
    };
    let sample = read_sample(client).await?;
    let mut sampled_ids: BTreeSet<String> = BTreeSet::new();
    for block in sound_blocks(&sample) {
        for (_, id) in block.handles() {
            let id = id.to_string();
            if id.starts_with(begin) {
                sampled_ids.insert(id);
            }
        }
    }
    if sampled_ids.len() < MANY_HANDLES {
        return read_some(&keys, begin).await;
    }

    let shared = common_prefix(sampled_ids.iter());
    let mut ids = select_few(sampled_ids, begin);
    if shared.len() > begin.len() {
        let before_shared = keys.page_from(begin.as_bytes(), shared.as_bytes(), MAX_NAMES);
        ids.extend(before_shared.await?);

        let shared_end = prefix_end(shared.as_bytes());
        let end = prefix_end(begin.as_bytes());
        let after_shared = keys.page_from(&shared_end, &end, MAX_NAMES);
        ids.extend(after_shared.await?);
    }
    Ok(ids)
}

/// Reads the namespaces that begin with `begin`. In a large cluster, the endpoints of all namespaces are too many to be
/// counted, so the namespaces in a few blocks are taken, and only the keys between their endpoints are read.
async fn namespaces(client: &Arc<EtcdClient>, begin: &str) -> Result<BTreeSet<String>> {
    let keys = Keys {
        client,
        folder: ENDPOINT_PREFIX.to_owned(),
    };
    let sample = read_sample(client).await?;
    let mut namespaces: BTreeSet<String> = BTreeSet::new();
    for allocation in sound_blocks(&sample).flat_map(Block::allocations) {
        if let Some(namespace) = allocation.attribute.get("namespace")
            && namespace.starts_with(begin)
        {
            namespaces.insert(namespace.to_string());
        }
    }
    if namespaces.is_empty() {
        return read_folders(&keys, begin).await;
    }

    let mut gaps = Vec::new();
    let mut gap_start = begin.as_bytes().to_vec();
    for name in &namespaces {
        let folder = format!("{name}/");
        gaps.push(keys.range(&gap_start, folder.as_bytes(), MAX_NAMES));
        gap_start = prefix_end(folder.as_bytes());
    }
    gaps.push(keys.range(&gap_start, &prefix_end(begin.as_bytes()), MAX_NAMES));

    for part in gaps.chunks(MAX_OPERATIONS) {
        for key in keys.names(part).await? {
            if let Some((namespace, _)) = key.split_once('/') {
                namespaces.insert(namespace.to_owned());
            }
        }
    }
    Ok(namespaces)
}

/// Reads the pods that begin with `begin`, as `namespace/name`: the namespaces first, then the pods with endpoints in one
/// of them. In a large cluster, the endpoints of a large namespace are too many to be counted, so the pods in a few
/// blocks are taken. A namespace with no pod in these blocks is small.
async fn pods(client: &Arc<EtcdClient>, begin: &str) -> Result<BTreeSet<String>> {
    let Some((namespace, _)) = begin.split_once('/') else {
        let namespaces = namespaces(client, begin).await?;
        return Ok(namespaces.into_iter().map(|name| format!("{name}/")).collect());
    };

    let sample = read_sample(client).await?;
    let mut pods: BTreeSet<String> = BTreeSet::new();
    for allocation in sound_blocks(&sample).flat_map(Block::allocations) {
        let record = allocation.attribute;
        if record
            .get("namespace")
            .is_some_and(|recorded| recorded == *namespace)
            && let Some(pod) = record.get("pod")
        {
            pods.insert(format!("{namespace}/{pod}"));
        }
    }
    if !pods.is_empty() {
        return Ok(pods);
    }

    let keys = Keys {
        client,
        folder: format!("{ENDPOINT_PREFIX}{namespace}/"),
    };
    for endpoint in keys.page_from(BEGIN_OF_ALL, &END_OF_ALL, 10 * MAX_NAMES).await? {
        if let Some(name) = EndpointName::parse(&endpoint)
            && name.orchestrator == KUBERNETES
        {
            pods.insert(format!("{namespace}/{}", name.workload));
        }
    }
    Ok(pods)
}

/// Reads a few of the blocks, from both families; none if the cluster has few blocks.
async fn read_sample(client: &Arc<EtcdClient>) -> Result<Snapshot> {
    let mut sample = BTreeSet::new();
    for folder in Family::BOTH.map(folder_of) {
        let keys = Keys {
            client,
            folder: folder.clone(),
        };
        let names = keys.page_from(BEGIN_OF_ALL, &END_OF_ALL, FEW_BLOCKS + 1).await?;
        if names.len() <= FEW_BLOCKS {
            continue;
        }
        for name in names.iter().step_by(names.len() / SAMPLE_BLOCKS) {
            if let Ok(Some(key)) = Key::parse(&format!("{folder}{name}")) {
                sample.insert(key);
            }
        }
    }
    reread(client, &sample).await
}

fn sound_blocks(snapshot: &Snapshot) -> impl Iterator<Item = &Block> {
    snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
}

/// The prefix of the keys of a family's blocks.
fn folder_of(family: Family) -> String {
    Query::Blocks(family).path()
}

/// The CIDR of the block whose key is `name` in `folder`; `None` if it is not the key of a block.
fn cidr_of_key(folder: &str, name: &str) -> Option<String> {
    match Key::parse(&format!("{folder}{name}")) {
        Ok(Some(Key::Block(cidr))) => Some(cidr.to_string()),
        _ => None,
    }
}

/// The keys below a prefix, without the prefix.
struct Keys<'c> {
    client: &'c EtcdClient,
    folder: String,
}

impl Names for Keys<'_> {
    async fn page_from(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<String>> {
        self.names(&[self.range(start, end, limit)]).await
    }
}

impl Keys<'_> {
    /// The range of the folder's keys from `start` to `end`, both without the folder. It returns at most `limit` of
    /// them.
    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Range {
        let folder = self.folder.as_bytes();
        let start_key = [folder, start].concat();
        let end_key = if end == END_OF_ALL {
            prefix_end(folder)
        } else {
            [folder, end].concat()
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Range::between(start_key, end_key).with_limit(limit).keys_only()
    }

    /// Reads ranges of the folder, and returns the rest of each key after the folder.
    async fn names(&self, ranges: &[Range]) -> Result<Vec<String>> {
        let answers = self.client.get(ranges, "names").await?;
        let mut names = Vec::new();
        for entry in answers.entries() {
            if let Some(name) = entry.key.strip_prefix(self.folder.as_bytes())
                && let Ok(name) = std::str::from_utf8(name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

struct Cluster<'c>(&'c Arc<EtcdClient>);

impl Blocks for Cluster<'_> {
    /// Reads some of the blocks of a family whose CIDR begins with `begin`.
    async fn some_blocks(&self, begin: &str, family: Family) -> Result<BTreeSet<String>> {
        let folder = folder_of(family);
        let keys = Keys {
            client: self.0,
            folder: folder.clone(),
        };
        let names = read_some(&keys, begin).await?;
        Ok(names
            .iter()
            .filter_map(|name| cidr_of_key(&folder, name))
            .collect())
    }

    /// Reads the IPv4 networks with blocks that begin with `begin`, one number longer.
    async fn networks(&self, begin: &str) -> Result<Vec<String>> {
        let keys = Keys {
            client: self.0,
            folder: folder_of(Family::V4),
        };
        read_prefixes(&keys, begin, '.').await
    }

    async fn allocated(&self, blocks: BTreeSet<Key>) -> Result<BTreeSet<String>> {
        Ok(addresses::allocated(&reread(self.0, &blocks).await?))
    }
}
