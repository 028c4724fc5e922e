//! One check of many clusters compared with single checks, and the time that a browser needs to open the page.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use calipam_testkit::cluster::{Cluster, ClusterSpec};

use crate::child::measure;
use crate::parts::page;
use crate::{Failed, table};

/// Nodes per cluster, and pods per node: 5,000 pods.
const NODES: u32 = 100;
const PODS: usize = 50;

/// Clusters per group. A group has room for this many clusters with their own pools.
const GROUP: u64 = 200;

/// Measures each number of clusters and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    let cores = available_parallelism().map_or(1, usize::from);
    println!("{} pods in each cluster, {cores} cores", NODES as usize * PODS);
    let titles = "clusters | single checks | / cores | all | ratio | memory | page | opens";
    table::rows(sizes, titles, |clusters| measure_fleet(program, clusters, cores as f64))
}

/// Measures a number of clusters and returns their row.
fn measure_fleet(program: &str, clusters: u64, cores: f64) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let exports = folder.path().join("exports");
    let mut single = 0.0;
    for number in 0..clusters {
        let group = exports.join(format!("group-{}", number / GROUP));
        fs::create_dir_all(&group)?;
        let export = group.join(format!("cluster-{number}.jsonl"));
        let place = u8::try_from(number % GROUP)?;
        let spec = ClusterSpec { seed: number, ..ClusterSpec::new(1).v4_only().in_place(place) };
        let mut cluster = Cluster::plain(spec, NODES, PODS);
        // The place, which determines the default GUID, is unique only within a group.
        cluster.name_cluster(&format!("{number:032x}"));
        cluster.write_export(&export)?;

        let mut alone = Command::new(program);
        alone.args(["check", "-o", "json", "-d"]).arg(&export);
        single += measure(&mut alone, &[0, 1])?.seconds;
    }
    let mut check = Command::new(program);
    let all = measure(check.args(["check", "-o", "json", "--fleet"]).arg(&exports), &[0, 1])?;
    let page = folder.path().join("page.html");
    let file = format!("html={}", page.display());
    Command::new(program).args(["check", "-q", "--output-file", &file, "--fleet"]).arg(&exports).status()?;
    let opened = match page::open(&page, None)? {
        Some(opened) => format!("{:.2} s", opened.loading.seconds),
        None => "-".to_owned(),
    };
    let share = single / cores;
    Ok(format!(
        "{clusters} | {single:.1} s | {share:.1} s | {:.1} s | {:.2} | {:.0} MiB | {:.1} MiB | {opened}",
        all.seconds,
        all.seconds / share,
        all.peak_mib,
        fs::metadata(&page)?.len() as f64 / f64::from(1 << 20),
    ))
}
