//! One check of many clusters compared with single checks, and the time a browser needs for the page.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use calipam_testkit::browser::{self, Browser};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

use crate::child::measure;
use crate::{Failed, check};

/// Nodes per cluster, and pods per node: 5,000 pods.
const NODES: u32 = 100;
const PODS: usize = 50;

/// Clusters per group: so many can have pools of their own.
const GROUP: u64 = 200;

struct Row {
    clusters: u64,
    /// Seconds of all single checks.
    single: f64,
    /// Seconds and MiB of one check of all.
    all: (f64, f64),
    page_mib: f64,
    /// Seconds until the page is open; `None` without a browser.
    opened: Option<f64>,
}

/// Measures each number of clusters and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |clusters| measure_fleet(program, clusters), print)
}

fn measure_fleet(program: &str, clusters: u64) -> Result<Row, Failed> {
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
        // The place is unique within a group only.
        cluster.name_cluster(&format!("{number:032x}"));
        cluster.write_export(&export)?;

        let mut alone = Command::new(program);
        alone.args(["check", "-o", "json", "-d"]).arg(&export);
        single += measure(&mut alone, &[0, 1])?.seconds;
    }
    let mut all = Command::new(program);
    all.args(["check", "-o", "json", "--fleet"]).arg(&exports);
    let measured = measure(&mut all, &[0, 1])?;
    let page = folder.path().join("page.html");
    let file = format!("html={}", page.display());
    Command::new(program).args(["check", "-q", "--output-file", &file, "--fleet"]).arg(&exports).status()?;
    Ok(Row {
        clusters,
        single,
        all: (measured.seconds, measured.peak_mib),
        page_mib: File::open(&page)?.metadata()?.len() as f64 / f64::from(1 << 20),
        opened: open(&page)?,
    })
}

/// Opens the page; returns the seconds until it is loaded, including its script.
fn open(page: &Path) -> Result<Option<f64>, Failed> {
    if browser::program().is_err() {
        return Ok(None);
    }
    let mut browser = Browser::start()?;
    let mut opened = browser.page()?;
    let begin = Instant::now();
    opened.open(page)?;
    Ok(Some(begin.elapsed().as_secs_f64()))
}

fn print(rows: &[Row]) {
    let cores = available_parallelism().map_or(1, usize::from);
    println!("{} pods in each cluster, {cores} cores", NODES as usize * PODS);
    println!("| clusters | single checks | / cores | all | ratio | memory | page | opens |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for Row { clusters, single, all: (seconds, mib), page_mib, opened } in rows {
        let share = single / cores as f64;
        let opened = opened.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2} s"));
        println!(
            "| {clusters} | {single:.1} s | {share:.1} s | {seconds:.1} s | {:.2} | {mib:.0} MiB | {page_mib:.1} MiB | {opened} |",
            seconds / share,
        );
    }
}
