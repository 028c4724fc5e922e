//! `calipam check` and `calipam show` on the Kubernetes datastore compared with the floor.

use calipam_testkit::servers::{EtcdOptions, KubeApiserver};

use crate::Failed;
use crate::bench::Bench;
use crate::child::{self, CHECK};
use crate::cluster::Cluster;
use crate::kubernetes::{all, collect_garbage, pull};
use crate::measured::Measured;

/// Runs of each measurement.
const RUNS: usize = 5;

/// The views and the kinds that they read.
const VIEWS: [(&str, &str); 3] = [
    ("show", "nodes ipamblocks blockaffinities ippools ipreservations ipamconfigs clusterinformations"),
    ("show --blocks", "ipamblocks ippools ipreservations clusterinformations"),
    ("show --nodes", "nodes ipamblocks blockaffinities ippools ipamconfigs clusterinformations"),
];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let cluster = Cluster::seeded("kubernetes", bench.number()?, EtcdOptions::new())?;
    let Cluster::Kubernetes(server) = &cluster else { return Err("no API server".into()) };
    let (program, connection, all) =
        (bench.program, cluster.connection(), all().collect::<Vec<_>>().join(" "));
    for (command, kinds) in [(CHECK, &*all)].into_iter().chain(VIEWS) {
        let floor = || of_server(server, || pull(server, kinds.split(' ')));
        let measured = || of_server(server, || child::run(program, command, &connection));
        bench.compare(command, RUNS, floor, measured)?;
    }
    Ok(())
}

/// Measures work that starts after a garbage collection in the API server. Prints the server's processor time.
fn of_server(
    server: &KubeApiserver,
    work: impl FnOnce() -> Result<Measured, Failed>,
) -> Result<Measured, Failed> {
    collect_garbage(server)?;
    let used = server.processor_seconds();
    let measured = work()?;
    let processor = server.processor_seconds() - used;
    eprintln!("{:.2} s (API server {processor:.2} s of processor time)", measured.seconds);
    Ok(measured)
}
