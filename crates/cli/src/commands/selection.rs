//! From options to a filter of findings.

use calipam_check::{Code, Filter};
use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Snapshot;

use crate::args::CheckArgs;
use crate::exit::Failure;

/// The filter that the options ask for.
///
/// # Errors
/// Where a node or pool does not exist: a misspelt name would look like a clean cluster.
pub fn filter(args: &CheckArgs, ignore: Vec<(Code, String)>, snapshot: &Snapshot) -> Result<Filter, Failure> {
    args.nodes.iter().try_for_each(|node| known_node(snapshot, node))?;
    let pools = args.pools.iter().map(|name| pool(snapshot, name)).collect::<Result<_, _>>()?;
    Ok(Filter {
        rules: args.rules.clone(),
        skip: args.skip_rules.clone(),
        nodes: args.nodes.clone(),
        pools,
        ignore,
    })
}

/// A node that exists, or of which something is left.
///
/// # Errors
/// Where nothing names it.
pub fn known_node(snapshot: &Snapshot, node: &str) -> Result<(), Failure> {
    if knows_node(snapshot, node) {
        return Ok(());
    }
    Err(Failure::NotFound {
        message: format!("nothing names a node {node:?}"),
        hint: Some("`calipam show --nodes` lists nodes and what they hold".into()),
    })
}

fn knows_node(snapshot: &Snapshot, name: &str) -> bool {
    let owns = |owner: Option<&BlockOwner>| owner.and_then(BlockOwner::host).is_some_and(|host| host == name);
    snapshot.nodes.iter().any(|node| node.value.name == name)
        || snapshot.affinities.iter().any(|affinity| affinity.value.key.node == name)
        || snapshot.blocks.iter().any(|b| b.value.content.sound().is_some_and(|block| owns(block.owner())))
        || snapshot.endpoints.iter().any(|endpoint| endpoint.value.node() == *name)
}

/// The CIDR of a pool by its name, or a CIDR itself.
///
/// # Errors
/// Where there is no such pool.
pub fn pool(snapshot: &Snapshot, name: &str) -> Result<IpNet, Failure> {
    if let Some(pool) = snapshot.pools.iter().find(|pool| pool.value.name == name) {
        return Ok(pool.value.cidr);
    }
    name.parse().map(|cidr: IpNet| cidr.trunc()).map_err(|_| Failure::NotFound {
        message: format!("there is no pool {name:?}"),
        hint: Some("`calipam show` lists the pools; a CIDR is understood as well".into()),
    })
}
