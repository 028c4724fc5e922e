//! Lists names on Kubernetes. The server must be able to start a list at a name.

use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_assign::Family;
use calipam_files::objects::Accept;
use calipam_files::objects::names::{cidr_of_block, handle_name};
use calipam_model::key::Key;
use calipam_model::snapshot::Source;

use crate::error::Result;
use crate::kubernetes::again::reread;
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds;
use crate::kubernetes::client::page::{Page, token_from};
use crate::read::names::addresses::{self, Blocks};
use crate::read::names::page::{Names, few, parts, some};
use crate::read::names::{self, NameKind};

/// Reads the names of a kind that begin with `begin`, or some of them if there are many.
pub(super) async fn names(client: &Arc<KubeClient>, kind: NameKind, begin: &str) -> Result<BTreeSet<String>> {
    let source = match kind {
        NameKind::Nodes => return nodes(client, begin).await,
        NameKind::Handles => Source::Handles,
        NameKind::Pools => Source::Pools,
        NameKind::Namespaces => Source::Namespaces,
        NameKind::Blocks | NameKind::Addresses => Source::Blocks,
        NameKind::Services => Source::Services,
        NameKind::Pods => Source::Pods,
    };
    let Some(objects) = Objects::of(client, source) else {
        return Ok(BTreeSet::new());
    };
    match kind {
        NameKind::Handles => {
            let ids = objects.ids(some(&objects, &handle_name(begin)).await?).await?;
            Ok(ids.into_iter().filter(|id| id.starts_with(begin)).collect())
        }
        NameKind::Blocks => {
            let found = some(&objects, &dashed(begin)).await?;
            Ok(cidrs(found).filter(|cidr| cidr.starts_with(begin)).collect())
        }
        NameKind::Addresses => addresses::names(&objects, begin).await,
        NameKind::Nodes | NameKind::Pools | NameKind::Namespaces | NameKind::Services | NameKind::Pods => {
            some(&objects, begin).await
        }
    }
}

/// The names of Kubernetes nodes, and of nodes with affinities.
async fn nodes(client: &Arc<KubeClient>, begin: &str) -> Result<BTreeSet<String>> {
    let mut nodes = BTreeSet::new();
    if let Some(there) = Objects::of(client, Source::Nodes) {
        nodes.extend(some(&there, begin).await?);
    }
    if let Some(affinities) = Objects::of(client, Source::Affinities) {
        let found = some(&affinities, begin).await?;
        nodes.extend(found.iter().filter_map(|name| holder(name)));
    }
    Ok(few(nodes, begin))
}

/// The node in the name of an affinity, before the name of the block.
fn holder(name: &str) -> Option<String> {
    let dashes = name.match_indices('-').map(|(place, _)| place);
    let mut places = dashes.filter(|place| *place > 0 && cidr_of_block(&name[place + 1..]).is_some());
    places.next().map(|place| name[..place].to_owned())
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

/// The objects of a kind, by name; pods, and services of type LoadBalancer, by `namespace/name`.
struct Objects<'c> {
    client: &'c Arc<KubeClient>,
    path: String,
    what: &'static str,
    source: Source,
}

impl<'c> Objects<'c> {
    /// Returns the objects of a source; `None` if the cluster has no such kind.
    fn of(client: &'c Arc<KubeClient>, source: Source) -> Option<Self> {
        let kind = kinds::find(client.api(), source).ok()?;
        Some(Self {
            client,
            path: kind.path.clone(),
            what: kind.known.plural,
            source,
        })
    }

    /// The IDs of handles. They are read from the objects, because object names are in lower case.
    async fn ids(&self, names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        let keys: BTreeSet<Key> = names.into_iter().map(Key::Handle).collect();
        let snapshot = reread(self.client, &keys).await?;
        Ok(names::handles(&snapshot))
    }
}

impl Names for Objects<'_> {
    /// Reads a page of names from a place on. The end is not used, since a list of Kubernetes has none.
    async fn from(&self, start: &[u8], _end: &[u8], most: usize) -> Result<Vec<String>> {
        let mut path = format!("{}?limit={most}", self.path);
        if !start.is_empty() {
            let mut place = String::from_utf8_lossy(start).into_owned();
            // A server refuses a place that ends with a slash. No name begins with a dash or what sorts before it.
            if place.ends_with('/') {
                place.push('-');
            }
            path.push_str(&format!("&continue={}", token_from(&place)));
        }
        if self.source == Source::Services {
            path.push_str("&fieldSelector=spec.type%3DLoadBalancer");
        }
        let page: Option<Page> = self.client.get_json(&path, Accept::Names, self.what).await?;
        let page = page.unwrap_or_default();
        Ok(match self.source {
            Source::Services | Source::Pods => page
                .all()
                .map(|one| format!("{}/{}", one.namespace, one.name))
                .collect(),
            _ => page.names().collect(),
        })
    }
}

impl Blocks for Objects<'_> {
    async fn some(&self, begin: &str, family: Family) -> Result<BTreeSet<String>> {
        let found = some(self, &dashed(begin)).await?;
        Ok(cidrs(found)
            .filter(|cidr| cidr.contains(':') == (family == Family::V6))
            .collect())
    }

    /// Reads the IPv4 networks with blocks that begin with `begin`, one number longer.
    async fn networks(&self, begin: &str) -> Result<Vec<String>> {
        let is_octet = |number: &str| number.parse::<u8>().is_ok();
        let mut networks = Vec::new();
        for part in parts(self, &dashed(begin), '-').await? {
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
        assert_eq!(holder("node-1-10-244-1-0-26").as_deref(), Some("node-1"));
        assert_eq!(
            holder("a-10-0-0-0-26-10-244-1-0-26").as_deref(),
            Some("a-10-0-0-0-26")
        );
        assert_eq!(holder("n-fd00-10-244---122").as_deref(), Some("n"));
        assert_eq!(holder("node-1"), None);
    }
}
