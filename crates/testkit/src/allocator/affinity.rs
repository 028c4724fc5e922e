//! Claiming blocks and giving them up (facts 3.9).

use etcd_client::Error;
use ipnet::IpNet;
use jiff::Timestamp;

use super::store::Store;
use crate::cluster::whole_seconds;
use crate::cluster::wire::{self, Block, key};

/// The block under its key.
pub async fn block(store: &mut Store, net: IpNet) -> Result<Option<(Block, i64)>, Error> {
    let read = store.get(&key::block(net)).await?;
    Ok(read.map(|(value, revision)| (Block::read(&value).expect("blocks of a test cluster read"), revision)))
}

/// The blocks for which a node has affinities.
pub async fn of_node(store: &mut Store, node: &str) -> Result<Vec<IpNet>, Error> {
    let keys = store.keys(&format!("/calico/ipam/v2/host/{node}/ipv4/block/")).await?;
    let net = |key: String| key.rsplit('/').next()?.replacen('-', "/", 1).parse().ok();
    Ok(keys.into_iter().filter_map(net).collect())
}

/// Claims a block that does not exist yet; false where somebody else was faster.
pub async fn claim(store: &mut Store, node: &str, net: IpNet) -> Result<bool, Error> {
    let affinity = key::affinity("host", node, net);
    if !store.create(&affinity, wire::affinity("pending")).await? {
        return Ok(false);
    }
    create_and_confirm(store, node, net).await
}

async fn create_and_confirm(store: &mut Store, node: &str, net: IpNet) -> Result<bool, Error> {
    let now = Timestamp::now();
    let owner = format!("host:{node}");
    let fresh = Block::new(net, Some(owner.clone()), Some(whole_seconds(now)), now.as_nanosecond() as u64);
    let created = store.create(&key::block(net), fresh.value()).await?;
    let own = created
        || block(store, net).await?.is_some_and(|(b, _)| b.affinity.as_deref() == Some(owner.as_str()));
    let affinity = key::affinity("host", node, net);
    let Some((_, revision)) = store.get(&affinity).await? else { return Ok(false) };
    if own {
        store.update(&affinity, wire::affinity("confirmed"), revision).await?;
    } else {
        store.delete(&affinity, revision).await?;
    }
    Ok(own)
}

/// Makes the affinity of a node's block usable where somebody left it in the middle of something. Gives false where
/// the node has not got the block.
pub async fn revive(store: &mut Store, node: &str, net: IpNet) -> Result<bool, Error> {
    let affinity = key::affinity("host", node, net);
    let Some((value, revision)) = store.get(&affinity).await? else { return Ok(false) };
    let stored = block(store, net).await?;
    let own = |b: &Block| b.affinity.as_deref() == Some(format!("host:{node}").as_str());
    match stored {
        Some((ref block, _)) if own(block) && value == wire::affinity("confirmed") => Ok(true),
        Some((block, _)) if !own(&block) => {
            store.delete(&affinity, revision).await?;
            Ok(false)
        }
        None => {
            let pending = store.update(&affinity, wire::affinity("pending"), revision).await?;
            Ok(pending && create_and_confirm(store, node, net).await?)
        }
        Some(_) => {
            if !store.update(&affinity, wire::affinity("pending"), revision).await? {
                return Ok(false);
            }
            // A rewrite of the block lets whoever is about to delete it fail.
            if let Some((mut again, revision)) = block(store, net).await? {
                again.sequence += 1;
                store.update(&key::block(net), again.value(), revision).await?;
            }
            create_and_confirm(store, node, net).await
        }
    }
}

/// Gives up a block of the node that holds nothing; false where it holds something or somebody interfered.
pub async fn release(store: &mut Store, node: &str, net: IpNet) -> Result<bool, Error> {
    let affinity = key::affinity("host", node, net);
    let (Some((_, revision)), Some((stored, block_revision))) =
        (store.get(&affinity).await?, block(store, net).await?)
    else {
        return Ok(false);
    };
    if stored.attributes.is_empty()
        && store.update(&affinity, wire::affinity("pendingDeletion"), revision).await?
    {
        let Some((_, revision)) = store.get(&affinity).await? else { return Ok(false) };
        if store.delete(&key::block(net), block_revision).await? {
            return store.delete(&affinity, revision).await;
        }
        revive(store, node, net).await?;
    }
    Ok(false)
}
