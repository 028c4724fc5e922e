//! Many clusters in one check, against checks of each alone; and what a browser makes of the page of all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::Instant;

use calipam_testkit::browser::{self, Browser};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

use crate::child::measure;
use crate::{Failed, check};

/// Nodes of each cluster, and pods of each node: 5,000 pods.
const NODES: u32 = 100;
const PODS: usize = 50;

/// Clusters of one group: so many have pools of their own.
const GROUP: u64 = 200;

/// As many exports are on the disk and are checked alone; of more clusters the summaries alone are measured.
const EXPORTS: u64 = 200;

struct Row {
    clusters: u64,
    /// Seconds of all single checks, and of one check of all; of exports.
    single: Option<f64>,
    exports: Option<(f64, f64)>,
    summaries_mib: f64,
    /// Seconds and MiB of the check of all summaries.
    joined: (f64, f64),
    page_mib: f64,
    /// Seconds until the page is open; `None` if there is no browser.
    opened: Option<f64>,
}

/// Measures each number of clusters and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |clusters| measure_fleet(program, clusters), print)
}

fn measure_fleet(program: &str, clusters: u64) -> Result<Row, Failed> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let has_exports = clusters <= EXPORTS;
    let mut single = 0.0;
    for number in 0..clusters {
        let group = format!("group-{}", number / GROUP);
        let export = at("exports").join(&group).join(format!("cluster-{number}.jsonl"));
        let summary = at("sent").join(&group).join(format!("cluster-{number}.json"));
        for path in [&export, &summary] {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        }
        let place = u8::try_from(number % GROUP)?;
        let spec = ClusterSpec { seed: number, ..ClusterSpec::new(1).v4_only().in_place(place) };
        let mut cluster = Cluster::plain(spec, NODES, PODS);
        // The place tells a cluster of its group; here are several groups.
        cluster.name_cluster(&format!("{number:032x}"));
        cluster.write_export(&export)?;

        let mut alone = Command::new(program);
        alone.args(["check", "-o", "json", "-d"]).arg(&export);
        single += measure(&mut alone)?.0.seconds;
        let mut sends = Command::new(program);
        sends.args(["check", "-q", "-d"]).arg(&export).arg("--output-file");
        sends.arg(format!("summary={}", summary.display()));
        measure(&mut sends)?;
        if !has_exports {
            fs::remove_file(&export)?;
        }
    }
    let of = |name: &str| -> Result<(f64, f64), Failed> {
        let mut all = Command::new(program);
        all.args(["check", "-o", "json", "--fleet"]).arg(at(name));
        let measured = measure(&mut all)?.0;
        Ok((measured.seconds, measured.peak_mib))
    };
    let exports = has_exports.then(|| of("exports")).transpose()?;
    let joined = of("sent")?;
    let page = at("page.html");
    let file = format!("html={}", page.display());
    Command::new(program)
        .args(["check", "-q", "--output-file", &file, "--fleet"])
        .arg(at("sent"))
        .status()?;
    Ok(Row {
        clusters,
        single: has_exports.then_some(single),
        exports,
        summaries_mib: size_of(&at("sent"))? as f64 / f64::from(1 << 20),
        joined,
        page_mib: File::open(&page)?.metadata()?.len() as f64 / f64::from(1 << 20),
        opened: open(&page)?,
    })
}

/// The size of all files below a folder.
fn size_of(folder: &Path) -> std::io::Result<u64> {
    let paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let size = |path: PathBuf| if path.is_dir() { size_of(&path) } else { Ok(fs::metadata(path)?.len()) };
    paths.into_iter().map(size).sum()
}

/// Seconds from the request to the end of loading, the page's script included.
fn open(page: &Path) -> Result<Option<f64>, Failed> {
    if browser::program().is_err() {
        return Ok(None);
    }
    let mut browser = Browser::start().map_err(|error| error.to_string())?;
    let mut opened = browser.page().map_err(|error| error.to_string())?;
    let begin = Instant::now();
    opened.open(page).map_err(|error| error.to_string())?;
    Ok(Some(begin.elapsed().as_secs_f64()))
}

fn print(rows: &[Row]) {
    let cores = available_parallelism().map_or(1, usize::from);
    println!("{} pods in each cluster, {cores} cores", NODES as usize * PODS);
    println!(
        "| clusters | single checks | / cores | all exports | ratio | memory | summaries | joined | memory | page | opens |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in rows {
        let share = row.single.map(|single| single / cores as f64);
        let ratio = row.exports.zip(share).map(|((seconds, _), share)| seconds / share);
        println!(
            "| {} | {} | {} | {} | {} | {} | {:.0} MiB | {:.2} s | {:.0} MiB | {:.1} MiB | {} |",
            row.clusters,
            or_dash(row.single.map(|single| format!("{single:.1} s"))),
            or_dash(share.map(|share| format!("{share:.1} s"))),
            or_dash(row.exports.map(|(seconds, _)| format!("{seconds:.1} s"))),
            or_dash(ratio.map(|ratio| format!("{ratio:.2}"))),
            or_dash(row.exports.map(|(_, mib)| format!("{mib:.0} MiB"))),
            row.summaries_mib,
            row.joined.0,
            row.joined.1,
            row.page_mib,
            or_dash(row.opened.map(|seconds| format!("{seconds:.2} s"))),
        );
    }
}
