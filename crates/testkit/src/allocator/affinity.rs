//! Claiming blocks and giving them up (facts 3.9).

use ipnet::IpNet;
use jiff::Timestamp;

use super::store::{Place, Result, Store, Version};
use crate::cluster::whole_seconds;
use crate::cluster::wire::{self, Block};

/// How often Calico tries again where others interfere.
const ATTEMPTS: usize = 100;

/// What became of an attempt to make a block usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// The node has the block.
    Usable,
    /// Another node has it, or none.
    Lost,
    /// Another client interfered.
    Again,
}

pub fn block(store: &mut Store, net: IpNet) -> Result<Option<(Block, Version)>> {
    let read = store.get(Place::Block(net))?;
    Ok(read.map(|(value, version)| (Block::read(&value).expect("blocks of a test cluster read"), version)))
}

fn is_of(block: &Block, node: &str) -> bool {
    block.affinity.as_deref().and_then(|owner| owner.strip_prefix("host:")) == Some(node)
}

/// The blocks for which a node has affinities.
pub fn blocks_of_node(store: &mut Store, node: &str) -> Result<Vec<IpNet>> {
    let affinities = store.others().affinities(Some(node))?;
    Ok(affinities.into_iter().map(|(_, net)| net).collect())
}

/// Claims a block that does not exist yet; false where another client was faster.
pub fn claim(store: &mut Store, node: &str, net: IpNet) -> Result<bool> {
    let pending = store.create(Place::Affinity(node, net), wire::affinity("pending"))?;
    let Some(pending) = pending else { return Ok(false) };
    match create_and_confirm(store, node, net, &pending)? {
        Attempt::Again => revive(store, node, net),
        attempt => Ok(attempt == Attempt::Usable),
    }
}

/// Creates the block of a pending affinity, and confirms the affinity at the version that this worker wrote: had
/// another client changed it since, the block might have become another's.
fn create_and_confirm(store: &mut Store, node: &str, net: IpNet, pending: &Version) -> Result<Attempt> {
    let now = Timestamp::now();
    let owner = format!("host:{node}");
    let fresh = Block::new(net, Some(owner), Some(whole_seconds(now)), now.as_nanosecond() as u64);
    if store.create(Place::Block(net), fresh.value())?.is_none() {
        match block(store, net)? {
            None => return Ok(Attempt::Again),
            Some((other, _)) if !is_of(&other, node) => {
                let given_up = store.delete(Place::Affinity(node, net), pending)?;
                return Ok(if given_up { Attempt::Lost } else { Attempt::Again });
            }
            Some(_) => {}
        }
    }
    confirm(store, node, net, pending)
}

fn confirm(store: &mut Store, node: &str, net: IpNet, pending: &Version) -> Result<Attempt> {
    let confirmed = store.update(Place::Affinity(node, net), wire::affinity("confirmed"), pending)?;
    Ok(if confirmed.is_some() { Attempt::Usable } else { Attempt::Again })
}

/// Makes the affinity of a node's block usable where an operation on it was broken off. Gives false where
/// the node has not got the block.
pub fn revive(store: &mut Store, node: &str, net: IpNet) -> Result<bool> {
    for _ in 0..ATTEMPTS {
        match try_revive(store, node, net)? {
            Attempt::Again => {}
            attempt => return Ok(attempt == Attempt::Usable),
        }
    }
    panic!("others interfered {ATTEMPTS} times with {net} of {node}");
}

fn try_revive(store: &mut Store, node: &str, net: IpNet) -> Result<Attempt> {
    let affinity = Place::Affinity(node, net);
    let Some((value, version)) = store.get(affinity)? else { return Ok(Attempt::Lost) };
    let stored = block(store, net)?;
    match stored {
        Some((ref block, _)) if is_of(block, node) && value == wire::affinity("confirmed") => {
            return Ok(Attempt::Usable);
        }
        Some((ref block, _)) if !is_of(block, node) => {
            let given_up = store.delete(affinity, &version)?;
            return Ok(if given_up { Attempt::Lost } else { Attempt::Again });
        }
        _ => {}
    }
    let Some(pending) = store.update(affinity, wire::affinity("pending"), &version)? else {
        return Ok(Attempt::Again);
    };
    let Some((mut block, version)) = stored else { return create_and_confirm(store, node, net, &pending) };
    // A rewrite of the block makes a deletion that is about to happen fail.
    block.sequence += 1;
    match store.update(Place::Block(net), block.value(), &version)? {
        Some(_) => confirm(store, node, net, &pending),
        None => Ok(Attempt::Again),
    }
}

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The block is gone.
    Done,
    /// It is in use, gone, or another's; nothing was changed.
    Refused,
    /// Another client interfered when the affinity had already been marked: the node has to [`revive`] it.
    Marked,
}

/// Gives up a block of a node that holds nothing. A client that looks at the affinity meanwhile may get the block back.
pub fn release(store: &mut Store, node: &str, net: IpNet) -> Result<Release> {
    let affinity = Place::Affinity(node, net);
    let (Some((_, version)), Some((stored, block_version))) = (store.get(affinity)?, block(store, net)?)
    else {
        return Ok(Release::Refused);
    };
    if !is_of(&stored, node) || !stored.attributes.is_empty() {
        return Ok(Release::Refused);
    }
    let Some(marked) = store.update(affinity, wire::affinity("pendingDeletion"), &version)? else {
        return Ok(Release::Refused);
    };
    if !store.delete(Place::Block(net), &block_version)? {
        return Ok(Release::Marked);
    }
    store.delete(affinity, &marked)?;
    Ok(Release::Done)
}
