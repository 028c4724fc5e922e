//! Histories and comparisons on etcd.

mod changes;
mod reading;

use std::path::Path;
use std::process::Command;

use calipam_testkit::servers::Etcd;

use crate::{Failed, check, child, leak};

/// Runs of each question; the median and the slowest are printed.
const RUNS: usize = 21;
/// Runs of each comparison and of its reads; the best one counts.
const COMPARISONS: usize = 3;

/// One question about the past.
struct Question {
    allocations: u64,
    /// Number of revisions that etcd keeps.
    revisions: i64,
    command: &'static str,
    /// Seconds, ascending.
    seconds: Vec<f64>,
}

/// A comparison of two states.
struct Comparison {
    allocations: u64,
    states: &'static str,
    /// Seconds of reading both states alone.
    reading: f64,
    diff: child::Measured,
}

struct Row {
    questions: Vec<Question>,
    comparisons: Vec<Comparison>,
}

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, Failed> {
    let etcd = check::seeded(allocations)?;
    let runtime = tokio::runtime::Runtime::new()?;
    // Not in a memory file system, whose files would count as memory of the machine.
    let folder = tempfile::tempdir_in(".")?;
    let before = export(program, &etcd, folder.path(), "before")?;
    let past = runtime.block_on(changes::revision(&etcd))?;

    let changed = runtime.block_on(changes::make(&etcd))?;
    let leaked = runtime.block_on(leak::every_tenth(&etcd))?;
    eprintln!("{} addresses were given back, {leaked} endpoints deleted", changed.given_back);
    let after = export(program, &etcd, folder.path(), "after")?;

    let live = format!("etcd@{past}");
    let comparisons = [
        ("two exports", [before.as_str(), after.as_str()]),
        ("a past revision and what is live", [live.as_str(), "etcd"]),
    ];
    let comparisons = comparisons.into_iter().map(|(name, states)| {
        let (reading, diff) = compare(program, &etcd, states)?;
        Ok(Comparison { allocations, states: name, reading, diff })
    });
    let comparisons = comparisons.collect::<Result<_, Failed>>()?;

    let revisions = runtime.block_on(changes::churn(&etcd, &changed))?;
    let mut questions = ask(program, &etcd, &changed.address, allocations, revisions)?;
    let kept = runtime.block_on(changes::compact(&etcd, changes::CHURN))?;
    questions.extend(ask(program, &etcd, &changed.address, allocations, kept)?);
    Ok(Row { questions, comparisons })
}

/// Writes an export and returns its path.
fn export(program: &str, etcd: &Etcd, folder: &Path, name: &str) -> Result<String, Failed> {
    let path = folder.join(format!("{name}.jsonl.zst")).display().to_string();
    let mut export = Command::new(program);
    child::measure(export.args(["export", &path, "--quiet", "--etcd-endpoints", &etcd.endpoint()]), &[0])?;
    Ok(path)
}

/// The best time of reading both states, and the best comparison with the highest peak of memory.
fn compare(program: &str, etcd: &Etcd, states: [&str; 2]) -> Result<(f64, child::Measured), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (mut reading, mut runs) = (f64::INFINITY, Vec::new());
    // Both take turns, so that a disturbance of the machine affects both.
    for _ in 0..COMPARISONS {
        let seconds = runtime.block_on(reading::seconds(etcd, states))?;
        reading = reading.min(seconds);
        let mut diff = Command::new(program);
        diff.args(["diff", "--settle", "0", "-o", "json"]).args(states);
        runs.push(child::measure(diff.args(["--etcd-endpoints", &etcd.endpoint()]), &[1])?);
    }
    Ok((reading, child::best(runs)?))
}

/// Measures the history and the state of an address.
fn ask(
    program: &str,
    etcd: &Etcd,
    address: &str,
    allocations: u64,
    revisions: i64,
) -> Result<Vec<Question>, Failed> {
    let question = |(name, command): (&'static str, &str)| {
        let mut seconds = Vec::new();
        for _ in 0..RUNS {
            let mut asked = Command::new(program);
            asked.args([command, "--quiet", "--ip", address, "--etcd-endpoints", &etcd.endpoint()]);
            seconds.push(child::measure(&mut asked, &[0])?.seconds);
        }
        seconds.sort_by(f64::total_cmp);
        Ok(Question { allocations, revisions, command: name, seconds })
    };
    [("history --ip", "history"), ("show --ip", "show")].into_iter().map(question).collect()
}

fn print(rows: &[Row]) {
    println!("| allocations | kept revisions | command | median | slowest |");
    println!("|---:|---:|---|---:|---:|");
    for question in rows.iter().flat_map(|row| &row.questions) {
        let Question { allocations, revisions, command, seconds } = question;
        println!(
            "| {allocations} | {revisions} | `{command}` | {:.0} ms | {:.0} ms |",
            seconds[RUNS / 2] * 1e3,
            seconds[RUNS - 1] * 1e3
        );
    }
    println!();
    println!("| allocations | compared | reading both | diff | ratio | peak memory |");
    println!("|---:|---|---:|---:|---:|---:|");
    for Comparison { allocations, states, reading, diff } in rows.iter().flat_map(|row| &row.comparisons) {
        println!(
            "| {allocations} | {states} | {reading:.2} s | {:.2} s | {:.2} | {:.0} MiB |",
            diff.seconds,
            diff.seconds / reading,
            diff.peak_mib
        );
    }
}
