//! The arithmetic of handle objects (facts 3.8).

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;

use super::store::{Place, Result, Store};
use crate::cluster::wire::{Handle, go_json};

#[derive(Deserialize)]
struct Stored {
    block: Option<BTreeMap<String, i64>>,
}

fn read(value: &[u8]) -> Handle {
    let stored: Stored = serde_json::from_slice(value).expect("handles of a test cluster read");
    Handle { block: stored.block.unwrap_or_default(), deleted: false }
}

/// The number of addresses that a handle counts in each block; nothing where there is no such handle.
pub fn counts(store: &mut Store, id: &str) -> Result<BTreeMap<IpNet, i64>> {
    let Some((value, _)) = store.get(Place::Handle(id))? else { return Ok(BTreeMap::new()) };
    let block = |(cidr, count): (String, i64)| (cidr.parse().expect("a CIDR"), count);
    Ok(read(&value).block.into_iter().map(block).collect())
}

/// Counts `by` more addresses of a block; the object goes with its last one. What would go below zero is left alone.
pub fn count(store: &mut Store, id: &str, block: IpNet, by: i64) -> Result<()> {
    let place = Place::Handle(id);
    loop {
        let done = match store.get(place)? {
            None if by <= 0 => return Ok(()),
            None => {
                let mut handle = Handle::default();
                handle.add(block, by);
                store.create(place, go_json(&handle))?.is_some()
            }
            Some((value, version)) => {
                let mut handle = read(&value);
                if handle.block.get(&block.to_string()).copied().unwrap_or_default() + by < 0 {
                    return Ok(());
                }
                handle.add(block, by);
                if handle.block.is_empty() {
                    store.delete(place, &version)?
                } else {
                    store.update(place, go_json(&handle), &version)?.is_some()
                }
            }
        };
        if done {
            return Ok(());
        }
    }
}
