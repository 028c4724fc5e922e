//! The time and memory that the reports of a check take, without the check. Every tenth address is leaked, so there are
//! as many findings.

mod page;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::{Failed, check, child, leak};

/// The formats in the order of their writing. The metrics are last: they have the time of the verdict.
const FORMATS: [&str; 9] = ["json", "yaml", "table", "wide", "name", "ignore", "junit", "html", "prometheus"];

/// The measurements of one format.
struct Report {
    format: &'static str,
    bytes: u64,
    seconds: f64,
}

/// The measurements of one size.
struct Row {
    allocations: u64,
    findings: usize,
    check: child::Measured,
    /// Seconds from the verdict to the end of the program.
    seconds: f64,
    /// MiB beyond those of a check without reports.
    more_mib: f64,
    reports: Vec<Report>,
    page: Option<page::Opened>,
}

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, Failed> {
    let etcd = check::seeded(allocations)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let findings = runtime.block_on(leak::every_tenth(&etcd))?;
    drop(runtime);
    eprintln!("{findings} of {allocations} addresses are leaked");

    // Not in a memory file system, whose files would count as memory of the machine.
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
    let reports = reports(folder.path(), begin + Duration::from_secs_f64(verdict))?;
    let pictures = Path::new("target").join(format!("reports-{allocations}"));
    fs::create_dir_all(&pictures)?;
    let page = page::open(&folder.path().join("html"), &pictures)?;
    Ok(Row {
        allocations,
        findings,
        seconds: all.seconds - verdict,
        more_mib: all.peak_mib - check.peak_mib,
        check,
        reports,
        page,
    })
}

/// The time of the check until its verdict, from its metrics.
fn verdict(folder: &Path) -> Result<f64, Failed> {
    let metrics = fs::read_to_string(folder.join("prometheus"))?;
    let value = metrics.lines().find_map(|line| line.strip_prefix("calipam_last_run_duration_seconds "));
    let seconds = value.and_then(|value| value.parse().ok());
    seconds.ok_or_else(|| "the metrics do not say how long the check took".into())
}

/// The time of each file, from its own timestamp and that of the file before.
fn reports(folder: &Path, verdict: SystemTime) -> Result<Vec<Report>, Failed> {
    let mut before = verdict;
    let mut reports = Vec::new();
    for format in FORMATS {
        let file = fs::metadata(folder.join(format)).map_err(|e| format!("{format}: {e}"))?;
        let written = file.modified()?;
        let seconds = written.duration_since(before).unwrap_or_default().as_secs_f64();
        reports.push(Report { format, bytes: file.len(), seconds });
        before = written;
    }
    Ok(reports)
}

fn print(rows: &[Row]) {
    println!(
        "| allocations | findings | check | all reports | more memory | page | opened in | complaints |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let page = row.reports.iter().find(|report| report.format == "html");
        let (opened, complaints) = match &row.page {
            Some(page) => (format!("{:.2} s", page.seconds), page.complaints.to_string()),
            None => ("no browser".to_owned(), String::new()),
        };
        println!(
            "| {} | {} | {:.2} s | {:.2} s | {:.0} MiB | {:.2} MB | {opened} | {complaints} |",
            row.allocations,
            row.findings,
            row.check.seconds,
            row.seconds,
            row.more_mib,
            page.map_or(0.0, |page| page.bytes as f64 / 1e6),
        );
    }
    println!();
    println!("| allocations | format | size | time |");
    println!("|---:|---|---:|---:|");
    for row in rows {
        for Report { format, bytes, seconds } in &row.reports {
            println!("| {} | {format} | {:.2} MB | {seconds:.2} s |", row.allocations, *bytes as f64 / 1e6);
        }
    }
}
