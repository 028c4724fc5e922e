//! The arithmetic of handle objects (facts 3.8).

use std::collections::BTreeMap;

use etcd_client::Error;
use ipnet::IpNet;
use serde::Deserialize;

use super::store::Store;
use crate::cluster::wire::{Handle, go_json, key};

#[derive(Deserialize)]
struct Stored {
    block: Option<BTreeMap<String, i64>>,
}

fn read(value: &[u8]) -> Handle {
    let stored: Stored = serde_json::from_slice(value).expect("handles of a test cluster read");
    Handle { block: stored.block.unwrap_or_default(), deleted: false }
}

/// The blocks of a handle; empty where there is none.
pub async fn blocks(store: &mut Store, id: &str) -> Result<Vec<IpNet>, Error> {
    let Some((value, _)) = store.get(&key::handle(id)).await? else { return Ok(Vec::new()) };
    Ok(read(&value).block.keys().map(|cidr| cidr.parse().expect("a CIDR")).collect())
}

/// Counts `by` more addresses of a block; the object goes with its last one.
pub async fn count(store: &mut Store, id: &str, block: IpNet, by: i64) -> Result<(), Error> {
    let key = key::handle(id);
    loop {
        let done = match store.get(&key).await? {
            None if by <= 0 => return Ok(()),
            None => {
                let mut handle = Handle::default();
                handle.add(block, by);
                store.create(&key, go_json(&handle)).await?
            }
            Some((value, revision)) => {
                let mut handle = read(&value);
                handle.add(block, by);
                if handle.block.is_empty() {
                    store.delete(&key, revision).await?
                } else {
                    store.update(&key, go_json(&handle), revision).await?
                }
            }
        };
        if done {
            return Ok(());
        }
    }
}
