//! Changes to a healthy cluster in etcd.

use calipam_testkit::servers::Etcd;
use etcd_client::{CompactionOptions, GetOptions, KeyValue};
use serde_json::{Value, json};

use crate::Failed;

const BLOCKS: &str = "/calico/ipam/v2/assignment/ipv4/block/";
/// The interval of emptied blocks: every 50th block is emptied.
const EMPTIED: usize = 50;
/// Number of writes to the block of the address whose history is queried.
pub(super) const CHURN: i64 = 40;

/// The counts of changes that were made, and the address whose history is queried.
pub(super) struct Changed {
    pub released: usize,
    /// The address whose history is queried.
    pub address: String,
    /// The block of the address, as it was before the changes.
    block: KeyValue,
}

/// The current revision of the server.
pub(super) async fn revision(etcd: &Etcd) -> Result<i64, Failed> {
    let mut client = etcd.client().await?;
    Ok(client.get(BLOCKS, None).await?.header().map_or(0, |header| header.revision()))
}

/// Empties some blocks.
pub(super) async fn make(etcd: &Etcd) -> Result<Changed, Failed> {
    let client = etcd.client().await?;
    let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
    let names = GetOptions::new().with_prefix().with_keys_only();
    let all: Vec<KeyValue> = kv.get(BLOCKS, Some(names)).await?.kvs().to_vec();
    let mut released = 0;
    for name in all.iter().skip(1).step_by(EMPTIED) {
        let found = kv.get(name.key(), None).await?;
        let Some(stored) = found.kvs().first() else { continue };
        let (block, count) = emptied(stored.value());
        released += count;
        kv.put(name.key(), block, None).await?;
    }
    let first = all.first().map(KeyValue::key).unwrap_or_default().to_vec();
    let block = kv.get(first, None).await?.kvs().first().cloned().ok_or("there is no block")?;
    let cidr = block.key_str().unwrap_or_default().trim_start_matches(BLOCKS);
    let address = cidr.split('-').next().unwrap_or_default().to_owned();
    Ok(Changed { released, address, block })
}

/// Returns a block without its allocations, and the number of removed allocations.
fn emptied(stored: &[u8]) -> (String, usize) {
    let mut block: Value = serde_json::from_slice(stored).unwrap_or_default();
    let size = block["allocations"].as_array().map_or(0, Vec::len);
    let held = block["attributes"].as_array().map_or(0, Vec::len);
    block["allocations"] = vec![Value::Null; size].into();
    block["unallocated"] = (0..size).collect::<Vec<_>>().into();
    block["attributes"] = json!([]);
    (block.to_string(), held)
}

/// Alternately empties and refills the block of the address, with [`CHURN`] writes in total. Returns the current
/// revision.
pub(super) async fn churn(etcd: &Etcd, changed: &Changed) -> Result<i64, Failed> {
    let client = etcd.client().await?;
    let mut kv = client.kv_client();
    let (empty, _) = emptied(changed.block.value());
    for turn in 0..CHURN {
        let value = if turn % 2 == 0 { empty.clone().into_bytes() } else { changed.block.value().to_vec() };
        kv.put(changed.block.key(), value, None).await?;
    }
    revision(etcd).await
}

/// Compacts all but the newest revisions, as kube-controllers does every ten minutes.
pub(super) async fn compact(etcd: &Etcd, keep: i64) -> Result<i64, Failed> {
    let newest = revision(etcd).await?;
    let mut client = etcd.client().await?;
    client.compact(newest - keep, Some(CompactionOptions::new().with_physical())).await?;
    Ok(keep)
}
