//! `calipam record` while an etcd changes: bytes and processor time per change.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use calipam_testkit::servers::EtcdOptions;

use crate::Failed;
use crate::bench::Bench;
use crate::child::Running;
use crate::churn::Churn;
use crate::cluster::Cluster;

/// Number of pods that are replaced.
const REPLACED: u64 = 10_000;
/// A recording that has not grown for this long is complete.
const QUIET: Duration = Duration::from_secs(5);

pub(super) const TITLES: &str = "allocations | changes | recorded | bytes a change | processor time | \
                      changes an hour of one core | memory";

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let cluster = Cluster::seeded("etcd", bench.number()?, EtcdOptions::new())?;
    let mut churn = Churn::new(&cluster)?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(bench.program);
    command.arg("record").arg(folder.path()).args(cluster.connection());
    let (recorder, _) = Running::start(&mut command, |line| line.contains("recording"))?;

    let (before, begin) = (recorder.processor_seconds(), quiet_length(folder.path())?);
    while churn.replaced < REPLACED {
        churn.replace()?;
    }
    let bytes = quiet_length(folder.path())? - begin;
    let seconds = recorder.processor_seconds() - before;
    let changes = churn.written();
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
