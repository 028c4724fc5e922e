//! `calipam check` and `calipam show` on the Kubernetes datastore compared with the floor.

use calipam_testkit::servers::KubeApiserver;

use crate::Failed;
use crate::child::{self, CHECK};
use crate::kubernetes::{all, collect_garbage, connection, pull, seeded};
use crate::measured::{Compared, Measured};
use crate::table::{self, Table};

/// Runs of each measurement.
const RUNS: usize = 5;

/// The views and the kinds that they read.
const VIEWS: [(&[&str], &[&str]); 5] = [
    (
        &["show"],
        &[
            "nodes",
            "ipamblocks",
            "blockaffinities",
            "ippools",
            "ipreservations",
            "ipamconfigs",
            "clusterinformations",
        ],
    ),
    (&["show", "--blocks"], &["ipamblocks", "ippools", "ipreservations", "clusterinformations"]),
    (
        &["show", "--nodes"],
        &["nodes", "ipamblocks", "blockaffinities", "ippools", "ipamconfigs", "clusterinformations"],
    ),
    (&["show", "--borrowed"], &["ipamblocks", "ippools", "clusterinformations"]),
    (&["show", "--configuration"], &["ipamconfigs", "kubecontrollersconfigurations", "clusterinformations"]),
];

const TITLES: [&str; 2] = [
    "pods | bytes pulled | floor | API server | check | API server | ratio | peak memory",
    "pods | <command | bytes pulled | floor | time | ratio | peak memory",
];

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    table::of_sizes(sizes, TITLES, |pods, tables| measure(program, pods, tables))
}

fn measure(program: &str, pods: u64, [checks, views]: &mut [Table; 2]) -> Result<(), Failed> {
    let server = seeded(pods)?;
    let connection = connection(&server);
    let compare = |kinds: &[&str], command: &[&str]| {
        let floor = || of_server(&server, || pull(&server, kinds.iter().copied()));
        let command = || of_server(&server, || child::run(program, command, &connection));
        Compared::best_of(RUNS, floor, command)
    };

    let check = compare(&all().collect::<Vec<_>>(), CHECK)?;
    let (floor, command) = (check.floor, check.command);
    checks.row(format!(
        "{pods} | {:.0} MB | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.2} | {:.0} MiB",
        floor.megabytes(),
        floor.seconds,
        floor.processor,
        command.seconds,
        command.processor,
        check.ratio(),
        command.peak_mib,
    ));
    for (command, kinds) in VIEWS {
        let view = compare(kinds, command)?;
        let (command, bytes) = (command.join(" "), view.floor.megabytes());
        views.row(format!("{pods} | `{command}` | {bytes:.0} MB | {}", view.cells()));
    }
    Ok(())
}

/// Measures work that starts after a garbage collection in the API server. The result includes the server's processor
/// time.
fn of_server(
    server: &KubeApiserver,
    work: impl FnOnce() -> Result<Measured, Failed>,
) -> Result<Measured, Failed> {
    collect_garbage(server)?;
    let used = server.processor_seconds();
    let measured = work()?;
    let processor = server.processor_seconds() - used;
    eprintln!("{:.2} s (API server {processor:.2} s of processor time)", measured.seconds);
    Ok(Measured { processor, ..measured })
}
