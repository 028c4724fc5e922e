//! Names of nodes and pools, as a request gives them.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::snapshot::Snapshot;

use wildmatch::WildMatch;

use crate::error::Error;

/// A node that exists, or that an affinity, a block or an endpoint still names.
///
/// # Errors
/// Where it is not found: a misspelt name would look like a clean cluster.
pub fn known_node(snapshot: &Snapshot, name: &str) -> Result<(), Error> {
    let owns = |owner: Option<&BlockOwner>| owner.and_then(BlockOwner::host).is_some_and(|host| host == name);
    let is_known = snapshot.nodes.iter().any(|node| node.value.name == name)
        || snapshot.affinities.iter().any(|affinity| affinity.value.key.node == name)
        || snapshot.blocks.iter().any(|b| b.value.content.sound().is_some_and(|block| owns(block.owner())))
        || snapshot.endpoints.iter().any(|endpoint| endpoint.value.node() == *name);
    if is_known { Ok(()) } else { Err(Error::UnknownNode(name.to_owned())) }
}

/// The nodes that are named, by name or by a pattern in which `*` stands for any characters and `?` for one.
///
/// # Errors
/// Where a name or pattern is that of no known node.
pub fn nodes(snapshot: &Snapshot, names: &[String]) -> Result<BTreeSet<String>, Error> {
    let mut found = BTreeSet::new();
    let mut known: Option<BTreeSet<String>> = None;
    for name in names {
        if !name.contains(['*', '?']) {
            known_node(snapshot, name)?;
            found.insert(name.clone());
            continue;
        }
        let pattern = WildMatch::new(name);
        let known = known.get_or_insert_with(|| known_nodes(snapshot));
        let matching: Vec<&String> = known.iter().filter(|node| pattern.matches(node)).collect();
        if matching.is_empty() {
            return Err(Error::UnknownNode(name.clone()));
        }
        found.extend(matching.into_iter().cloned());
    }
    Ok(found)
}

/// The nodes that [`known_node`] knows.
fn known_nodes(snapshot: &Snapshot) -> BTreeSet<String> {
    let owner = |block: &Block| block.owner().and_then(BlockOwner::host).map(str::to_owned);
    let mut known: BTreeSet<String> = snapshot.nodes.iter().map(|node| node.value.name.clone()).collect();
    known.extend(snapshot.affinities.iter().map(|affinity| affinity.value.key.node.clone()));
    known.extend(snapshot.blocks.iter().filter_map(|block| owner(block.value.content.sound()?)));
    known.extend(snapshot.endpoints.iter().map(|endpoint| endpoint.value.node().to_string()));
    known
}

/// The CIDR of a pool by its name, or a CIDR itself.
///
/// # Errors
/// Where it is neither.
pub fn pool(snapshot: &Snapshot, name: &str) -> Result<IpNet, Error> {
    if let Some(pool) = snapshot.pools.iter().find(|pool| pool.value.name == name) {
        return Ok(pool.value.cidr);
    }
    name.parse().map(|cidr: IpNet| cidr.trunc()).map_err(|_| Error::UnknownPool(name.to_owned()))
}
