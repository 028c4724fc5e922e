//! Completion of values on etcd compared with one raw range read.

use std::process::Command;
use std::time::Instant;

use etcd_client::{Client, GetOptions};

use crate::{Failed, check};

/// Runs of each measurement. The median and the slowest are printed, since each run stands for a pressed key.
const RUNS: usize = 21;
/// Number of names per range read.
const AT_ONCE: i64 = 100;

/// The lines to complete, and the prefixes of the keys with the values.
const LINES: [(&str, &str); 4] = [
    ("show --handle k8s-pod-network.1", "/calico/ipam/v2/handle/k8s-pod-network.1"),
    ("show --ip 10.", "/calico/ipam/v2/assignment/ipv4/block/10."),
    ("rebuild --block 10.", "/calico/ipam/v2/assignment/ipv4/block/10."),
    ("check --node node-1", "/calico/resources/v3/projectcalico.org/nodes/node-1"),
];

/// One line of the table.
struct Row {
    allocations: u64,
    line: &'static str,
    suggestions: usize,
    /// Seconds, ascending.
    floor: Vec<f64>,
    completion: Vec<f64>,
}

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, allocations: u64) -> Result<Vec<Row>, Failed> {
    let etcd = check::seeded(allocations)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let row = |(line, prefix): (&'static str, &str)| {
        let (mut floor, mut completion, mut suggestions) = (Vec::new(), Vec::new(), 0);
        // Both take turns, so that a disturbance of the machine affects both.
        for _ in 0..RUNS {
            let start = Instant::now();
            runtime.block_on(read(&etcd.endpoint(), prefix))?;
            floor.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            suggestions = complete(program, line, &etcd.endpoint())?;
            completion.push(start.elapsed().as_secs_f64());
        }
        floor.sort_by(f64::total_cmp);
        completion.sort_by(f64::total_cmp);
        Ok(Row { allocations, line, suggestions, floor, completion })
    };
    LINES.into_iter().map(row).collect()
}

/// Connects and reads one range of keys, the minimum for any completion.
async fn read(endpoint: &str, prefix: &str) -> Result<(), etcd_client::Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let options = GetOptions::new().with_prefix().with_limit(AT_ONCE).with_keys_only();
    client.get(prefix, Some(options)).await.map(drop)
}

/// Completes a line like the script of bash, and returns the number of suggestions.
fn complete(program: &str, line: &str, endpoint: &str) -> Result<usize, Failed> {
    let (command, option) = line.split_once(' ').unwrap_or_default();
    let typed = line.rsplit(' ').next().unwrap_or_default();
    let line = format!("calipam {command} --etcd-endpoints {endpoint} {option}");
    let output = Command::new(program)
        .args(["--", &line, typed])
        .env("COMPLETE", "bash")
        .output()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    match String::from_utf8_lossy(&output.stdout).lines().count() {
        0 => Err(format!("`{line}` is completed by nothing").into()),
        suggestions => Ok(suggestions),
    }
}

fn print(sizes: &[Vec<Row>]) {
    println!("| allocations | line | suggestions | floor | completion | slowest | ratio |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    let (middle, last) = (RUNS / 2, RUNS - 1);
    for row in sizes.iter().flatten() {
        println!(
            "| {} | `{}` | {} | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} |",
            row.allocations,
            row.line,
            row.suggestions,
            row.floor[middle] * 1e3,
            row.completion[middle] * 1e3,
            row.completion[last] * 1e3,
            row.completion[middle] / row.floor[middle],
        );
    }
}
