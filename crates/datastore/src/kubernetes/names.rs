//! Lists names on Kubernetes. The server must be able to start a list at a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_assign::Family;
use calipam_files::objects::Accept;
use calipam_files::objects::names::cidr_of_block;
use calipam_model::handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;

use crate::error::Result;
use crate::kubernetes::again::reread;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds;
use crate::kubernetes::client::page::{Page, token_from};
use crate::read::names::addresses::{self, Blocks};
use crate::read::names::page::{Names, read_prefixes, read_some, select_few};
use crate::read::names::{self, NameKind};

/// Reads the names of a kind that begin with `begin`, or some of them if there are many.
pub(super) async fn names(client: &Arc<KubeClient>, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
    match kind {
        NameKind::Nodes => nodes(client, begin).await,
        NameKind::Handles => handles(client, begin).await,
        NameKind::Blocks => blocks(client, begin).await,
        NameKind::Addresses => allocated_addresses(client, begin).await,
        NameKind::Pools => object_names(client, Source::Pools, begin).await,
        NameKind::Namespaces => object_names(client, Source::Namespaces, begin).await,
        NameKind::Services => object_names(client, Source::Services, begin).await,
        NameKind::Pods => object_names(client, Source::Pods, begin).await,
    }
}

/// The names of a source's objects; none if the cluster has no such kind.
async fn object_names(client: &Arc<KubeClient>, source: Source, begin: &str) -> Result<BTreeSet<String>> {
    match Objects::find(client, source) {
        Some(objects) => read_some(&objects, begin).await,
        None => Ok(BTreeSet::new()),
    }
}

/// The IDs of handles.
async fn handles(client: &Arc<KubeClient>, begin: &str) -> Result<BTreeSet<String>> {
    let Some(objects) = Objects::find(client, Source::Handles) else {
        return Ok(BTreeSet::new());
    };
    let names = read_some(&objects, &handle::resource_name(begin)).await?;
    let mut ids = objects.ids(names).await?;
    // Object names are in lower case, so some of the IDs may begin differently.
    ids.retain(|id| id.starts_with(begin));
    Ok(ids)
}

/// The CIDRs of blocks.
async fn blocks(client: &Arc<KubeClient>, begin: &str) -> Result<BTreeSet<String>> {
    let names = object_names(client, Source::Blocks, &dashed(begin)).await?;
    // Dots, colons and slashes are all dashes in names, so some of the CIDRs may begin differently.
    Ok(cidrs(names).filter(|cidr| cidr.starts_with(begin)).collect())
}

/// The addresses that are allocated in blocks.
async fn allocated_addresses(client: &Arc<KubeClient>, begin: &str) -> Result<BTreeSet<String>> {
    match Objects::find(client, Source::Blocks) {
        Some(objects) => addresses::names(&objects, begin).await,
        None => Ok(BTreeSet::new()),
    }
}

/// The names of Kubernetes nodes, and of nodes with affinities.
async fn nodes(client: &Arc<KubeClient>, begin: &str) -> Result<BTreeSet<String>> {
    let mut names = object_names(client, Source::Nodes, begin).await?;
    for affinity in object_names(client, Source::Affinities, begin).await? {
        names.extend(node_of_affinity(&affinity));
    }
    Ok(select_few(names, begin))
}

/// The node in the name of an affinity, which is `<node>-<block>`. Both parts contain dashes.
fn node_of_affinity(name: &str) -> Option<String> {
    for (dash, _) in name.match_indices('-') {
        let node = &name[..dash];
        let block = &name[dash + 1..];
        if !node.is_empty() && cidr_of_block(block).is_some() {
            return Some(node.to_owned());
        }
    }
    None
}

/// Converts an address or CIDR to the form that it has in a block's name.
fn dashed(text: &str) -> String {
    text.replace(['.', ':', '/'], "-")
}

