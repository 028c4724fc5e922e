//! The floor: the time in which etcd sends all keys and values, split into ranges in the best of several ways. Only the
//! messages themselves are decoded.

use std::iter;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use std::vec::IntoIter;

use anyhow::Result;
use calipam_model::parallel::lock;
use calipam_testkit::cluster::Cluster;
use etcd_client::{Client, GetOptions};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::measured::Measured;

/// Numbers of ranges to try.
const SPLITS: [usize; 3] = [64, 128, 256];
/// Number of concurrent requests.
const IN_FLIGHT: usize = 4;

/// Ranges of keys: first key and end.
type Ranges = IntoIter<(Vec<u8>, Vec<u8>)>;

/// The sorted keys of a cluster, to split the key space evenly.
pub(super) fn keys(cluster: &Cluster) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    cluster.for_each_entry(|key, _| keys.push(key.to_vec()));
    keys.sort();
    keys
}

/// Reads everything below some prefixes once with each split; returns the fastest read. `keys` are sorted.
pub(super) fn pull(endpoint: &str, keys: &[Vec<u8>], prefixes: &[&str]) -> Result<Measured> {
    let runtime = Runtime::new()?;
    let pull = |split| {
        let ranges: Vec<_> = prefixes.iter().flat_map(|prefix| ranges(prefix, keys, split)).collect();
        let (start, ranges) = (Instant::now(), Arc::new(Mutex::new(ranges.into_iter())));
        let pulls = (0..IN_FLIGHT).map(|_| pull_some(endpoint.to_owned(), Arc::clone(&ranges)));
        let pulled = runtime.block_on(async { pulls.collect::<JoinSet<_>>().join_all().await });
        let bytes = pulled.into_iter().sum::<Result<u64, _>>()?;
        Ok(Measured { seconds: start.elapsed().as_secs_f64(), bytes, ..Measured::default() })
    };
    Measured::best(SPLITS.into_iter().map(pull).collect::<Result<_>>()?)
}

/// Returns the ranges below a prefix. `split` is the number of ranges into which all keys are split.
fn ranges(prefix: &str, keys: &[Vec<u8>], split: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let within = keys.iter().filter(|key| key.starts_with(prefix.as_bytes()));
    let inner = within.step_by((keys.len() / split).max(1)).skip(1).cloned();
    // Prefixes end with a slash, and `0` follows it.
    let end = format!("{}0", prefix.trim_end_matches('/')).into_bytes();
    let borders: Vec<_> = iter::once(prefix.into()).chain(inner).chain([end]).collect();
    borders.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// Reads one range after another until none is left. Returns the number of bytes.
async fn pull_some(endpoint: String, ranges: Arc<Mutex<Ranges>>) -> Result<u64, etcd_client::Error> {
    let client = Client::connect([endpoint], None).await?;
    let mut client = client.kv_client().max_decoding_message_size(usize::MAX);
    let mut bytes = 0;
    while let Some((from, to)) = { lock(&ranges).next() } {
        let answer = client.get(from, Some(GetOptions::new().with_range(to))).await?;
        bytes += answer.kvs().iter().map(|kv| kv.key().len() + kv.value().len()).sum::<usize>() as u64;
    }
    Ok(bytes)
}
