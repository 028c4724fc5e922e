//! `calipam check` and `calipam show` on a datastore, and `calipam check` on files, compared with the floor.

mod files;
mod floor;
mod phases;

use anyhow::Result;
use calipam_testkit::servers::EtcdOptions;

pub(super) use self::phases::TITLES as PHASES;
use crate::bench::Bench;
use crate::cluster::{Cluster, healthy};
use crate::kubernetes;
use crate::measured::Measured;
use crate::process::{CHECK, calipam};

const BLOCKS: &str = "/calico/ipam/v2/assignment/";
const AFFINITIES: &str = "/calico/ipam/v2/host/";
const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const CLUSTER: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/";

/// Runs of each measurement.
const RUNS: usize = 3;
const RUNS_ON_KUBERNETES: usize = 5;

/// The commands and what they read: prefixes of keys in etcd, and kinds on Kubernetes. Single keys are left out, since
/// they hardly cost anything.
const COMMANDS: [(&str, &[&str], &str); 4] = [
    (CHECK, &["/calico/"], kubernetes::ALL),
    (
        "show",
        &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER],
        "nodes ipamblocks blockaffinities ippools ipreservations ipamconfigs clusterinformations",
    ),
    ("show --blocks", &[BLOCKS, POOLS, CLUSTER], "ipamblocks ippools ipreservations clusterinformations"),
    (
        "show --nodes",
        &[BLOCKS, AFFINITIES, NODES, POOLS, CLUSTER],
        "nodes ipamblocks blockaffinities ippools ipamconfigs clusterinformations",
    ),
];

pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let (program, size) = (bench.program, bench.number()?);
    let cluster = Cluster::sized(bench.datastore, size, EtcdOptions::new())?;
    let (generated, endpoint, connection) = (healthy(size), cluster.etcd().endpoint(), cluster.connection());
    let keys = floor::keys(&generated);
    for (command, prefixes, kinds) in COMMANDS {
        let floor = || match cluster.api_server() {
            None => floor::pull(&endpoint, &keys, prefixes),
            Some(server) => kubernetes::pull(server, kinds),
        };
        let floor = || undisturbed(&cluster, floor);
        let measured = || undisturbed(&cluster, || json(program, command, &connection));
        bench.compare(command, cluster.pick(RUNS, RUNS_ON_KUBERNETES), floor, measured)?;
    }
    if cluster.api_server().is_none() {
        files::measure(bench, &cluster)?;
        drop(cluster);
        bench.row(1, &phases::measure(&generated, size)?);
    }
    Ok(())
}

/// Runs a command that prints JSON.
fn json(program: &str, command: &str, connection: &[String]) -> Result<Measured> {
    calipam(program, &format!("{command} --output json"), connection, 0)
}

/// Measures work that starts after a garbage collection in the API server. Prints the servers' processor time.
fn undisturbed(cluster: &Cluster, work: impl FnOnce() -> Result<Measured>) -> Result<Measured> {
    cluster.api_server().map_or(Ok(()), kubernetes::collect_garbage)?;
    let used = cluster.processor_seconds();
    let measured = work()?;
    let processor = cluster.processor_seconds() - used;
    eprintln!("{:.2} s (servers: {processor:.2} s of processor time)", measured.seconds);
    Ok(measured)
}
