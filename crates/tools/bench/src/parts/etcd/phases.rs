//! The phases of a check without any server: decoding on one thread, and the rules.

use std::hint::black_box;
use std::time::Instant;

use calipam_check::{Options, check};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::cluster::SizedCluster;

use super::RUNS;

/// The prefixes of the keys to decode, and their names.
const KINDS: [(&str, &str); 4] = [
    ("/calico/resources/v3/projectcalico.org/workloadendpoints/", "endpoints"),
    ("/calico/ipam/v2/handle/", "handles"),
    ("/calico/ipam/v2/assignment/", "blocks"),
    ("", "others"),
];

/// The best time of each phase, in seconds.
pub(super) struct Phases {
    decoding: [f64; KINDS.len()],
    rules: f64,
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn measure(cluster: &SizedCluster) -> Phases {
    let mut kinds: [Entries; KINDS.len()] = Default::default();
    cluster.for_each_entry(|key, value| {
        let kind = KINDS.iter().position(|(prefix, _)| key.starts_with(prefix.as_bytes()));
        kinds[kind.unwrap_or_default()].push((key.to_vec(), value.to_vec()));
    });
    kinds.iter_mut().for_each(|entries| entries.sort_unstable());

    let mut phases = Phases { decoding: [f64::INFINITY; KINDS.len()], rules: f64::INFINITY };
    for _ in 0..RUNS {
        let mut snapshot = Snapshot { taken_at: jiff::Timestamp::now(), ..Snapshot::default() };
        snapshot.mark_read(ETCD_SOURCES);
        for (entries, best) in kinds.iter().zip(&mut phases.decoding) {
            let start = Instant::now();
            entries.iter().for_each(|(key, value)| snapshot.add_entry(key, value, 1));
            *best = best.min(start.elapsed().as_secs_f64());
        }
        let start = Instant::now();
        black_box(check(&snapshot, &Options::default()));
        phases.rules = phases.rules.min(start.elapsed().as_secs_f64());
    }
    phases
}

pub(super) fn print<'r>(rows: impl Iterator<Item = (u64, &'r Phases)>) {
    print!("| allocations |");
    KINDS.iter().for_each(|(_, name)| print!(" decoding {name} |"));
    println!(" decoding, an allocation | rules | rules, an allocation |");
    println!("|---:|{}---:|---:|---:|", "---:|".repeat(KINDS.len()));
    for (allocations, Phases { decoding, rules }) in rows {
        let each = |seconds: f64| format!("{:.2} µs", seconds * 1e6 / allocations as f64);
        print!("| {allocations} |");
        decoding.iter().for_each(|seconds| print!(" {seconds:.2} s |"));
        println!(" {} | {rules:.2} s | {} |", each(decoding.iter().sum()), each(*rules));
    }
}
