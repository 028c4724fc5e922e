//! The floor: the time in which etcd sends all keys and values, split into ranges in the best of several ways. Only the
//! messages themselves are decoded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use calipam_testkit::cluster::SizedCluster;
use etcd_client::{Client, GetOptions};
use tokio::task::JoinSet;

use crate::Failed;
use crate::measured::Measured;

/// Numbers of ranges to try.
const SPLITS: [usize; 3] = [64, 128, 256];
/// Number of concurrent requests.
const IN_FLIGHT: usize = 4;
/// The sampling interval: every 61st key is kept for splitting.
const SAMPLE: usize = 61;

/// A sorted sample of the cluster's keys, to split the key space evenly.
pub(super) fn sample(cluster: &SizedCluster) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    cluster.for_each_entry(|key, _| all.push(key.to_vec()));
    let mut keys: Vec<_> = all.into_iter().step_by(SAMPLE).collect();
    keys.sort();
    keys
}

/// Reads everything below some prefixes once with each split; returns the fastest read. `keys` are sorted.
pub(super) fn pull(endpoint: &str, keys: &[Vec<u8>], prefixes: &[&str]) -> Result<Measured, Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let pull = |split| {
        let ranges = prefixes.iter().flat_map(|prefix| ranges(prefix, keys, split)).collect();
        Ok(runtime.block_on(pull_ranges(endpoint, ranges))?)
    };
    Measured::best(SPLITS.into_iter().map(pull).collect::<Result<_, Failed>>()?)
}

/// Returns the ranges below a prefix. `split` is the number of ranges into which all keys are split.
fn ranges(prefix: &str, keys: &[Vec<u8>], split: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let from = keys.partition_point(|key| key.as_slice() < prefix.as_bytes());
    let within = keys[from..].iter().take_while(|key| key.starts_with(prefix.as_bytes()));
    let mut borders: Vec<Vec<u8>> = within.cloned().step_by((keys.len() / split).max(1)).skip(1).collect();
    borders.insert(0, prefix.into());
    let mut end = prefix.as_bytes().to_vec();
    // Prefixes end with a slash.
    *end.last_mut().expect("a prefix is not empty") += 1;
    borders.push(end);
    borders.dedup();
    borders.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

async fn pull_ranges(
    endpoint: &str,
    borders: Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<Measured, etcd_client::Error> {
    let (borders, turn) = (Arc::new(borders), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let mut pulls = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let (borders, turn) = (Arc::clone(&borders), Arc::clone(&turn));
        let endpoint = endpoint.to_owned();
        pulls.spawn(async move {
            let mut client =
                Client::connect([endpoint], None).await?.kv_client().max_decoding_message_size(usize::MAX);
            let mut bytes = 0;
            loop {
                let place = turn.fetch_add(1, Ordering::Relaxed);
                let Some((from, to)) = borders.get(place) else {
                    return Ok::<u64, etcd_client::Error>(bytes);
                };
                let options = GetOptions::new().with_range(to.clone());
                let answer = client.get(from.clone(), Some(options)).await?;
                bytes +=
                    answer.kvs().iter().map(|kv| (kv.key().len() + kv.value().len()) as u64).sum::<u64>();
            }
        });
    }
    let mut bytes = 0;
    while let Some(pulled) = pulls.join_next().await {
        bytes += pulled.expect("a pull does not panic")?;
    }
    Ok(Measured { seconds: start.elapsed().as_secs_f64(), bytes, ..Measured::default() })
}
