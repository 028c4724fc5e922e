//! The phases of a check without any server: decoding on one thread, and the rules.

use std::hint::black_box;
use std::time::Instant;

use calipam_check::{Options, check};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::cluster::SizedCluster;

use super::RUNS;

pub(in crate::parts) const TITLES: &str = "allocations | decoding endpoints | decoding handles | decoding blocks | \
                                 decoding others | decoding, an allocation | rules | rules, an allocation";

/// The prefixes of the keys to decode, in the order of the titles.
const KINDS: [&str; 4] = [
    "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    "/calico/ipam/v2/handle/",
    "/calico/ipam/v2/assignment/",
    "",
];

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Measures the phases of a check of a cluster; returns the row.
pub(super) fn measure(cluster: &SizedCluster, allocations: u64) -> String {
    let mut kinds: [Entries; KINDS.len()] = Default::default();
    cluster.for_each_entry(|key, value| {
        let kind = KINDS.iter().position(|prefix| key.starts_with(prefix.as_bytes()));
        kinds[kind.unwrap_or_default()].push((key.to_vec(), value.to_vec()));
    });
    kinds.iter_mut().for_each(|entries| entries.sort_unstable());

    let (mut decoding, mut rules) = ([f64::INFINITY; KINDS.len()], f64::INFINITY);
    for _ in 0..RUNS {
        let mut snapshot = Snapshot { taken_at: jiff::Timestamp::now(), ..Snapshot::default() };
        snapshot.mark_read(ETCD_SOURCES);
        for (entries, best) in kinds.iter().zip(&mut decoding) {
            let start = Instant::now();
            entries.iter().for_each(|(key, value)| snapshot.add_entry(key, value, 1));
            *best = best.min(start.elapsed().as_secs_f64());
        }
        let start = Instant::now();
        black_box(check(&snapshot, &Options::default()));
        rules = rules.min(start.elapsed().as_secs_f64());
    }
    let each = |seconds: f64| format!("{:.2} µs", seconds * 1e6 / allocations as f64);
    let kinds = decoding.map(|seconds| format!("{seconds:.2} s")).join(" | ");
    let (all, of_rules) = (each(decoding.iter().sum()), each(rules));
    format!("{kinds} | {all} | {rules:.2} s | {of_rules}")
}
