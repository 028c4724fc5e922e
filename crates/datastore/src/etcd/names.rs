//! Lists names in etcd, by reading keys without their values.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_assign::{Family, Query};
use calipam_files::raw::prefix_end;
use calipam_model::affinity::AffinityType;
use calipam_model::block::Block;
use calipam_model::key::{ENDPOINT_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, Key, RESOURCE_PREFIX};
use calipam_model::names::EndpointName;
use calipam_model::snapshot::Snapshot;

use crate::error::Result;
use crate::etcd::again::reread;
use crate::etcd::around::MAX_OPERATIONS;
use crate::etcd::client::{EtcdClient, Range};
use crate::read::names::addresses::{self, Blocks};
use crate::read::names::page::{Names, common, few, parts, some};
use crate::read::names::{MOST, NameKind};

/// The end of a range that has none, as [`prefix_end`] returns it for the empty prefix.
const END_OF_ALL: [u8; 1] = [0];

/// Reads the names of a kind that begin with `begin`, or some of them if there are many.
pub(super) async fn names(client: &Arc<EtcdClient>, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
    let below = |folder: String| Keys { client, folder };
    match kind {
        NameKind::Handles => handles(client, begin).await,
        NameKind::Pools => some(&below(format!("{RESOURCE_PREFIX}ippools/")), begin).await,
        NameKind::Nodes => {
            let mut nodes = some(&below(format!("{RESOURCE_PREFIX}nodes/")), begin).await?;
            nodes.extend(folders(&below(format!("{IPAM_PREFIX}{}/", AffinityType::Host)), begin).await?);
            Ok(few(nodes, begin))
        }
        NameKind::Namespaces => Ok(few(namespaces(client, begin).await?, begin)),
        NameKind::Blocks => {
            let mut blocks = BTreeSet::new();
            for family in Family::BOTH {
                blocks.extend(Cluster(client).some(&begin.replace('/', "-"), family).await?);
            }
            blocks.retain(|block| block.starts_with(begin));
            Ok(blocks)
        }
        NameKind::Addresses => addresses::names(&Cluster(client), begin).await,
        NameKind::Pods => Ok(few(pods(client, begin).await?, begin)),
        // Services are only in Kubernetes.
        NameKind::Services => Ok(BTreeSet::new()),
    }
}

async fn folders(keys: &Keys<'_>, begin: &str) -> Result<BTreeSet<String>> {
    let found = parts(keys, begin, '/').await?;
    Ok(found
        .into_iter()
        .map(|folder| folder.trim_end_matches('/').to_owned())
        .collect())
}

/// If a family has more blocks than this, a sample of its blocks is read before handles and endpoints.
const FEW_BLOCKS: usize = 500;
/// Approximate number of blocks in a family's sample.
const SAMPLE: usize = 8;
/// If the blocks in the sample have this many matching handles, the cluster has too many to read directly.
const MANY: usize = 16;

