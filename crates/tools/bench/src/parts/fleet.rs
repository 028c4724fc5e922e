//! One check of many clusters compared with single checks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use calipam_testkit::cluster::{Cluster, ClusterSpec};

use crate::Failed;
use crate::bench::Bench;
use crate::child::measure as measure_child;
use crate::measured::Measured;

/// Nodes per cluster, and pods per node: 5,000 pods.
const NODES: u32 = 100;
const PODS: usize = 50;

/// Clusters per group. A group has room for this many clusters with their own pools.
const GROUP: u64 = 200;

/// Measures one check of a number of clusters. The floor checks each alone, on as many cores as there are.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let (program, folder) = (bench.program, tempfile::tempdir()?);
    let mut exports = Vec::new();
    for number in 0..bench.number()? {
        let group = folder.path().join(format!("group-{}", number / GROUP));
        fs::create_dir_all(&group)?;
        let place = u8::try_from(number % GROUP)?;
        let spec = ClusterSpec { seed: number, ..ClusterSpec::new(1).v4_only().in_place(place) };
        let mut cluster = Cluster::plain(spec, NODES, PODS);
        // The place, which determines the default GUID, is unique only within a group.
        cluster.name_cluster(&format!("{number:032x}"));
        exports.push(group.join(format!("cluster-{number}.jsonl")));
        cluster.write_export(&exports[exports.len() - 1])?;
    }

    let check = |option: &str, path: &Path| {
        let mut check = Command::new(program);
        measure_child(check.args(["check", "-o", "json", option]).arg(path), &[0, 1])
    };
    let floor = || {
        let alone = exports.iter().map(|export| Ok(check("-d", export)?.seconds));
        let seconds = alone.sum::<Result<f64, Failed>>()? / available_parallelism()?.get() as f64;
        Ok(Measured { seconds, ..Measured::default() })
    };
    bench.compare("check --fleet", 1, floor, || check("--fleet", folder.path()))
}
