//! `calipam record` while an etcd changes: bytes and processor time per change.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use calipam_testkit::allocator::Churn;

use crate::bench::Bench;
use crate::process::Running;

/// Number of starts and stops of pods, and rarely of claimed and released blocks, by each of the workers.
const OPERATIONS: usize = 5_000;
/// A recording that has not grown for this long is complete.
const QUIET: Duration = Duration::from_secs(5);

pub(super) const TITLES: &str = "allocations | changes | recorded | bytes a change | processor time | \
                      changes an hour of one core | memory";

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let cluster = bench.cluster()?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(bench.program);
    command
        .arg("record")
        .arg(folder.path())
        .args(cluster.connection());
    let (recorder, _) = Running::start(&mut command, "recording")?;

    let before = recorder.processor_seconds();
    let begin = quiet_length(folder.path())?;
    let first = cluster.revision()?;
    cluster.churn(Churn {
        operations: OPERATIONS,
        pause: Duration::ZERO,
        ..Churn::default()
    })?;
    let bytes = quiet_length(folder.path())? - begin;
    let seconds = recorder.processor_seconds() - before;
    // Each write is a revision of its own.
    let changes = cluster.revision()? - first;
    let cells = format!(
        "{changes} | {} KiB | {:.1} | {seconds:.1} s | {:.1} million | {:.0} MiB",
        bytes / 1024,
        bytes as f64 / changes as f64,
        changes as f64 / seconds * 3600.0 / 1e6,
        recorder.peak_mib(),
    );
    bench.row(0, &cells);
    Ok(())
}

/// The total length of the change files, once they have stopped growing.
fn quiet_length(folder: &Path) -> Result<u64> {
    let mut last = None;
    loop {
        let files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        let changes = files
            .iter()
            .filter(|file| file.path().extension().is_some_and(|end| end == "changes"));
        let length = changes
            .map(|file| Ok(file.metadata()?.len()))
            .sum::<Result<u64>>()?;
        if last.replace(length) == Some(length) {
            return Ok(length);
        }
        std::thread::sleep(QUIET);
    }
}
