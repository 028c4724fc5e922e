//! `calipam check` and `calipam show` on etcd, and `calipam check` on files, compared with the floor.

mod files;
mod floor;
mod phases;

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::servers::Etcd;

use crate::Failed;
use crate::child::{self, CHECK};
use crate::measured::{Compared, Measured};
use crate::table::{self, Table};

/// Runs of each measurement.
const RUNS: usize = 3;

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// The views and the prefixes that they read. Single keys are left out, since they hardly cost anything.
const VIEWS: [(&[&str], &[&str]); 5] = [
    (&["show"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--blocks"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--nodes"], &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER]),
    (&["show", "--borrowed"], &[BLOCKS, POOLS, CLUSTER]),
    (&["show", "--configuration"], &[POOLS, CLUSTER]),
];

const TITLES: [&str; 4] = [
    "allocations | bytes pulled | floor | ranges | check | ratio | peak memory | growth | net",
    phases::TITLES,
    "allocations | <command | bytes pulled | floor | time | ratio | peak memory",
    "allocations | <file | size | floor | check | ratio | peak memory",
];

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    let mut before = None;
    table::of_sizes(sizes, TITLES, |size, tables| {
        before = Some((size, measure(program, size, tables, before.as_ref())?));
        Ok(())
    })
}

/// Measures a size. Returns the comparison of the check with the floor. `before` is the previous size, with its
/// comparison.
fn measure(
    program: &str,
    allocations: u64,
    [checks, phases, views, files]: &mut [Table; 4],
    before: Option<&(u64, Compared)>,
) -> Result<Compared, Failed> {
    let cluster = SizedCluster::new(ClusterSpec::new(1), allocations);
    let etcd = Etcd::start()?;
    let seeding = Measured::of(|| Ok(cluster.write_to_etcd(&etcd.endpoint())?))?;
    eprintln!("{allocations} allocations: seeded in {:.1} s", seeding.seconds);
    let (endpoint, keys) = (etcd.endpoint(), floor::sample(&cluster));
    let compare = |prefixes: &[&str], command: &[&str]| {
        let floor = || floor::pull(&endpoint, &keys, prefixes);
        Compared::best_of(RUNS, floor, || child::run(program, command, &["--etcd-endpoints", &endpoint]))
    };

    let check = compare(&["/calico/"], CHECK)?;
    let (floor, command) = (check.floor, check.command);
    checks.row(format!(
        "{allocations} | {:.0} MB | {:.2} s | {} | {:.2} s | {:.2} | {:.0} MiB | {}",
        floor.megabytes(),
        floor.seconds,
        floor.ranges,
        command.seconds,
        check.ratio(),
        command.peak_mib,
        before.map_or_else(|| " | ".to_owned(), |before| growth(before, allocations, &check)),
    ));
    for (command, prefixes) in VIEWS {
        let view = compare(prefixes, command)?;
        let (command, bytes) = (command.join(" "), view.floor.megabytes());
        views.row(format!("{allocations} | `{command}` | {bytes:.0} MB | {}", view.cells()));
    }
    files::measure(program, &etcd, allocations, files)?;
    drop(etcd);
    phases.row(phases::measure(&cluster, allocations));
    Ok(check)
}

/// The table cells: the growth of the check's time since the previous size, and this growth if the server's time had
/// grown in proportion to the size.
fn growth((size_before, before): &(u64, Compared), size: u64, now: &Compared) -> String {
    let size = size as f64 / *size_before as f64;
    let growth = now.command.seconds / before.command.seconds;
    let of_server = now.floor.seconds / before.floor.seconds;
    format!("{growth:.1} × time for {size:.0} × size | {:.1} ×", growth / of_server * size)
}
