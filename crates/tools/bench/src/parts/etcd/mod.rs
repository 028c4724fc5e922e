//! `calipam check`, `calipam show` and reading files on etcd compared with the floor.

mod files;
mod floor;
mod phases;
mod views;

use std::time::Instant;

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

use crate::views::{self as of_views, View};
use crate::{Failed, check, child};

/// Runs of each measurement; the best one counts, since disturbances only ever make a run slower.
const RUNS: usize = 3;

/// The measurements of one size.
struct Row {
    allocations: u64,
    floor: floor::Floor,
    check: child::Measured,
    phases: phases::Phases,
    views: Vec<View>,
    files: Vec<files::File>,
}

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, Failed> {
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    let etcd = Etcd::start()?;
    let start = Instant::now();
    cluster.write_to_etcd(&etcd.endpoint())?;
    eprintln!("{allocations} allocations: seeded in {:.1} s", start.elapsed().as_secs_f64());
    let endpoint = etcd.endpoint();
    let keys = floor::sample(&cluster);
    // Floor and check take turns, so that a disturbance of the machine affects both.
    let mut floors = Vec::new();
    let mut checks = Vec::new();
    for _ in 0..RUNS {
        floors.extend(floor::pull(&endpoint, &keys, &["/calico/"])?);
        checks.push(check::check(program, &["--etcd-endpoints", &endpoint])?);
    }
    let views = views::measure(program, &endpoint, &keys)?;
    let files = files::measure(program, &etcd)?;
    drop(etcd);
    let phases = phases::measure(&cluster);
    Ok(Row { allocations, floor: floor::best(floors)?, check: child::best(checks)?, phases, views, files })
}

fn print(rows: &[Row]) {
    println!("| allocations | bytes pulled | floor | ranges | check | ratio | peak memory | growth | net |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut before: Option<&Row> = None;
    for row in rows {
        let (growth, net) = before.map_or_else(Default::default, |before| {
            let size = row.allocations as f64 / before.allocations as f64;
            let growth = row.check.seconds / before.check.seconds;
            let of_server = row.floor.seconds / before.floor.seconds;
            (
                format!("{growth:.1} × time for {size:.0} × size"),
                format!("{:.1} ×", growth / of_server * size),
            )
        });
        println!(
            "| {} | {:.0} MB | {:.2} s | {} | {:.2} s | {:.2} | {:.0} MiB | {growth} | {net} |",
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
    println!();
    phases::print(rows.iter().map(|row| (row.allocations, &row.phases)));
    println!();
    of_views::print("allocations", rows.iter().map(|row| (row.allocations, row.views.as_slice())));
    println!();
    files::print(rows.iter().map(|row| (row.allocations, row.files.as_slice())));
}