/// Reads the IDs of handles that start with `begin`. etcd counts every key in a range, even if only the first hundred
/// are requested, which takes half a second for a million keys. In a large cluster, a few blocks are therefore read
/// first. If many of their handles match, returns some of these handles, and the first matching IDs that sort before
/// and after the common prefix of these handles.
async fn handles(client: &Arc<EtcdClient>, begin: &str) -> Result<BTreeSet<String>> {
    let keys = Keys {
        client,
        folder: HANDLE_PREFIX.to_owned(),
    };
    let sample = sample(client).await?;
    let mut recorded: BTreeSet<String> = BTreeSet::new();
    for (_, id) in sound(&sample).flat_map(|block| block.handles()) {
        let id = id.to_string();
        if id.starts_with(begin) {
            recorded.insert(id);
        }
    }
    if recorded.len() < MANY {
        return some(&keys, begin).await;
    }

    let common_prefix = common(recorded.iter());
    let mut ids = few(recorded, begin);
    if common_prefix.len() > begin.len() {
        let end = prefix_end(begin.as_bytes());
        let end_of_common = prefix_end(common_prefix.as_bytes());
        ids.extend(
            keys.from(begin.as_bytes(), common_prefix.as_bytes(), MOST)
                .await?,
        );
        ids.extend(keys.from(&end_of_common, &end, MOST).await?);
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
    let sample = sample(client).await?;
    let mut namespaces: BTreeSet<String> = BTreeSet::new();
    for allocation in sound(&sample).flat_map(|block| block.allocations()) {
        let recorded = allocation.attribute.get("namespace").map(|name| name.to_string());
        namespaces.extend(recorded.filter(|name| name.starts_with(begin)));
    }
    if namespaces.is_empty() {
        return folders(&keys, begin).await;
    }

    let mut start = begin.as_bytes().to_vec();
    let mut gaps = Vec::new();
    for name in &namespaces {
        let folder = format!("{name}/");
        gaps.push(keys.range(&start, folder.as_bytes(), MOST));
        start = prefix_end(folder.as_bytes());
    }
    gaps.push(keys.range(&start, &prefix_end(begin.as_bytes()), MOST));

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
/// of them. In a large cluster, the pods that a few blocks record stand for the others.
async fn pods(client: &Arc<EtcdClient>, begin: &str) -> Result<BTreeSet<String>> {
    let Some((namespace, _)) = begin.split_once('/') else {
        let namespaces = namespaces(client, begin).await?;
        return Ok(namespaces.into_iter().map(|name| format!("{name}/")).collect());
    };

    let sample = sample(client).await?;
    let mut pods: BTreeSet<String> = BTreeSet::new();
    for allocation in sound(&sample).flat_map(|block| block.allocations()) {
        let attribute = &allocation.attribute;
        if let (Some(namespace), Some(pod)) = (attribute.get("namespace"), attribute.get("pod")) {
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
    for endpoint in keys.from(b"", &[0], 10 * MOST).await? {
        if let Some(name) = EndpointName::parse(&endpoint)
            && name.orchestrator == "k8s"
        {
            pods.insert(format!("{namespace}/{}", name.workload));
        }
    }
    Ok(pods)
}

/// A sample of the blocks; empty if the cluster has few.
async fn sample(client: &Arc<EtcdClient>) -> Result<Snapshot> {
    let mut blocks = BTreeSet::new();
    for folder in Family::BOTH.map(folder_of) {
        let keys = Keys {
            client,
            folder: folder.clone(),
        }
        .from(b"", &END_OF_ALL, FEW_BLOCKS + 1)
        .await?;
        if keys.len() > FEW_BLOCKS {
            let apart = keys.iter().step_by(keys.len() / SAMPLE);
            blocks.extend(apart.filter_map(|key| Key::parse(&format!("{folder}{key}")).ok()?));
        }
    }
    reread(client, &blocks).await
}

fn sound(snapshot: &Snapshot) -> impl Iterator<Item = &Block> {
    snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
}

/// The prefix of the keys of a family's blocks.
fn folder_of(family: Family) -> String {
    Query::Blocks(family).path()
}

fn block(folder: &str, key: &str) -> Option<String> {
    match Key::parse(&format!("{folder}{key}")) {
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
    async fn from(&self, start: &[u8], end: &[u8], most: usize) -> Result<Vec<String>> {
        self.names(&[self.range(start, end, most)]).await
    }
}

impl Keys<'_> {
    /// The range of the folder's keys from `start` to `end`, both without the folder. It returns at most `most` of them.
    fn range(&self, start: &[u8], end: &[u8], most: usize) -> Range {
        let folder = self.folder.as_bytes();
        let in_folder = |name: &[u8]| [folder, name].concat();
        let end = if end == END_OF_ALL {
            prefix_end(folder)
        } else {
            in_folder(end)
        };
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        Range::between(in_folder(start), end)
            .with_limit(limit)
            .keys_only()
    }

    /// Reads ranges of the folder, and returns the rest of each key after the folder.
    async fn names(&self, ranges: &[Range]) -> Result<Vec<String>> {
        let answers = self.client.get(ranges, "names").await?;
        let mut names = Vec::new();
        for entry in answers.entries() {
            let name = entry.key.strip_prefix(self.folder.as_bytes());
            let text = name.and_then(|name| std::str::from_utf8(name).ok());
            names.extend(text.map(str::to_owned));
        }
        Ok(names)
    }
}

struct Cluster<'c>(&'c Arc<EtcdClient>);

impl Blocks for Cluster<'_> {
    /// Reads some of the blocks of a family whose CIDR begins with `begin`.
    async fn some(&self, begin: &str, family: Family) -> Result<BTreeSet<String>> {
        let folder = folder_of(family);
        let keys = Keys {
            client: self.0,
            folder: folder.clone(),
        };
        let names = some(&keys, begin).await?;
        Ok(names.iter().filter_map(|name| block(&folder, name)).collect())
    }

    /// Reads the IPv4 networks with blocks that begin with `begin`, one number longer.
    async fn networks(&self, begin: &str) -> Result<Vec<String>> {
        let keys = Keys {
            client: self.0,
            folder: folder_of(Family::V4),
        };
        parts(&keys, begin, '.').await
    }

    async fn allocated(&self, blocks: BTreeSet<Key>) -> Result<BTreeSet<String>> {
        Ok(addresses::allocated(&reread(self.0, &blocks).await?))
    }
}
