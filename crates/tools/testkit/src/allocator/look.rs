//! Reads addresses from the datastore with the tests' own decoders, to check calipam's allocator independently.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

use super::store::{Place, Result, Store, Version};
use crate::cluster::wire::Block;

#[derive(Deserialize)]
struct StoredHandle {
    block: Option<BTreeMap<String, i64>>,
}

/// Reads a block, if it exists.
pub(super) fn block(store: &mut Store, net: IpNet) -> Result<Option<(Block, Version)>> {
    let read = store.get(Place::Block(net))?;
    Ok(read.map(|(value, version)| (Block::read(&value).expect("a block of the test"), version)))
}

/// The addresses that a block records under a handle.
pub(super) fn held(block: &Block, id: &str) -> Vec<IpAddr> {
    let records = block.records().filter(|(_, record)| record.handle.as_deref() == Some(id));
    records.map(|(address, _)| address).collect()
}

/// The number of addresses that a handle counts in each block; empty if there is no such handle.
pub(super) fn counts(store: &mut Store, id: &str) -> Result<BTreeMap<IpNet, i64>> {
    let Some((value, _)) = store.get(Place::Handle(id))? else { return Ok(BTreeMap::new()) };
    let stored: StoredHandle = serde_json::from_slice(&value).expect("a handle of the test");
    let block = |(cidr, count): (String, i64)| (cidr.parse().expect("a CIDR"), count);
    Ok(stored.block.unwrap_or_default().into_iter().map(block).collect())
}
