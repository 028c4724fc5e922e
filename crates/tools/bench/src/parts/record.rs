//! `calipam record` while an etcd changes: bytes and processor time per change.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::child::Running;
use crate::churn::{Churn, KEYS};
use crate::{Failed, check};

/// Number of pods that are replaced.
const REPLACED: u64 = 10_000;
/// A recording that has not grown for so long is complete.
const QUIET: Duration = Duration::from_secs(5);

struct Row {
    allocations: u64,
    changes: u64,
    bytes: u64,
    /// Seconds of processor time.
    seconds: f64,
    peak_mib: f64,
}

/// Measures each number of allocations and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |allocations| measure(program, allocations), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, Failed> {
    let etcd = check::seeded(allocations)?;
    let endpoint = etcd.endpoint();
    let runtime = Runtime::new()?;
    let mut churn = runtime.block_on(Churn::new(&endpoint))?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.arg("record").arg(folder.path()).args(["--etcd-endpoints", &endpoint]);
    let (recorder, _) = Running::start(&mut command, |line| line.contains("recording"))?;

    let (before, begin) = (recorder.processor_seconds(), quiet_length(folder.path())?);
    while churn.replaced < REPLACED {
        runtime.block_on(churn.replace())?;
    }
    let bytes = quiet_length(folder.path())? - begin;
    let seconds = recorder.processor_seconds() - before;
    let changes = churn.replaced * 2 * KEYS;
    Ok(Row { allocations, changes, bytes, seconds, peak_mib: recorder.peak_mib() })
}

/// The length of the changes when they do not grow any more.
fn quiet_length(folder: &Path) -> Result<u64, Failed> {
    let length = || {
        let files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        let changes = files.iter().filter(|file| file.path().extension().is_some_and(|end| end == "changes"));
        changes.map(|file| Ok(file.metadata()?.len())).sum::<Result<u64, Failed>>()
    };
    let mut last = length()?;
    loop {
        std::thread::sleep(QUIET);
        match length()? {
            now if now == last => return Ok(now),
            now => last = now,
        }
    }
}

fn print(rows: &[Row]) {
    println!(
        "| allocations | changes | recorded | bytes a change | processor time | changes an hour of one core | memory |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        println!(
            "| {} | {} | {} KiB | {:.1} | {:.1} s | {:.1} million | {:.0} MiB |",
            row.allocations,
            row.changes,
            row.bytes / 1024,
            row.bytes as f64 / row.changes as f64,
            row.seconds,
            row.changes as f64 / row.seconds * 3600.0 / 1e6,
            row.peak_mib,
        );
    }
}
