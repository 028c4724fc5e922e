//! The time and memory that the reports of a check take, without the check itself. Every tenth address is leaked, so
//! one in ten allocations has a finding.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::cluster::seeded_etcd;
use crate::parts::page;
use crate::table::{self, Table};
use crate::{Failed, child, form, leak};

/// The formats in the order in which they are written. The metrics, which contain the time of the verdict, are last.
const FORMATS: [&str; 9] = ["json", "yaml", "table", "wide", "name", "ignore", "junit", "html", "prometheus"];

const TITLES: [&str; 2] = [
    "allocations | findings | check | all reports | more memory | page | opened in | complaints",
    "allocations | <format | size | time",
];

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    table::of_sizes(sizes, TITLES, |size, tables| measure(program, size, tables))
}

fn measure(program: &str, allocations: u64, [totals, formats]: &mut [Table; 2]) -> Result<(), Failed> {
    let etcd = seeded_etcd(allocations)?;
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
        formats.row(format!("{allocations} | {format} | {:.2} MB | {seconds:.2} s", file.len() as f64 / 1e6));
        before = written;
    }
    let page = folder.path().join("html");
    let pictures = Path::new("target").join(format!("reports-{allocations}"));
    let opened = match page::open(&page, Some(&pictures))? {
        Some(opened) => format!("{:.2} s | {}", opened.loading.seconds, opened.complaints),
        None => "no browser | ".to_owned(),
    };
    totals.row(format!(
        "{allocations} | {findings} | {:.2} s | {:.2} s | {:.0} MiB | {:.2} MB | {opened}",
        check.seconds,
        all.seconds - verdict,
        all.peak_mib - check.peak_mib,
        fs::metadata(&page)?.len() as f64 / 1e6,
    ));
    Ok(())
}

/// Reads the time that the check took until its verdict from its metrics.
fn verdict(folder: &Path) -> Result<f64, Failed> {
    let metrics = fs::read_to_string(folder.join("prometheus"))?;
    let value = metrics.lines().find_map(|line| line.strip_prefix("calipam_last_run_duration_seconds "));
    let seconds = value.and_then(|value| value.parse().ok());
    seconds.ok_or_else(|| "the metrics do not say how long the check took".into())
}
