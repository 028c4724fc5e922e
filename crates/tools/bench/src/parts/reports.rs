//! The time and memory that the reports of a check take, without the check itself. Every tenth address is leaked, so
//! one in ten allocations has a finding.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use calipam_testkit::browser::{self, Browser};

use crate::bench::Bench;
use crate::measured::Measured;
use crate::process::calipam;

/// The formats in the order in which they are written. The metrics, which contain the time of the verdict, are last.
const FORMATS: [&str; 9] = [
    "json",
    "yaml",
    "table",
    "wide",
    "name",
    "ignore",
    "junit",
    "html",
    "prometheus",
];

pub(super) const TITLES: [&str; 2] = [
    "allocations | more memory | page opened in | complaints",
    "allocations | <format | size | time",
];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let cluster = bench.cluster()?;
    cluster.leak(10)?;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    let (program, command) = (
        bench.program,
        "check --quiet --settle 0 --grace 0 --fail-on never --output name",
    );
    let run = |reports| calipam(program, command, &[cluster.connection(), reports].concat(), 0);
    let check = run(Vec::new())?;
    // A browser derives the type of a file from its name.
    let path = |format: &str| folder.path().join(format!("report.{format}"));
    let option = |format: &&str| format!("--output-file={format}={}", path(format).display());
    let begin = SystemTime::now();
    let all = run(FORMATS.iter().map(option).collect())?;

    let verdict = verdict(&path("prometheus"))?;
    let mut before = begin + Duration::from_secs_f64(verdict);
    for format in FORMATS {
        let file = fs::metadata(path(format)).context(format)?;
        // Files are written one after another, so modification times show how long each took.
        let written = file.modified()?;
        let seconds = written.duration_since(before).unwrap_or_default().as_secs_f64();
        bench.row(
            1,
            &format!("{format} | {:.2} MB | {seconds:.2} s", file.len() as f64 / 1e6),
        );
        before = written;
    }
    let more = all.peak_mib - check.peak_mib;
    let page = opened(&path("html"))?;
    bench.row(0, &format!("{more:.0} MiB | {page}"));
    Ok(())
}

/// Opens a page in a browser. Returns the cells: the time from the request to the end of loading, including the page's
/// script, and the number of errors and warnings.
fn opened(file: &Path) -> Result<String> {
    if browser::program().is_err() {
        return Ok("no browser | ".to_owned());
    }
    let mut browser = Browser::start()?;
    let mut page = browser.page()?;
    let loading = Measured::of(|| page.open(file))?;
    Ok(format!("{:.2} s | {}", loading.seconds, page.complaints()?.len()))
}

/// Reads the time that the check took until its verdict from its metrics.
fn verdict(metrics: &Path) -> Result<f64> {
    let metrics = fs::read_to_string(metrics)?;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix("calipam_last_run_duration_seconds "));
    let seconds = value.and_then(|value| value.parse().ok());
    seconds.context("the metrics do not say how long the check took")
}
