//! What the CNI plugin does to blocks and handles for a pod (facts 3.4, 3.7, 3.14).

use std::net::IpAddr;

use ipnet::IpNet;

use super::store::{Place, Result, Store};
use super::{affinity, handle};
use crate::cluster::Holder;
use crate::cluster::wire::Block;

/// Takes one address of a block for a pod: the handle first, then the block. `None` where the block is full or gone,
/// or does not belong to `owner` any more; a borrower gives no owner.
pub fn take(store: &mut Store, net: IpNet, holder: &Holder, owner: Option<&str>) -> Result<Option<IpAddr>> {
    loop {
        let Some((mut block, version)) = affinity::block(store, net)? else { return Ok(None) };
        let usable = owner.is_none_or(|node| block.affinity.as_deref() == Some(&format!("host:{node}")));
        if !usable || block.unallocated.is_empty() {
            return Ok(None);
        }
        handle::count(store, &holder.handle(), net, 1)?;
        let address = block.take(1, holder.attribute())[0];
        if store.update(Place::Block(net), block.value(), &version)?.is_some() {
            return Ok(Some(address));
        }
        handle::count(store, &holder.handle(), net, -1)?;
    }
}

/// CNI DEL: every address under the handle, in each block that the handle names; the handle after each block.
pub fn release(store: &mut Store, id: &str) -> Result<()> {
    for net in handle::counts(store, id)?.into_keys() {
        let count = release_in(store, net, id)?;
        if count > 0 {
            handle::count(store, id, net, -count)?;
        }
    }
    Ok(())
}

/// Frees what a block records under a handle; gives the number of addresses.
fn release_in(store: &mut Store, net: IpNet, id: &str) -> Result<i64> {
    loop {
        let Some((mut block, version)) = affinity::block(store, net)? else { return Ok(0) };
        let held = held(&block, id);
        if held.is_empty() {
            return Ok(0);
        }
        block.free_all(&held);
        let done = if block.attributes.is_empty() && block.affinity.is_none() {
            store.delete(Place::Block(net), &version)?
        } else {
            store.update(Place::Block(net), block.value(), &version)?.is_some()
        };
        if done {
            return Ok(held.len() as i64);
        }
    }
}

/// The addresses that a block records under a handle.
pub fn held(block: &Block, id: &str) -> Vec<IpAddr> {
    let records = block.records().filter(|(_, record)| record.handle.as_deref() == Some(id));
    records.map(|(address, _)| address).collect()
}
