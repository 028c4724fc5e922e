//! The phases of a check without any server: decoding on one thread, and the rules.

use std::hint::black_box;

use anyhow::Result;
use calipam_check::{Options, check};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::cluster::Cluster;

use super::RUNS;
use crate::measured::Measured;

pub(in crate::parts) const TITLES: &str = "allocations | decoding, an allocation | rules, an allocation";

/// Measures the phases of a check of a cluster; returns the row.
pub(super) fn measure(cluster: &Cluster, allocations: u64) -> Result<String> {
    let mut entries = Vec::new();
    cluster.for_each_entry(|key, value| entries.push((key.to_vec(), value.to_vec())));
    entries.sort_unstable();
    let (mut decoding, mut rules) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let mut snapshot = Snapshot { taken_at: jiff::Timestamp::now(), ..Snapshot::default() };
        snapshot.mark_read(ETCD_SOURCES);
        let mut decode = |(key, value): &(Vec<u8>, Vec<u8>)| {
            snapshot.add_entry(key, value, 1);
            Ok(())
        };
        decoding.push(Measured::of(|| entries.iter().try_for_each(&mut decode))?);
        rules.push(Measured::of(|| Ok(black_box(check(&snapshot, &Options::default()))))?);
    }
    let each = |runs| anyhow::Ok(Measured::best(runs)?.seconds * 1e6 / allocations as f64);
    let [decoding, rules] = [each(decoding)?, each(rules)?];
    Ok(format!("{decoding:.2} µs | {rules:.2} µs"))
}
