//! Measures `calipam check` on etcd against the floor: `bench_etcd CALIPAM ALLOCATIONS…`. `cargo xtask bench`
//! builds both in release mode and runs it.

mod floor;

use std::process::ExitCode;
use std::time::Instant;

use calipam_bench::{check, child};
use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

/// Runs of each measurement; the best one counts, since what disturbs a run only ever makes it slower.
const RUNS: usize = 3;

/// One line of the table.
struct Row {
    allocations: u64,
    floor: floor::Floor,
    check: child::Measured,
}

fn main() -> ExitCode {
    check::main("bench_etcd CALIPAM ALLOCATIONS…", measure, print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, String> {
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    let etcd = Etcd::start().map_err(|e| e.to_string())?;
    let start = Instant::now();
    cluster.write_to_etcd(&etcd.endpoint()).map_err(|e| e.to_string())?;
    eprintln!("{allocations} allocations: seeded in {:.1} s", start.elapsed().as_secs_f64());
    let keys = floor::sample(&cluster);
    // Floor and check take turns, so that what disturbs the machine disturbs both.
    let mut floors = Vec::new();
    let mut checks = Vec::new();
    for _ in 0..RUNS {
        floors.extend(floor::pull(&etcd.endpoint(), &keys)?);
        checks.push(check::check(program, &["--etcd-endpoints", &etcd.endpoint()])?);
    }
    let floor =
        floors.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).ok_or("no floor was measured")?;
    let memory = checks.iter().map(|c| c.peak_mib).max_by(f64::total_cmp).unwrap_or_default();
    let best =
        checks.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).ok_or("no check was measured")?;
    Ok(Row { allocations, floor, check: child::Measured { peak_mib: memory, ..best } })
}

fn print(rows: &[Row]) {
    println!("| allocations | bytes pulled | floor | ranges | check | ratio | peak memory | growth |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut before: Option<&Row> = None;
    for row in rows {
        let growth = before.map_or("".to_owned(), |before| {
            let size = row.allocations as f64 / before.allocations as f64;
            format!("{:.1} × time for {size:.0} × size", row.check.seconds / before.check.seconds)
        });
        println!(
            "| {} | {:.0} MB | {:.2} s | {} | {:.2} s | {:.2} | {:.0} MiB | {growth} |",
            row.allocations,
            row.floor.bytes as f64 / 1e6,
            row.floor.seconds,
            row.floor.ranges,
            row.check.seconds,
            row.check.seconds / row.floor.seconds,
            row.check.peak_mib,
        );
        before = Some(row);
    }
}
