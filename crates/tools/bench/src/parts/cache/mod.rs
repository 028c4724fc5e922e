//! `calipam check --cache` against a check without, if one of a hundred workloads has changed since the last check.

mod on_etcd;
mod on_kubernetes;

use std::path::Path;

use crate::child::{self, Measured};
use crate::{Failed, check};

/// Runs of each measurement; the best one counts, since what disturbs a run only ever makes it slower.
const RUNS: usize = 3;
/// One workload in so many changes between two checks.
const CHANGED: usize = 100;

/// One line of the table.
struct Row {
    size: u64,
    full: Measured,
    first: Measured,
    file_mib: f64,
    written: usize,
    second: Measured,
}

/// Measures on etcd; sizes are allocations.
pub(super) fn run_on_etcd(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| on_etcd::measure(program, size), |rows| print(rows, "allocations"))
}

/// Measures on the Kubernetes datastore; sizes are pods.
pub(super) fn run_on_kubernetes(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| on_kubernetes::measure(program, size), |rows| print(rows, "pods"))
}

/// Checks with a cache and without in turn, so that what disturbs the machine disturbs both. `prepare` makes the server
/// ready for a check; `change` writes what has changed since the last one, and gives the number of objects.
fn measure(
    program: &str,
    size: u64,
    connection: &[&str],
    prepare: impl Fn() -> Result<(), String>,
    change: impl Fn(usize) -> Result<usize, String>,
) -> Result<Row, String> {
    // Not in a memory file system.
    let folder = tempfile::tempdir_in(".").map_err(|e| e.to_string())?;
    let cache = folder.path().display().to_string();
    let checked = |options: &[&str]| {
        prepare()?;
        check::check(program, &[connection, options].concat())
    };
    let full = || checked(&[]);
    let cached = || checked(&["--cache", &cache]);

    let (mut fulls, mut seconds, mut written) = (vec![full()?], Vec::new(), 0);
    let first = cached()?;
    let file_mib = size_of(folder.path()).map_err(|e| e.to_string())? as f64 / f64::from(1 << 20);
    for run in 0..RUNS {
        written = change(run)?;
        seconds.push(cached()?);
        fulls.push(full()?);
    }
    Ok(Row { size, full: child::best(fulls)?, first, file_mib, written, second: child::best(seconds)? })
}

/// The size of the files in a folder.
fn size_of(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.map(|file| Ok(file?.metadata()?.len())).sum()
}

fn print(rows: &[Row], size: &str) {
    println!(
        "| {size} | check | memory | first with a cache | its files | objects written | second | memory | ratio |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        println!(
            "| {} | {:.2} s | {:.0} MiB | {:.2} s | {:.0} MiB | {} | {:.2} s | {:.0} MiB | {:.2} |",
            row.size,
            row.full.seconds,
            row.full.peak_mib,
            row.first.seconds,
            row.file_mib,
            row.written,
            row.second.seconds,
            row.second.peak_mib,
            row.second.seconds / row.full.seconds,
        );
    }
}
