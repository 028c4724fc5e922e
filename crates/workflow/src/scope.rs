//! Names of nodes and pools, as a request gives them.

use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Snapshot;

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
