//! Names in etcd: reads of keys without their values, from a prefix on.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_model::affinity::AffinityType;
use calipam_model::key::{BLOCK_PREFIX, HANDLE_PREFIX, IPAM_PREFIX, Key, RESOURCE_PREFIX};

use super::NameKind;
use super::addresses::{self, Blocks};
use super::page::{Names, few, parts, some};
use crate::client::etcd::{EtcdClient, Range};
use crate::error::Result;
use crate::raw::prefix_end;
use crate::read::again::etcd::reread;

pub(super) async fn names(client: &Arc<EtcdClient>, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
    let below = |folder: String| Keys { client, folder };
    match kind {
        NameKind::Handles => some(&below(HANDLE_PREFIX.to_owned()), begin).await,
        NameKind::Pools => some(&below(format!("{RESOURCE_PREFIX}ippools/")), begin).await,
        NameKind::Nodes => {
            let mut nodes = some(&below(format!("{RESOURCE_PREFIX}nodes/")), begin).await?;
            let hosts = parts(&below(format!("{IPAM_PREFIX}{}/", AffinityType::Host)), begin, '/').await?;
            nodes.extend(hosts.into_iter().map(|host| host.trim_end_matches('/').to_owned()));
            Ok(few(nodes, begin))
        }
        NameKind::Blocks => {
            let mut blocks = BTreeSet::new();
            for folder in families() {
                let found = some(&below(folder.clone()), &begin.replace('/', "-")).await?;
                blocks.extend(found.iter().filter_map(|key| block(&folder, key)));
            }
            blocks.retain(|block| block.starts_with(begin));
            Ok(blocks)
        }
        NameKind::Addresses => addresses::names(&Cluster(client), begin).await,
    }
}

/// Where blocks of either family lie.
fn families() -> [String; 2] {
    ["ipv4", "ipv6"].map(|family| format!("{BLOCK_PREFIX}{family}/block/"))
}

fn block(folder: &str, key: &str) -> Option<String> {
    match Key::parse(&format!("{folder}{key}")) {
        Ok(Some(Key::Block(cidr))) => Some(cidr.to_string()),
        _ => None,
    }
}

/// The keys below a prefix, by what follows it.
struct Keys<'c> {
    client: &'c EtcdClient,
    folder: String,
}

impl Names for Keys<'_> {
    async fn from(&self, start: &[u8], end: &[u8], most: usize) -> Result<Vec<String>> {
        let at = |place: &[u8]| [self.folder.as_bytes(), place].concat();
        // The end of the empty prefix lies after all keys of the folder.
        let end = if end == [0] { prefix_end(self.folder.as_bytes()) } else { at(end) };
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let range = Range::between(at(start), end).with_limit(limit).keys_only();
        let found = self.client.get(&[range], "names").await?;
        let names = found.entries().filter_map(|entry| {
            let name = entry.key.strip_prefix(self.folder.as_bytes())?;
            std::str::from_utf8(name).ok().map(str::to_owned)
        });
        Ok(names.collect())
    }
}

struct Cluster<'c>(&'c Arc<EtcdClient>);

impl Blocks for Cluster<'_> {
    async fn some(&self, begin: &str, is_v4: bool) -> Result<BTreeSet<String>> {
        let [v4, v6] = families();
        let folder = if is_v4 { v4 } else { v6 };
        let keys = some(&Keys { client: self.0, folder: folder.clone() }, begin).await?;
        Ok(keys.iter().filter_map(|key| block(&folder, key)).collect())
    }

    async fn networks(&self, begin: &str) -> Result<Vec<String>> {
        let [folder, _] = families();
        parts(&Keys { client: self.0, folder }, begin, '.').await
    }

    async fn allocated(&self, blocks: BTreeSet<Key>) -> Result<BTreeSet<String>> {
        Ok(addresses::allocated(&reread(self.0, &blocks).await?))
    }
}