fn cidrs(names: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
    names
        .into_iter()
        .filter_map(|name| cidr_of_block(&name))
        .map(|cidr| cidr.to_string())
}

/// The objects of a kind, by name; pods and services of type LoadBalancer by `namespace/name`.
struct Objects<'c> {
    client: &'c Arc<KubeClient>,
    path: String,
    what: &'static str,
    source: Source,
}

impl<'c> Objects<'c> {
    /// Finds the kind of a source; `None` if the cluster has no such kind.
    fn find(client: &'c Arc<KubeClient>, source: Source) -> Option<Self> {
        let kind = kinds::find(client.api(), source).ok()?;
        Some(Self {
            client,
            path: kind.path.clone(),
            what: kind.known.plural,
            source,
        })
    }

    /// The path of at most `limit` objects from the name `start` on, which is empty for the first page.
    fn path_from(&self, start: &[u8], limit: usize) -> String {
        let mut path = format!("{}?limit={limit}", self.path);
        if !start.is_empty() {
            let mut start_name = String::from_utf8_lossy(start).into_owned();
            // A server refuses a name that ends with a slash. No name begins with a dash or what sorts before it.
            if start_name.ends_with('/') {
                start_name.push('-');
            }
            path.push_str(&format!("&continue={}", token_from(&start_name)));
        }
        if self.source == Source::Services {
            path.push_str("&fieldSelector=spec.type%3DLoadBalancer");
        }
        path
    }

    /// The IDs of handles. They are read from the objects, because object names are in lower case.
    async fn ids(&self, names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        let keys: BTreeSet<Key> = names.into_iter().map(Key::Handle).collect();
        let snapshot = reread(self.client, &keys).await?;
        Ok(names::handles(&snapshot))
    }
}

impl Names for Objects<'_> {
    /// Reads the names from `start` on, at most `limit`. A list of Kubernetes has no end.
    async fn page_from(&self, start: &[u8], _end: &[u8], limit: usize) -> Result<Vec<String>> {
        let path = self.path_from(start, limit);
        let page: Option<Page> = self.client.get_json(&path, Accept::Names, self.what).await?;
        let page = page.unwrap_or_default();
        if !matches!(self.source, Source::Services | Source::Pods) {
            return Ok(page.names().collect());
        }
        let mut names = Vec::new();
        for object in page.all() {
            names.push(format!("{}/{}", object.namespace, object.name));
        }
        Ok(names)
    }
}

impl Blocks for Objects<'_> {
    async fn some_blocks(&self, begin: &str, family: Family) -> Result<BTreeSet<String>> {
        let found = read_some(self, &dashed(begin)).await?;
        Ok(cidrs(found)
            .filter(|cidr| cidr.contains(':') == (family == Family::V6))
            .collect())
    }

    /// Reads the IPv4 networks with blocks that begin with `begin`, one number longer.
    async fn networks(&self, begin: &str) -> Result<Vec<String>> {
        let is_octet = |number: &str| number.parse::<u8>().is_ok();
        let mut networks = Vec::new();
        for part in read_prefixes(self, &dashed(begin), '-').await? {
            if part.split_terminator('-').all(is_octet) {
                networks.push(part.replace('-', "."));
            }
        }
        Ok(networks)
    }

    async fn allocated(&self, blocks: BTreeSet<Key>) -> Result<BTreeSet<String>> {
        Ok(addresses::allocated(&reread(self.client, &blocks).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_comes_before_the_block() {
        assert_eq!(
            node_of_affinity("node-1-10-244-1-0-26").as_deref(),
            Some("node-1")
        );
        assert_eq!(
            node_of_affinity("a-10-0-0-0-26-10-244-1-0-26").as_deref(),
            Some("a-10-0-0-0-26")
        );
        assert_eq!(node_of_affinity("n-fd00-10-244---122").as_deref(), Some("n"));
        assert_eq!(node_of_affinity("node-1"), None);
    }
}
