//! The floor: the time in which etcd hands out the same keys and values at all, by the best of several splits
//! into ranges. Nothing is decoded but the messages themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use calipam_testkit::cluster::SizedCluster;
use etcd_client::{Client, GetOptions};
use tokio::task::JoinSet;

/// Ranges into which the keys are split.
const SPLITS: [usize; 3] = [64, 128, 256];
/// Requests in flight.
const IN_FLIGHT: usize = 4;
/// One key in so many is known to the planner of the floor.
const SAMPLE: usize = 61;

/// One pull of everything.
pub struct Floor {
    pub seconds: f64,
    pub bytes: u64,
    pub ranges: usize,
}

/// Keys of the cluster, sorted: enough of them to split the key space evenly.
pub fn sample(cluster: &SizedCluster) -> Vec<Vec<u8>> {
    let mut number = 0;
    let mut keys = Vec::new();
    cluster.for_each_entry(|key, _| {
        if number % SAMPLE == 0 {
            keys.push(key.to_vec());
        }
        number += 1;
    });
    keys.sort();
    keys
}

/// Pulls everything once with each split.
pub fn pull(endpoint: &str, keys: &[Vec<u8>]) -> Result<Vec<Floor>, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|e| e.to_string())?;
    SPLITS
        .iter()
        .map(|split| runtime.block_on(pull_split(endpoint, keys, *split)).map_err(|e| e.to_string()))
        .collect()
}

async fn pull_split(endpoint: &str, keys: &[Vec<u8>], split: usize) -> Result<Floor, etcd_client::Error> {
    let mut borders: Vec<Vec<u8>> =
        (1..split).filter_map(|i| keys.get(i * keys.len() / split).cloned()).collect();
    borders.insert(0, b"/calico/".to_vec());
    borders.push(b"/calico0".to_vec());
    borders.dedup();
    let ranges = borders.len() - 1;
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
                let Some([from, to]) = borders.get(place..place + 2) else {
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
    Ok(Floor { seconds: start.elapsed().as_secs_f64(), bytes, ranges })
}
