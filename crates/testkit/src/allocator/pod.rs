//! What the CNI plugin does for a pod (facts 3.4, 3.7, 3.14).

use std::net::IpAddr;

use etcd_client::Error;
use ipnet::IpNet;

use super::store::Store;
use super::{affinity, handle};
use crate::cluster::wire::{Block, go_json, key};
use crate::cluster::{ClusterSpec, Holder, endpoint_of};

/// Takes one address of a block for a pod: the handle first, then the block. `None` where the block is full or gone,
/// or does not belong to `owner` any more; whoever borrows gives no owner.
pub async fn take(
    store: &mut Store,
    net: IpNet,
    holder: &Holder,
    owner: Option<&str>,
) -> Result<Option<IpAddr>, Error> {
    loop {
        let Some((mut block, revision)) = affinity::block(store, net).await? else { return Ok(None) };
        let usable = owner.is_none_or(|node| block.affinity.as_deref() == Some(&format!("host:{node}")));
        if !usable || block.unallocated.is_empty() {
            return Ok(None);
        }
        handle::count(store, &holder.handle(), net, 1).await?;
        let address = block.take(1, holder.attribute())[0];
        if store.update(&key::block(net), block.value(), revision).await? {
            return Ok(Some(address));
        }
        handle::count(store, &holder.handle(), net, -1).await?;
    }
}

/// CNI ADD behind the allocation: the endpoint.
pub async fn start(
    store: &mut Store,
    spec: &ClusterSpec,
    holder: &Holder,
    address: IpAddr,
) -> Result<(), Error> {
    let endpoint = endpoint_of(spec, holder, &[address]);
    let created = store.create(&endpoint.key(), go_json(&endpoint)).await?;
    assert!(created, "no two pods of a test have one name");
    Ok(())
}

/// CNI DEL: the endpoint, then every address under the handle.
pub async fn stop(store: &mut Store, holder: &Holder) -> Result<(), Error> {
    let endpoint = holder.endpoint_key();
    if let Some((_, revision)) = store.get(&endpoint).await? {
        store.delete(&endpoint, revision).await?;
    }
    for net in handle::blocks(store, &holder.handle()).await? {
        let count = release(store, net, &holder.handle()).await?;
        handle::count(store, &holder.handle(), net, -count).await?;
    }
    Ok(())
}

/// Frees what a block records under a handle; gives the number of addresses.
async fn release(store: &mut Store, net: IpNet, id: &str) -> Result<i64, Error> {
    loop {
        let Some((mut block, revision)) = affinity::block(store, net).await? else { return Ok(0) };
        let held: Vec<IpAddr> = held(&block, id);
        if held.is_empty() {
            return Ok(0);
        }
        block.free_all(&held);
        let done = if block.attributes.is_empty() && block.affinity.is_none() {
            store.delete(&key::block(net), revision).await?
        } else {
            store.update(&key::block(net), block.value(), revision).await?
        };
        if done {
            return Ok(held.len() as i64);
        }
    }
}

fn held(block: &Block, id: &str) -> Vec<IpAddr> {
    let records = block.records().filter(|(_, record)| record.handle.as_deref() == Some(id));
    records.map(|(address, _)| address).collect()
}
