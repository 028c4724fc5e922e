//! The time and memory that the reports of a check take, without the check itself. Every tenth address is leaked, so
//! one in ten allocations has a finding.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use calipam_testkit::browser::{self, Browser};
use calipam_testkit::servers::EtcdOptions;

use crate::bench::Bench;
use crate::cluster::seeded_etcd;
use crate::measured::Measured;
use crate::{Failed, child, form, leak};

/// The formats in the order in which they are written. The metrics, which contain the time of the verdict, are last.
const FORMATS: [&str; 9] = ["json", "yaml", "table", "wide", "name", "ignore", "junit", "html", "prometheus"];

pub(super) const TITLES: [&str; 2] = [
    "allocations | findings | check | all reports | more memory | page opened in | complaints",
    "allocations | <format | size | time",
];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let (program, etcd) = (bench.program, seeded_etcd(bench.number()?, EtcdOptions::new())?);
    let findings = leak::every_tenth(&etcd, form::ETCD.pods)?;
    // The folder is not in a memory-backed file system, whose files would count as used memory.
    let folder = tempfile::tempdir_in(".")?;
    let run = |reports: &[String]| {
        let mut command = Command::new(program);
        command.args(["check", "--quiet", "--settle", "0", "--grace", "0", "--fail-on", "never"]);
        command.args(["--output", "name", "--etcd-endpoints", &etcd.endpoint()]).args(reports);
        child::measure(&mut command, &[0])
    };
    let check = run(&[])?;
    let option = |format: &&str| format!("--output-file={format}={}", folder.path().join(format).display());
    let begin = SystemTime::now();
    let all = run(&FORMATS.iter().map(option).collect::<Vec<_>>())?;

    let verdict = verdict(folder.path())?;
    let mut before = begin + Duration::from_secs_f64(verdict);
    for format in FORMATS {
        let file = fs::metadata(folder.path().join(format)).map_err(|e| format!("{format}: {e}"))?;
        // Files are written one after another, so modification times show how long each took.
        let written = file.modified()?;
        let seconds = written.duration_since(before).unwrap_or_default().as_secs_f64();
        bench.row(1, &format!("{format} | {:.2} MB | {seconds:.2} s", file.len() as f64 / 1e6));
        before = written;
    }
    let cells = format!(
        "{findings} | {:.2} s | {:.2} s | {:.0} MiB | {}",
        check.seconds,
        all.seconds - verdict,
        all.peak_mib - check.peak_mib,
        opened(&folder.path().join("html"))?,
    );
    bench.row(0, &cells);
    Ok(())
}

/// Opens a page in a browser. Returns the cells: the time from the request to the end of loading, including the page's
/// script, and the number of errors and warnings.
fn opened(file: &Path) -> Result<String, Failed> {
    if browser::program().is_err() {
        return Ok("no browser | ".to_owned());
    }
    // A browser derives the type of a file from its name.
    let named = file.with_extension("page.html");
    fs::copy(file, &named)?;
    let mut browser = Browser::start()?;
    let mut page = browser.page()?;
    let loading = Measured::of(|| Ok(page.open(&named)?))?;
    Ok(format!("{:.2} s | {}", loading.seconds, page.complaints()?.len()))
}

/// Reads the time that the check took until its verdict from its metrics.
fn verdict(folder: &Path) -> Result<f64, Failed> {
    let metrics = fs::read_to_string(folder.join("prometheus"))?;
    let value = metrics.lines().find_map(|line| line.strip_prefix("calipam_last_run_duration_seconds "));
    let seconds = value.and_then(|value| value.parse().ok());
    seconds.ok_or_else(|| "the metrics do not say how long the check took".into())
}
